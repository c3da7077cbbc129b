"""The loop: events, ticks, alarms, and runs that cannot end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from boa_daemon.sim.wiring import PreparedRun, SimulationSettings, prepare
from boa_daemon.sim.world import StuckSimulation
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type
from policies.answer import Allocation
from policies.model import Budget, Job, Money, Width
from policies.registry import PolicyOptions
from policies.speedup import Table


def a_run(*arrivals: float, **changes: object) -> PreparedRun:
    """Return a run of one-hour jobs at one GPU each, on nodes of four that boot in 180 s."""
    values: dict[str, object] = {
        "trace": a_trace(*arrivals),
        "problem": a_problem(a_class()),
        "instance_types": {"gpu": an_instance_type()},
        "budget": Budget(amount=10.0),
        "policy": "equal-width",
        "options": PolicyOptions(gpus_per_job=1),
    }
    return prepare(SimulationSettings(**(values | changes)))  # type: ignore[arg-type]


def test_one_job_costs_its_boot_and_its_hour() -> None:
    """Three minutes to boot and an hour of work, on four GPUs at 1 USD each."""
    result = a_run(100.0).finish()

    assert result.mean_jct_hours == pytest.approx(1.0 + 180.0 / 3600.0)
    assert result.spent_usd == pytest.approx(4.0 * (1.0 + 180.0 / 3600.0), abs=1e-6)
    assert result.gpu_hours_booting == pytest.approx(4 * 180.0 / 3600.0)
    assert result.gpu_hours_idle == pytest.approx(3.0)
    assert result.mean_usd_per_hour == pytest.approx(result.spent_usd / result.simulated_hours)


def test_four_jobs_at_once_share_a_node() -> None:
    """Events at one instant are one tick: the arrivals, the boot, the ends; one node is rented."""
    run = a_run(0.0, 0.0, 0.0, 0.0)
    result = run.finish()

    assert (result.nodes_launched, result.rescales) == (1, 0)
    assert result.ticks == 3


def test_an_idle_node_is_held_then_released_and_rented_anew() -> None:
    """The second job comes 30 s after the first has left, the third ten minutes after the second."""
    first_ends = 180.0 + 3600.0
    second_ends = first_ends + 30.0 + 3600.0
    result = a_run(0.0, first_ends + 30.0, second_ends + 600.0).finish()

    assert result.nodes_launched == 2
    assert result.mean_jct_hours == pytest.approx(1.0 + 2 * 180.0 / 3600.0 / 3)


def test_the_alarm_of_a_decision_rings() -> None:
    """Between the two jobs nothing happens but the end of the idle hold, and the node is gone by then."""
    run = a_run(0.0, 20_000.0)
    seen: list[tuple[float, int]] = []
    run.finish(lambda decision: seen.append((decision.state.now, len(decision.plan.releases))))

    assert (180.0 + 3600.0 + 60.0, 1) in seen


def test_spend_per_hour_is_over_the_arrivals_with_the_tail_in_it() -> None:
    """Two jobs an hour apart: all dollars over one hour."""
    result = a_run(0.0, 3600.0).finish()

    assert result.arrival_window_hours == 1.0
    assert result.mean_usd_per_hour == pytest.approx(result.spent_usd)


def test_a_budget_in_gpus_counts_gpu_hours() -> None:
    """Money is GPU-hours at price 1, and the budget is given back as GPUs."""
    budget = Budget(amount=10.0, unit="gpus")
    result = a_run(0.0, budget=budget, problem=a_problem(a_class(), budget=budget)).finish()

    assert result.budget_gpus == 10.0
    assert result.spent_usd == pytest.approx(result.gpu_hours_rented, abs=1e-6)


def test_at_the_cap_nodes_are_not_rented_and_released_in_circles() -> None:
    """Twelve one-GPU nodes allowed: jobs of 4, 4, then 9; each node is rented for a job that runs on it."""
    wide = a_class("wide", curve=Table(gpus=(9,), speeds=(5.0,)))
    result = a_run(
        *(0.0, 0.0, 0.0),
        trace=a_trace(0.0, 0.0, 0.0, class_names=["c", "c", "wide"]),
        problem=a_problem(a_class(), wide),
        instance_types={"gpu": an_instance_type(gpus=1)},
        options=PolicyOptions(gpus_per_job=4),
        max_nodes=12,
        boot_seconds=0.0,
        idle_hold_seconds=0.0,
    ).finish()

    assert result.most_nodes <= 12
    assert result.nodes_launched <= 4 + 4 + 9


class NeverAnybody:
    """A policy that lets everyone wait."""

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return nothing."""
        return Allocation(widths={})


class WrongWidth:
    """A policy that gives three GPUs to jobs that can use 1, 2 or 4."""

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return three for all."""
        return Allocation(widths={job.id: Width("gpu", 3) for job in jobs})


def test_a_policy_that_starves_everyone_is_stopped_not_waited_for() -> None:
    """Nothing will ever happen: the error says how many wait."""
    run = a_run(0.0, 10.0)
    run = replace(run, controller=replace(run.controller, allocator=NeverAnybody()))

    with pytest.raises(StuckSimulation, match=r"2 jobs are left at 10 s.*2 wait \(j0, j1\)"):
        run.finish()


def test_a_width_that_a_job_cannot_use_is_found() -> None:
    """It holds GPUs and does nothing: the error says so."""
    run = a_run(0.0)
    run = replace(run, controller=replace(run.controller, allocator=WrongWidth(), is_job_by_job=False))

    with pytest.raises(StuckSimulation, match="1 hold GPUs that they cannot use"):
        run.finish()


def test_alarms_without_end_are_found() -> None:
    """A cloud that is out of stock for ever: the alarms stop after ten thousand."""
    run = a_run(0.0)

    def refuse(_action: object) -> object:
        from boa_daemon.tick.ports import Refused

        return Refused(reason="no capacity", retry_after_seconds=60.0)

    run.world.cloud.launch = refuse  # type: ignore[assignment, method-assign]
    run = replace(
        run, controller=replace(run.controller, ports=replace(run.controller.ports, telemetry=None))
    )
    with pytest.raises(StuckSimulation, match="1 wait"):
        run.finish()
