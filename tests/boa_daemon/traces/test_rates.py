"""Arrival rates and mean sizes of classes from a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.sim.simulated_workload import a_workload
from boa_daemon.sim.wiring import prepare, settings_for
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type
from boa_daemon.traces.rates import at_mean_scale, with_rates
from policies.model import Budget
from policies.optimum.boa import BudgetOptimal


def test_rates_of_the_trace_replace_those_of_the_file() -> None:
    """Three jobs in two hours are 1.5 per hour; a class without jobs is left out."""
    classes = (a_class("seen", arrivals_per_hour=9.0), a_class("unseen"))

    (rated,) = with_rates(classes, a_trace(0.0, 3600.0, 7200.0, class_names=["seen"] * 3))

    assert (rated.name, rated.arrivals_per_hour) == ("seen", 1.5)


@given(scales=st.lists(st.floats(0.01, 100.0), min_size=1, max_size=20))
def test_the_mean_size_of_a_class_is_scaled_by_the_mean_job_scale(scales: list[float]) -> None:
    """Every phase is multiplied by the same factor."""
    trace = a_trace(*map(float, range(len(scales))), scales=scales)

    (scaled,) = at_mean_scale((a_class(sizes=(1.0, 3.0)),), trace)

    assert scaled.size_gpu_hours == pytest.approx(4.0 * sum(scales) / len(scales))


def test_a_class_is_planned_at_the_mean_size_of_its_jobs() -> None:
    """The simulation scales each job once, so the class keeps its own size there."""
    file = ProblemFile(
        path="test",
        problem=a_problem(a_class(arrivals_per_hour=1.0)),
        budget=None,
        instance_types={"gpu": an_instance_type()},
        classes_without_rates=frozenset({"c"}),
    )
    trace = a_trace(0.0, 3600.0, scales=[2.0, 2.0])
    run = prepare(replace(settings_for(file, trace, Budget(amount=20.0)), boot_seconds=0.0))

    assert isinstance(run.policy.allocator, BudgetOptimal)
    (plan,) = run.policy.allocator.plans["c"]
    assert plan.hours == pytest.approx(2.0 / 3.0)
    assert run.world.workload.physics["c"].sizes == (3600.0,)
    assert a_workload(trace, (a_class(),), {"gpu": an_instance_type()}).jobs == 2
