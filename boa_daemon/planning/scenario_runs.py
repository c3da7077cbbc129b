"""Simulate scenarios of `boa whatif` on a trace or on a site's own past.

All scenarios have the same jobs and the same random draws, so they differ only in what the change changes.
The plan knows the trace's rates and mean sizes. More load means more jobs at the same hours of the day: with
`x1.5` every second job arrives twice, the second time halfway to the next arrival.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import floor
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.inputs.commitments_file import active_commitments, read_commitments
from boa_daemon.planning.whatif import Scenario
from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.tick.money.commitments import SiteCommitments
from boa_daemon.traces.reader import Trace
from boa_daemon.units import format_hours, parse_budget
from policies.errors import InfeasibleBudget
from policies.money_text import in_dollars
from policies.registry import find_policy

_TINY = 1e-9


def run_scenario(base: SimulationSettings, scenario: Scenario) -> dict[str, Any]:
    """Run a scenario and return its row; `spend` is total dollars."""
    settings = scenario_settings(base, scenario)
    row: dict[str, Any] = {"scenario": scenario.name, "budget": scenario.budget}
    try:
        run = prepare(settings)
    except InfeasibleBudget as error:
        nothing = ("mean_jct_hours", "p95_jct_hours", "spend", "usd_per_hour", "jobs", "interruptions")
        least = {"cheapest_feasible_spend": error.least_spend}
        return row | {"status": "infeasible"} | dict.fromkeys(nothing) | least
    found = run.finish()
    spend = run.spent_usd
    return row | {
        "status": found.status,
        "mean_jct_hours": found.mean_jct_hours,
        "p95_jct_hours": found.p95_jct_hours,
        "spend": spend,
        "usd_per_hour": spend / (found.arrival_window_hours or found.simulated_hours),
        "jobs": found.jobs,
        "interruptions": found.interruptions,
        "cheapest_feasible_spend": None,
    }


def scenario_settings(base: SimulationSettings, scenario: Scenario) -> SimulationSettings:
    """Return the simulation settings of a scenario."""
    names = {kind: machine.name for kind, machine in base.instance_types.items()}
    quotas = {**base.world.quotas, **{names[kind]: most for kind, most in scenario.quota.items()}}
    return replace(
        base,
        trace=with_more_load(base.trace, scenario.load),
        problem=scenario.problem(base.problem),
        instance_types=scenario.machines(base.instance_types),
        budget=parse_budget(scenario.budget),
        best_effort=find_policy(base.policy).kind == "optimum",
        commitments=_commitments(base, scenario),
        max_nodes=base.max_nodes if scenario.max_nodes is None else scenario.max_nodes,
        world=replace(
            base.world,
            quotas=quotas,
            spot=scenario.spot,
            on_demand=base.world.on_demand or scenario.spot is None,
        ),
    )


def _commitments(base: SimulationSettings, scenario: Scenario) -> SiteCommitments:
    """Return what the file of a scenario says is paid today, as if all the time, or else the base's own."""
    if scenario.commit is None:
        return base.commitments
    machines = [one for one in scenario.machines(base.instance_types).values() if not one.kind.is_spot]
    file, today = read_commitments(scenario.commit, machines), datetime.now(UTC).date()
    active_commitments(file, machines, today)
    held = [replace(one, begins=None, ends=None) for one in file.held if one.is_active(today)]
    return SiteCommitments.of(replace(file, held=tuple(held)).levels(machines), machines)


def with_more_load(trace: Trace, factor: float) -> Trace:
    """Return a trace with `factor` times the jobs, spread over the same hours.

    Raises:
        InputError: when no job is left.
    """
    if factor == 1.0:
        return trace
    instants = [job.arrived_at_seconds for job in trace.jobs]
    found = []
    for number, job in enumerate(trace.jobs):
        copies = floor(factor * (number + 1) + _TINY) - floor(factor * number + _TINY)
        until_next = instants[min(number + 1, len(instants) - 1)] - job.arrived_at_seconds
        found += [
            replace(
                job,
                id=f"{job.id}+{copy}" if copy else job.id,
                arrived_at_seconds=job.arrived_at_seconds + until_next * copy / copies,
            )
            for copy in range(copies)
        ]
    if not found:
        raise InputError(f"load=x{factor:g} leaves none of {len(trace.jobs)} jobs", hint="Give a larger load")
    return Trace(tuple(found))


def difference(row: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    """Return a sentence on how a scenario differs from the base in waiting and total dollars."""
    if row["mean_jct_hours"] is None or base["mean_jct_hours"] is None:
        return f"{row['scenario']}: not enough money to run every job"
    hours, usd = row["mean_jct_hours"] - base["mean_jct_hours"], row["spend"] - base["spend"]
    waits = f"{format_hours(abs(hours))} {'more' if hours > 0.0 else 'less'} from submission to end"
    return f"{row['scenario']}: {waits}, {in_dollars(abs(usd))} {'more' if usd > 0.0 else 'less'}"


def sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each scenario after the base."""
    return [f"{difference(row, rows[0])}." for row in rows[1:]]
