"""The best real width of one phase for a multiplier: closed forms, and comparison with many widths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies_planner import a_class, numbers, one_type, smooth_curves

from policies.optimum.real_widths import lay_out
from policies.optimum.term_families import ChordTerms, PowerTerms, RationalTerms, TermFamily
from policies.speedup import Amdahl, Floats, PowerLaw, SpeedupCurve, Table, UniversalScalability


def best_width(
    curve: SpeedupCurve, multiplier: float, *, size: float = 1.0, startup: float = 0.0, price: float = 1.0
) -> float:
    """Return the width of least time + multiplier x spend."""
    problem = one_type(a_class("c", (size, curve), startup_hours=startup), price=price)
    return float(lay_out(problem).best(np.array([multiplier])).gpus[0, 0])


def lagrangian(
    curve: SpeedupCurve, widths: Floats, multiplier: float, *, size: float, startup: float
) -> Floats:
    """Return (1 + mu k) (x / s(k) + d)."""
    return (1.0 + multiplier * widths) * (size / curve.speed_at(widths) + startup)


@given(st.floats(0.01, 0.99), numbers(0.5, 4.0), numbers(0.3, 3.0), numbers(1e-5, 1e-2))
def test_a_power_law_takes_a_over_one_minus_a_times_mu_c(
    a: float, speed: float, price: float, mu: float
) -> None:
    """k = a / ((1 - a) mu c) for every speed, clipped to the range."""
    expected = a / ((1 - a) * mu * price)

    assert best_width(
        PowerLaw(exponent=a, speed=speed, max_gpus=1_000_000), mu, price=price
    ) == pytest.approx(min(max(expected, 1.0), 1e6))


@given(st.floats(0.0, 0.999), numbers(0.5, 4.0), numbers(0.3, 3.0), numbers(1e-5, 1e-2))
def test_amdahl_takes_the_root_of_p_over_one_minus_p_times_mu_c(
    p: float, speed: float, price: float, mu: float
) -> None:
    """k = sqrt(p / ((1 - p) mu c))."""
    expected = math.sqrt(p / ((1 - p) * mu * price))
    found = best_width(Amdahl(parallel_fraction=p, speed=speed, max_gpus=1_000_000), mu, price=price)

    assert found == pytest.approx(min(max(expected, 1.0), 1e6))


@given(
    smooth_curves(most_gpus=1000),
    numbers(1e-4, 1e2),
    numbers(0.01, 100.0),
    st.just(0.0) | numbers(0.01, 10.0),
)
def test_no_width_of_a_grid_has_a_lower_lagrangian(
    curve: SpeedupCurve, mu: float, size: float, startup: float
) -> None:
    """The grid has four thousand widths; there are cases with and without a start-up."""
    found = best_width(curve, mu, size=size, startup=startup)
    everywhere = np.geomspace(curve.min_gpus, curve.max_gpus, 4000)
    here = lagrangian(curve, np.array([found]), mu, size=size, startup=startup)

    assert curve.min_gpus <= found <= curve.max_gpus
    least = lagrangian(curve, everywhere, mu, size=size, startup=startup).min()
    assert float(here[0]) <= float(least) * (1 + 1e-12)


@given(
    st.sampled_from(
        [
            Amdahl(parallel_fraction=0.95, max_gpus=1_000_000),
            PowerLaw(exponent=0.6, max_gpus=1_000_000),
            UniversalScalability(contention=0.02, crosstalk=0.001, max_gpus=1_000_000),
            UniversalScalability(contention=0.0, crosstalk=0.01, max_gpus=1_000_000),
        ]
    ),
    numbers(1e-4, 1e-1),
    numbers(0.1, 10.0),
    numbers(0.001, 1.0),
)
def test_the_elasticity_of_speed_satisfies_the_optimality_condition(
    curve: SpeedupCurve, mu: float, size: float, startup: float
) -> None:
    """mu c k = e phi / (1 - e phi): e is the elasticity of speed, phi the working share of the time."""
    k = best_width(curve, mu, size=size, startup=startup, price=2.0)
    if k <= 1.001:
        return
    step = 1e-5
    e = float(np.log(curve.speed_at(k * (1 + step)) / curve.speed_at(k * (1 - step)))) / (2 * step)
    work = size / float(curve.speed_at(k))
    phi = work / (work + startup)

    assert mu * 2.0 * k == pytest.approx(e * phi / (1 - e * phi), rel=1e-4)


def test_short_jobs_get_fewer_gpus_where_starting_takes_time() -> None:
    """With a start-up the width grows with the size; without one the width does not depend on the size."""
    curve = PowerLaw(exponent=0.8, max_gpus=1000)
    late = [best_width(curve, 0.05, size=size, startup=0.2) for size in (0.1, 1.0, 10.0, 100.0)]
    free = {best_width(curve, 0.05, size=size) for size in (0.1, 1.0, 10.0, 100.0)}

    assert late == sorted(late)
    assert late[0] < late[-1] < min(free)
    assert min(free) == pytest.approx(max(free))


@given(numbers(1e-3, 10.0), numbers(0.1, 10.0), numbers(0.01, 10.0))
def test_a_table_with_a_start_up_is_read_along_its_envelope(mu: float, size: float, startup: float) -> None:
    """The table is concave; no width at or between the measured ones is better."""
    table = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.9, 3.2, 4.5))
    found = best_width(table, mu, size=size, startup=startup)
    least = lagrangian(table, np.linspace(1.0, 8.0, 5000), mu, size=size, startup=startup).min()

    assert float(lagrangian(table, np.array([found]), mu, size=size, startup=startup)[0]) <= float(least) * (
        1 + 1e-12
    )


def test_a_start_up_may_make_fewer_gpus_cheaper_than_the_best_speed_per_gpu() -> None:
    """Speeds 1 and 2 on 1 and 2 GPUs tie for the work; an hour of start-up makes one GPU the cheapest."""
    table = Table(gpus=(1, 2), speeds=(1.0, 2.0))

    assert best_width(table, 1e9, startup=1.0) == pytest.approx(1.0)
    assert best_width(table, 1e-9, startup=1.0) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("curve", "width"),
    [
        (Amdahl(parallel_fraction=0.0, max_gpus=8), 1.0),
        (Amdahl(parallel_fraction=1.0, max_gpus=8), 8.0),
        (PowerLaw(exponent=0.0, max_gpus=8), 1.0),
        (PowerLaw(exponent=1.0, max_gpus=8), 8.0),
        (UniversalScalability(contention=1.0, crosstalk=0.0, max_gpus=8), 1.0),
        (UniversalScalability(contention=1.0, crosstalk=0.5, max_gpus=8), 1.0),
        (UniversalScalability(contention=0.0, crosstalk=0.0, max_gpus=8), 8.0),
        (UniversalScalability(contention=0.0, crosstalk=1e6, max_gpus=8), 1.0),
        (UniversalScalability(contention=5e-324, crosstalk=5e-324, max_gpus=8), 8.0),
        (Amdahl(parallel_fraction=0.9, min_gpus=5, max_gpus=5), 5.0),
    ],
)
@pytest.mark.parametrize("mu", [1e-12, 1.0, 1e12])
def test_limits_of_every_curve(curve: SpeedupCurve, width: float, mu: float) -> None:
    """Curves without a parallel part take the least width, and linear curves the largest."""
    assert best_width(curve, mu) == pytest.approx(width)


def test_the_peak_of_a_curve_that_falls_again_is_never_passed() -> None:
    """USL is fastest at sqrt((1 - sigma) / kappa)."""
    curve = UniversalScalability(contention=0.05, crosstalk=0.0001, max_gpus=1000)

    assert best_width(curve, 1e-15) == pytest.approx(math.sqrt(0.95 / 0.0001), rel=1e-5)


def column(value: float) -> Floats:
    """Return one number as an array of terms."""
    return np.array([value])


@pytest.mark.parametrize("startup", [0.0, 1e-9, 1.0, 1e9])
@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("mu", [1e-18, 1e-6, 1.0, 1e6, 1e18])
def test_every_scale_gives_a_width_inside_the_range(startup: float, size: float, mu: float) -> None:
    """Sizes, start-ups and multipliers differ by tens of orders of magnitude; no result is NaN."""
    shared = {
        "term": np.array([0]),
        "weight": column(1.0),
        "price": column(1.0),
        "size": column(size),
        "startup": column(startup),
        "least": column(1.0),
        "most": column(64.0),
    }
    families: list[TermFamily] = [
        RationalTerms(**shared, contention=column(0.02), crosstalk=column(crosstalk))
        for crosstalk in (0.0, 1e-12, 0.001, 10.0)
    ]
    families += [PowerTerms(**shared, exponent=column(exponent)) for exponent in (0.0, 0.5, 1.0)]
    if startup:
        families.append(ChordTerms(**shared, alpha=column(0.1), beta=column(0.9)))
    for family in families:
        gpus, hours = family.best(np.array([mu]))
        assert 1.0 <= float(gpus[0, 0]) <= 64.0
        assert 0.0 < float(hours[0, 0]) < math.inf
