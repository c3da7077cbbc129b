"""Greedy marginal gain: never above the budget, never better than the optimum."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_class, a_job, a_problem
from policies.errors import InfeasibleBudget
from policies.model import JobClass, Width
from policies.optimum.boa import solve
from policies.rivals.greedy import GreedyMarginal
from policies.rivals.long_run_averages import long_run_of
from policies.speedup import Table

SPEEDS = st.lists(st.floats(0.3, 9.0), min_size=1, max_size=5)
TABLES = SPEEDS.map(lambda speeds: Table(gpus=tuple(range(1, len(speeds) + 1)), speeds=tuple(speeds)))
CLASSES = st.lists(
    st.tuples(
        TABLES, st.floats(0.2, 3.0), st.sampled_from([0.0, 0.1]), st.integers(1, 3), st.floats(0.2, 5.0)
    ),
    min_size=1,
    max_size=3,
)


def classes_of(drawn: list[tuple[Table, float, float, int, float]]) -> dict[str, JobClass]:
    """Return classes of one to three phases, some coupled by a rescale cost."""
    return {
        f"c{n}": a_class(
            f"c{n}", sizes=[size] * phases, curve=table, arrivals_per_hour=rate, rescale_hours=rescale
        )
        for n, (table, size, rescale, phases, rate) in enumerate(drawn)
    }


@given(drawn=CLASSES, factor=st.floats(1.0, 4.0))
def test_the_plan_stays_within_the_budget_and_never_beats_the_optimum(
    drawn: list[tuple[Table, float, float, int, float]], factor: float
) -> None:
    """The optimum at the planned spend has no longer mean JCT."""
    classes = classes_of(drawn)
    gpus = factor * sum(
        c.arrivals_per_hour * p.size_gpu_hours / float(p.speedups["gpu"].speed_at(1))
        for c in classes.values()
        for p in c.phases
    )
    promise = long_run_of(GreedyMarginal.within(classes, "gpu", gpus=gpus).plans, classes)
    best = solve(a_problem(*classes.values()), promise.gpus * (1.0 + 1e-9))

    assert promise.gpus <= gpus * (1.0 + 1e-6)
    assert promise.mean_jct_hours >= best.mean_jct_hours * (1.0 - 1e-6)


def test_the_step_that_saves_most_time_per_gpu_comes_first() -> None:
    """From 1 to 2 GPUs the steep class saves 0.47 h for 0.05 GPU-hours, the flat one 0.09 h for 0.82."""
    classes = {
        "steep": a_class("steep", curve=Table(gpus=(1, 2), speeds=(1.0, 1.9))),
        "flat": a_class("flat", curve=Table(gpus=(1, 2), speeds=(1.0, 1.1))),
    }
    policy = GreedyMarginal.within(classes, "gpu", gpus=2.2)

    assert policy.plans == {"steep": (Width("gpu", 2),), "flat": (Width("gpu", 1),)}
    assert policy.allocate([a_job("a", class_name="steep")], now=0.0).widths == {"a": Width("gpu", 2)}


@given(drawn=CLASSES, factor=st.floats(1.0, 4.0), unit=st.sampled_from([1e-3, 0.1, 50.0]))
def test_widths_do_not_depend_on_the_unit_of_work(
    drawn: list[tuple[Table, float, float, int, float]], factor: float, unit: float
) -> None:
    """Jobs of a tenth of the work, ten times as often, are the same load."""
    classes = classes_of(drawn)
    gpus = factor * sum(
        c.arrivals_per_hour * p.size_gpu_hours / float(p.speedups["gpu"].speed_at(1))
        for c in classes.values()
        for p in c.phases
    )
    others = {
        name: JobClass(
            name=name,
            phases=tuple(replace(phase, size_gpu_hours=phase.size_gpu_hours * unit) for phase in c.phases),
            arrivals_per_hour=c.arrivals_per_hour / unit,
            rescale_hours=c.rescale_hours * unit,
        )
        for name, c in classes.items()
    }
    # A thousandth of a GPU is added, so that no step depends on the last digit.
    plans = [GreedyMarginal.within(each, "gpu", gpus=gpus + 1e-3).plans for each in (classes, others)]
    assert plans[0] == plans[1]


def test_a_poor_next_step_hides_a_good_one_from_greedy() -> None:
    """2 GPUs hardly help and 4 help a lot: greedy widens the other class, and the optimum does not."""
    hidden = a_class("hidden", curve=Table(gpus=(1, 2, 4), speeds=(1.0, 1.02, 3.9)))
    plain = a_class("plain", curve=Table(gpus=(1, 2), speeds=(1.0, 1.4)))
    classes = {"hidden": hidden, "plain": plain}
    policy = GreedyMarginal.within(classes, "gpu", gpus=2.5)
    promise = long_run_of(policy.plans, classes)

    assert policy.plans["hidden"] == (Width("gpu", 1),)
    assert promise.mean_jct_hours > 1.5 * solve(a_problem(hidden, plain), promise.gpus).mean_jct_hours


def test_coupled_phases_are_widened_together() -> None:
    """A rescale between two short phases would cost more than it saves."""
    job_class = a_class(sizes=[1.0, 1.0], rescale_hours=0.5)
    free = replace(job_class, rescale_hours=0.0)

    assert len(set(GreedyMarginal.within({"c": job_class}, "gpu", gpus=2.3).plans["c"])) == 1
    assert len(set(GreedyMarginal.within({"c": free}, "gpu", gpus=2.15).plans["c"])) == 2


def test_too_few_gpus_are_infeasible() -> None:
    """One job of one GPU-hour per hour takes one GPU."""
    with pytest.raises(InfeasibleBudget) as caught:
        GreedyMarginal.within({"c": a_class()}, "gpu", gpus=0.9)
    assert caught.value.least_spend == pytest.approx(1.0)
