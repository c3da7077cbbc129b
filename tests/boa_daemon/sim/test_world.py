"""The event loop: events, ticks, alarms, and runs that cannot end."""

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
    """It pays for four GPUs at 1 USD each."""
    result = a_run(100.0).finish()

    assert result.mean_jct_hours == pytest.approx(1.0 + 180.0 / 3600.0)
    assert result.spent_usd == pytest.approx(4.0 * (1.0 + 180.0 / 3600.0), abs=1e-6)
    assert result.gpu_hours_booting == pytest.approx(4 * 180.0 / 3600.0)
    assert result.gpu_hours_idle == pytest.approx(3.0)
    assert result.mean_usd_per_hour == pytest.approx(result.spent_usd / result.simulated_hours)


def test_four_simultaneous_jobs_share_a_node_and_take_three_ticks() -> None:
    """The arrivals, the boot and the ends are one tick each."""
    run = a_run(0.0, 0.0, 0.0, 0.0)
    result = run.finish()

    assert (result.nodes_launched, result.rescales) == (1, 0)
    assert result.ticks == 3


def test_an_idle_node_is_kept_for_a_while_and_then_released() -> None:
    """The second job comes 30 s after the first ends, the third ten minutes after the second ends."""
    first_ends = 180.0 + 3600.0
    second_ends = first_ends + 30.0 + 3600.0
    result = a_run(0.0, first_ends + 30.0, second_ends + 600.0).finish()

    assert result.nodes_launched == 2
    assert result.mean_jct_hours == pytest.approx(1.0 + 2 * 180.0 / 3600.0 / 3)


def test_an_idle_node_is_released_by_an_alarm() -> None:
    """No other event happens between the two jobs."""
    run = a_run(0.0, 20_000.0)
    seen: list[tuple[float, int]] = []
    run.finish(lambda decision: seen.append((decision.state.now, len(decision.plan.releases))))

    assert (180.0 + 3600.0 + 60.0, 1) in seen


def test_spend_per_hour_divides_all_dollars_by_the_arrival_window() -> None:
    """Two jobs arrive an hour apart, so all dollars are divided by one hour."""
    result = a_run(0.0, 3600.0).finish()

    assert result.arrival_window_hours == 1.0
    assert result.mean_usd_per_hour == pytest.approx(result.spent_usd)


def test_a_budget_in_gpus_counts_gpu_hours() -> None:
    """A GPU-hour has price 1, and the budget is reported in GPUs."""
    budget = Budget(amount=10.0, unit="gpus")
    result = a_run(0.0, budget=budget, problem=a_problem(a_class(), budget=budget)).finish()

    assert result.budget_gpus == 10.0
    assert result.spent_usd == pytest.approx(result.gpu_hours_rented, abs=1e-6)


def test_at_the_cap_nodes_are_not_rented_and_released_repeatedly() -> None:
    """Jobs of 4, 4 and 9 GPUs under a cap of twelve one-GPU nodes launch at most 17 nodes."""
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
    """A policy that starts no jobs."""

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return nothing."""
        return Allocation(widths={})


class WrongWidth:
    """A policy that gives three GPUs to jobs that can use 1, 2 or 4."""

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return three for all."""
        return Allocation(widths={job.id: Width("gpu", 3) for job in jobs})


def test_a_policy_that_starts_no_jobs_raises_stuck_simulation() -> None:
    """The error says how many jobs wait."""
    run = a_run(0.0, 10.0)
    run = replace(run, controller=replace(run.controller, allocator=NeverAnybody()))

    with pytest.raises(StuckSimulation, match=r"2 jobs are left at 10 s.*2 wait \(j0, j1\)"):
        run.finish()


def test_a_width_that_a_job_cannot_use_raises_stuck_simulation() -> None:
    """The error says that the job holds GPUs that it cannot use."""
    run = a_run(0.0)
    run = replace(run, controller=replace(run.controller, allocator=WrongWidth(), is_job_by_job=False))

    with pytest.raises(StuckSimulation, match="1 hold GPUs that they cannot use"):
        run.finish()


def test_endless_alarms_raise_stuck_simulation() -> None:
    """The cloud is out of stock for ever."""
    run = a_run(0.0)

    def refuse(_action: object) -> object:
        from boa_daemon.tick.facts.ports import Refused

        return Refused(reason="no capacity", retry_after_seconds=60.0)

    run.world.cloud.launch = refuse  # type: ignore[assignment, method-assign]
    run = replace(
        run, controller=replace(run.controller, ports=replace(run.controller.ports, telemetry=None))
    )
    with pytest.raises(StuckSimulation, match="1 wait"):
        run.finish()
