"""The rungs of a class: hours and GPU-hours in closed form, and the fastest rung."""

from __future__ import annotations

import pytest

from boa_daemon.testing import a_class
from policies.model import JobClass, Phase, Width
from policies.rivals.ladder import fastest_within, job_hours, phase_ladder, whole_job_ladder
from policies.speedup import Table

WIDE = Table(gpus=(1, 2, 4), speeds=(1.0, 1.6, 2.5))
HIGH = Table(gpus=(2, 4, 8), speeds=(2.0, 3.0, 2.0))


def two_phases(second: Table = HIGH) -> JobClass:
    """Return a class of 12 and 6 GPU-hours, with an hour to start and half an hour to change width."""
    phases = (
        Phase(size_gpu_hours=12.0, speedups={"gpu": WIDE}),
        Phase(size_gpu_hours=6.0, speedups={"gpu": second}),
    )
    return JobClass(name="c", phases=phases, startup_hours=1.0, rescale_hours=0.5)


def gpus(*widths: int) -> tuple[Width, ...]:
    """Return widths of type "gpu"."""
    return tuple(Width("gpu", one) for one in widths)


def test_job_hours_are_start_up_work_and_a_rescale_at_each_change() -> None:
    """At widths 2 and 2: 1 + 7.5 and 3 hours. At 1 and 2: 1 + 12, and half an hour before 3."""
    assert job_hours(two_phases(), gpus(2, 2)) == pytest.approx((11.5, 23.0))
    assert job_hours(two_phases(), gpus(1, 2)) == pytest.approx((16.5, 13.0 + 2 * 3.5))
    other = (Width("gpu", 2), Width("gpu", 4))
    assert job_hours(two_phases(), other) == pytest.approx((8.5 + 2.5, 17.0 + 10.0))


def test_phases_with_common_widths_keep_one_width() -> None:
    """The common widths are 2 and 4; the work alone excludes start-up and rescale."""
    ladder = whole_job_ladder(two_phases(), "gpu")
    assert ladder.widths == (gpus(2, 2), gpus(4, 4))
    assert (ladder.class_name, ladder.first) == ("c", 0)
    assert ladder.hours.tolist() == pytest.approx([11.5, 1 + 4.8 + 2.0])
    assert ladder.gpu_hours.tolist() == pytest.approx([23.0, 31.2])
    assert ladder.work_gpu_hours.tolist() == pytest.approx([21.0, 27.2])
    assert ladder.efficiencies.tolist() == pytest.approx([1.0, 21.0 / 27.2])


def test_phases_without_a_common_width_have_one_rung_per_limit() -> None:
    """Phase 2 allows 3 or 6 GPUs: limits below 3 still give 3, and a limit of 4 changes phase 1 alone."""
    ladder = whole_job_ladder(two_phases(Table(gpus=(3, 6), speeds=(2.0, 3.0))), "gpu")
    assert ladder.widths == (gpus(1, 3), gpus(2, 3), gpus(4, 3), gpus(4, 6))


def test_the_ladder_of_the_first_phase_includes_the_start_up() -> None:
    """12 GPU-hours at speeds 1, 1.6 and 2.5 after an hour of start-up; 6 GPU-hours at 2, 3 and 2."""
    first, second = (phase_ladder(two_phases(), number, "gpu") for number in (0, 1))
    assert (first.first, second.first) == (0, 1)
    assert first.hours.tolist() == pytest.approx([13.0, 8.5, 5.8])
    assert first.gpu_hours.tolist() == pytest.approx([13.0, 17.0, 23.2])
    assert first.work_gpu_hours.tolist() == pytest.approx([12.0, 15.0, 19.2])
    assert second.hours.tolist() == pytest.approx([3.0, 2.0, 3.0])
    assert second.widths == ((Width("gpu", 2),), (Width("gpu", 4),), (Width("gpu", 8),))


@pytest.mark.parametrize(
    ("efficiency", "rung"), [(1.0, 0), (0.81, 0), (0.8, 1), (0.63, 1), (0.625, 2), (0.1, 2), (1.5, 0)]
)
def test_the_fastest_rung_has_at_least_the_efficiency(efficiency: float, rung: int) -> None:
    """Efficiencies are 1, 0.8 and 0.625; if no rung is efficient enough, the lowest is used."""
    assert phase_ladder(two_phases(), 0, "gpu").fastest_at(efficiency + (-1e-12 if rung else 0.0)) == rung


def test_the_next_faster_rung_skips_rungs_that_are_not_faster() -> None:
    """In phase 2, 8 GPUs are as slow as 2. Of two equal rungs neither is faster."""
    first, second = (phase_ladder(two_phases(), number, "gpu") for number in (0, 1))
    assert [first.next_faster(rung) for rung in range(3)] == [1, 2, None]
    assert [second.next_faster(rung) for rung in range(3)] == [1, None, None]
    flat = a_class(curve=Table(gpus=(1, 2, 4), speeds=(1.0, 1.0, 2.0)))
    assert phase_ladder(flat, 0, "gpu").next_faster(0) == 2
    assert phase_ladder(flat, 0, "gpu").fastest_at(0.0) == 2


@pytest.mark.parametrize(("limit", "found"), [(1, 2), (2, 2), (3, 2), (4, 4), (7, 4), (8, 4)])
def test_fastest_within_gives_the_fastest_width_up_to_a_limit(limit: int, found: int) -> None:
    """8 GPUs are slower than 4; a limit below the narrowest width gives 2, the narrowest."""
    assert fastest_within(two_phases().phases[1], "gpu", limit) == Width("gpu", found)
