"""Options: the hours and the spend of every width of every phase, in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from policies.model import GpuType, JobClass, Phase, Problem
from policies.optimum.options import plan_steps, whole_columns, whole_width_options
from policies.speedup import Table

CURVE = Table(gpus=(1, 2), speeds=(1.0, 1.6))
OTHER = Table(gpus=(4,), speeds=(5.0,))
TYPES = (GpuType(name="a", usd_per_gpu_hour=1.0), GpuType(name="b", usd_per_gpu_hour=3.0))


def a_class(name: str = "c", *, rescale: float = 0.0, second: Table = CURVE) -> JobClass:
    """Return a class of 8 and 4 GPU-hours with a start-up of half an hour; phase 2 also runs on "b"."""
    phases = (
        Phase(size_gpu_hours=8.0, speedups={"a": CURVE}),
        Phase(size_gpu_hours=4.0, speedups={"a": second, "b": OTHER}),
    )
    return JobClass(
        name=name, phases=phases, arrivals_per_hour=2.0, weight=3.0, startup_hours=0.5, rescale_hours=rescale
    )


def test_a_class_without_rescales_has_a_group_for_each_phase() -> None:
    """Hours are 8 and 5 plus the start-up, then 4, 2.5 and 0.8; spend is price times GPUs times hours."""
    found = whole_width_options(Problem(classes=(a_class(),), gpu_types=TYPES))
    assert found.group.tolist() == [0, 0, 1, 1, 1]
    assert found.gpu_type.tolist() == [0, 0, 0, 0, 1]
    assert found.gpus.tolist() == [1, 2, 1, 2, 4]
    assert found.hours.tolist() == pytest.approx([8.5, 5.5, 4.0, 2.5, 0.8])
    assert found.spend.tolist() == pytest.approx([8.5, 11.0, 4.0, 5.0, 9.6])
    assert (found.owner.tolist(), found.phase.tolist()) == ([0, 0], [0, 1])
    assert found.time().tolist() == pytest.approx((6.0 * found.hours).tolist())
    assert found.time(is_weighted=False).tolist() == pytest.approx((2.0 * found.hours).tolist())
    assert found.cost.tolist() == pytest.approx((2.0 * found.spend).tolist())
    ((step,),) = found.steps_of([1], np.array([4]))
    assert (step.gpu_type, step.gpus, step.hours, step.spend) == ("b", 4, 0.8, pytest.approx(9.6))
    assert isinstance(step.gpus, int)


def test_where_gpus_are_counted_every_gpu_costs_one() -> None:
    """The price of a GPU does not matter."""
    problem = Problem(classes=(a_class(),), gpu_types=TYPES, budget_unit="gpus")
    assert whole_width_options(problem).spend.tolist()[-1] == pytest.approx(4 * 0.8)


def test_a_class_with_rescales_has_one_group_of_whole_plans() -> None:
    """Hours and spend of an option are the sums of its steps. A class without rescales keeps its groups."""
    plain, coupled = a_class("plain"), a_class("coupled", rescale=0.25)
    found = whole_width_options(Problem(classes=(coupled, plain), gpu_types=TYPES))
    assert found.owner.tolist() == [0, 1, 1]
    assert found.phase.tolist() == [-1, 0, 1]
    mine = found.group == 0
    for option in np.flatnonzero(mine).tolist():
        (steps,) = found.steps_of([0], np.array([option]))
        assert sum(step.hours for step in steps) == pytest.approx(found.hours[option])
        assert sum(step.spend for step in steps) == pytest.approx(found.spend[option])
    (cheapest,) = found.steps_of([0], np.flatnonzero(mine)[[found.spend[mine].argmin()]])
    assert [(step.gpu_type, step.gpus, step.hours) for step in cheapest] == [("a", 1, 8.5), ("a", 1, 4.0)]
    assert found.hours[~mine].tolist() == pytest.approx([8.5, 5.5, 4.0, 2.5, 0.8])


def test_a_plan_pays_its_start_first_and_a_rescale_where_the_column_changes() -> None:
    """The columns are one GPU of "a", two of "a" and four of "b"."""
    job_class = a_class(rescale=0.25)
    problem = Problem(classes=(job_class,), gpu_types=TYPES)
    columns = whole_columns(problem, job_class)
    assert (columns.gpu_type.tolist(), columns.gpus.tolist()) == ([0, 0, 1], [1, 2, 4])
    assert columns.arrays.phase_time.tolist() == [[8.0, 5.0, np.inf], [4.0, 2.5, 0.8]]
    assert columns.arrays.rate.tolist() == [1.0, 2.0, 12.0]
    for plan, hours in (((0, 0), (8.5, 4.0)), ((0, 1), (8.5, 2.75)), ((1, 2), (5.5, 1.05))):
        steps = plan_steps(problem, columns, plan)
        assert [step.hours for step in steps] == pytest.approx(list(hours))
        rates = columns.arrays.rate[list(plan)]
        assert [step.spend for step in steps] == pytest.approx(
            [h * r for h, r in zip(hours, rates, strict=True)]
        )


@pytest.mark.parametrize("second", [CURVE, Table(gpus=(2,), speeds=(1.6,))])
def test_phases_of_one_curve_have_the_columns_of_the_general_case(second: Table) -> None:
    """One curve on one type has a shortcut; a phase that lacks a width has infinite time at the width."""
    phases = tuple(Phase(size_gpu_hours=size, speedups={"b": c}) for size, c in ((8.0, CURVE), (4.0, second)))
    job_class = JobClass(name="c", phases=phases, startup_hours=0.5, rescale_hours=0.25)
    columns = whole_columns(Problem(classes=(job_class,), gpu_types=TYPES), job_class)
    assert columns.gpu_type.tolist() == [1, 1]
    assert columns.gpus.tolist() == [1, 2]
    assert columns.arrays.rate.tolist() == [3.0, 6.0]
    assert columns.arrays.phase_time.tolist() == [[8.0, 5.0], [4.0 if second is CURVE else np.inf, 2.5]]
    assert (columns.arrays.startup_hours, columns.arrays.rescale_hours) == (0.5, 0.25)
