"""Speed-up curves: formulas, limits, and the concave envelope of a table."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies_planner import smooth_curves, tables

from policies.errors import InvalidProblem
from policies.speedup import MAX_GPUS, Amdahl, PowerLaw, Table, UniversalScalability, whole_speeds


def test_curves_follow_their_formulas() -> None:
    """Amdahl, power law and universal scalability law at 4 GPUs, with a speed of 2 on one GPU."""
    assert float(Amdahl(parallel_fraction=0.8, speed=2.0).speed_at(4)) == pytest.approx(2 / (0.2 + 0.8 / 4))
    assert float(PowerLaw(exponent=0.5, speed=2.0).speed_at(4)) == 2.0 * 2.0
    usl = UniversalScalability(contention=0.1, crosstalk=0.01, speed=2.0)
    assert float(usl.speed_at(4)) == pytest.approx(2.0 * 4 / (1 + 0.1 * 3 + 0.01 * 4 * 3))


@given(st.floats(0, 1), st.integers(1, 64))
def test_usl_without_crosstalk_is_amdahl(contention: float, gpus: int) -> None:
    """The contention sigma is the serial part 1 - p."""
    usl = UniversalScalability(contention=contention, crosstalk=0.0)

    assert float(usl.speed_at(gpus)) == pytest.approx(
        float(Amdahl(parallel_fraction=1.0 - contention).speed_at(gpus)), rel=1e-9
    )


@given(curve=st.one_of(tables(), smooth_curves()))
def test_whole_speeds_are_the_speeds_at_the_whole_widths(curve: Table | Amdahl) -> None:
    """They are equal to the bit, because an interpolation gives measured speeds as they are."""
    assert whole_speeds(curve).tolist() == curve.speed_at(curve.whole_widths()).tolist()


@given(smooth_curves())
def test_speed_per_gpu_never_rises_on_smooth_curves(curve: Amdahl) -> None:
    """One GPU is always the best buy per unit of work, without overheads."""
    widths = curve.whole_widths()
    per_gpu = curve.speed_at(widths) / widths

    assert np.all(np.diff(per_gpu) <= 1e-12 * per_gpu[:-1])


def test_only_listed_widths_are_whole_widths_of_a_table() -> None:
    """A table of 1, 2 and 4 does not offer 3."""
    table = Table(gpus=(1, 2, 4), speeds=(1.0, 1.9, 3.0))

    assert table.whole_widths().tolist() == [1, 2, 4]
    assert (table.min_gpus, table.max_gpus) == (1, 4)
    assert float(table.speed_at(3)) == pytest.approx((1.9 + 3.0) / 2)


def test_a_dip_is_not_on_the_envelope() -> None:
    """4 GPUs below the chord from 2 to 8 drop out; so does 16, slower than 8."""
    table = Table(gpus=(1, 2, 4, 8, 16), speeds=(1.0, 2.0, 1.5, 3.0, 2.5))

    assert table.envelope()[0].tolist() == [2.0, 8.0]


@given(tables())
def test_the_envelope_covers_every_useful_point(table: Table) -> None:
    """The envelope is concave, rises, and is nowhere below the table from its first vertex on."""
    widths, speeds = table.envelope()
    measured, at = np.array(table.speeds), np.array(table.gpus, dtype=float)
    useful = at >= widths[0]

    assert speeds[0] / widths[0] == pytest.approx(float((measured / at).max()))
    assert speeds[-1] == measured.max()
    assert np.all(np.diff(speeds) > 0)
    slopes = np.concatenate([[speeds[0] / widths[0]], np.diff(speeds) / np.diff(widths)])
    assert np.all(np.diff(slopes) <= 1e-12 * slopes[:-1])
    covered = np.interp(at[useful], widths, speeds)
    assert np.all(covered >= measured[useful] * (1 - 1e-12))


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_speeds_are_positive_and_finite(value: float) -> None:
    """A speed that is not positive and finite is refused in every curve."""
    with pytest.raises(InvalidProblem, match="positive finite"):
        Table(gpus=(1, 2), speeds=(1.0, value))
    with pytest.raises(InvalidProblem, match="speed must be a finite number"):
        Amdahl(parallel_fraction=0.5, speed=value)
    with pytest.raises(InvalidProblem, match="speed must be a finite number"):
        PowerLaw(exponent=0.5, speed=value)
    with pytest.raises(InvalidProblem, match="speed must be a finite number"):
        UniversalScalability(contention=0.1, crosstalk=0.0, speed=value)


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_fractions_are_from_zero_to_one(value: float) -> None:
    """Parallel fraction, exponent and contention are ratios."""
    with pytest.raises(InvalidProblem, match="parallel_fraction"):
        Amdahl(parallel_fraction=value)
    with pytest.raises(InvalidProblem, match="exponent"):
        PowerLaw(exponent=value)
    with pytest.raises(InvalidProblem, match="contention"):
        UniversalScalability(contention=value, crosstalk=0.0)


def test_crosstalk_is_not_negative() -> None:
    """Crosstalk never makes a job faster."""
    with pytest.raises(InvalidProblem, match="crosstalk"):
        UniversalScalability(contention=0.1, crosstalk=-1e-9)


@pytest.mark.parametrize(
    ("gpus", "speeds", "message"),
    [
        ((), (), "empty table"),
        ((1, 2), (1.0,), "2 widths but 1 speeds"),
        ((2, 1), (1.0, 2.0), "must rise; got 2 then 1"),
        ((1, 1), (1.0, 2.0), "must rise; got 1 then 1"),
        ((0, 1), (1.0, 2.0), "min_gpus must be from 1"),
        ((1, MAX_GPUS + 1), (1.0, 2.0), "at most 1000000"),
    ],
)
def test_a_table_has_rising_whole_widths(
    gpus: tuple[int, ...], speeds: tuple[float, ...], message: str
) -> None:
    """Empty, ragged, unsorted, duplicate, zero and endless tables are refused."""
    with pytest.raises(InvalidProblem, match=message):
        Table(gpus=gpus, speeds=speeds)


@pytest.mark.parametrize("width", [1.5, True])
def test_widths_are_whole(width: float) -> None:
    """Fractions of a GPU and booleans are refused."""
    with pytest.raises(InvalidProblem, match="whole"):
        Table(gpus=(width, 8, 9), speeds=(1.0, 2.0, 3.0))  # type: ignore[arg-type]
    with pytest.raises(InvalidProblem, match="whole"):
        Table(gpus=(1, 2.5, 9), speeds=(1.0, 2.0, 3.0))  # type: ignore[arg-type]
    with pytest.raises(InvalidProblem, match="max_gpus must be a whole"):
        Amdahl(parallel_fraction=0.5, max_gpus=width)  # type: ignore[arg-type]


def test_min_gpus_is_not_above_max_gpus() -> None:
    """An empty range is refused; a range of one width is one width."""
    with pytest.raises(InvalidProblem, match="min_gpus must be from 1 to max_gpus"):
        PowerLaw(exponent=0.5, min_gpus=5, max_gpus=4)

    assert PowerLaw(exponent=0.5, min_gpus=4, max_gpus=4).whole_widths().tolist() == [4]


@example(Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.1, 3.0, 3.2)))
@given(tables())
def test_the_envelope_is_concave_and_made_of_listed_points(table: Table) -> None:
    """Each chord gains less per GPU than the one before, from the best speed per GPU to the top speed."""
    widths, speeds = table.corners()
    slopes = np.diff(speeds) / np.diff(widths)
    assert np.all(np.diff(slopes) < 0.0)
    assert np.all(slopes > 0.0)
    assert set(zip(widths, speeds, strict=True)) <= set(zip(table.gpus, table.speeds, strict=True))
    assert speeds[-1] == max(table.speeds)
    assert speeds[0] / widths[0] == max(s / g for g, s in zip(table.gpus, table.speeds, strict=True))
