"""The bases of ``boa whatif``: a stream, a list of jobs, a trace, or the daemon's own past."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from boa_daemon.cli.common.daemon_client import a_client
from boa_daemon.cli.common.planning_options import read_problem
from boa_daemon.cli.common.report import assumptions
from boa_daemon.cli.common.simulation_options import settings_in_world
from boa_daemon.errors import InputError, MissingPrice
from boa_daemon.inputs.jobs_file import read_list
from boa_daemon.planning.calendar_plan import read_quota
from boa_daemon.planning.scenario_runs import run_scenario
from boa_daemon.planning.whatif import BaseKind, Scenario, ScenarioBase, plan_scenario
from boa_daemon.sim.wiring import SimulationSettings
from boa_daemon.sim.world_file import load_world
from boa_daemon.sim.world_settings import Spot
from boa_daemon.tasks.tasks import Tasks
from boa_daemon.traces.reader import class_file_of
from boa_daemon.units import SECONDS_PER_HOUR, parse_budget
from policies.money_text import price_in_dollars
from policies.registry import DEFAULT_POLICY

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfFlags:
    """The flags that define the base."""

    classes: Path | None
    budget: str | None
    quota: list[str]
    boot_seconds: float
    world: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTable:
    """A comparison: the base, the function that computes a scenario's row, and further answers (`more`)."""

    name: str
    base: ScenarioBase
    row: Callable[[Tasks, Scenario], Callable[[], Row]]
    assumed: dict[str, str]
    more: Callable[[list[Row]], Row] = field(default=lambda rows: {})


def of_plan(jobs: Path | None, prices: list[Path] | None, flags: WhatIfFlags) -> ScenarioTable:
    """Return a comparison of plans: a stream or a list, planned anew for each scenario."""
    classes, budget = flags.classes, flags.budget
    if classes is None or budget is None:
        what = "--classes" if classes is None else "--budget"
        hint = "Give --classes FILE --budget 40000/month, or --history 30 for the daemon's own past"
        raise InputError(f"nothing to compare: {what} is missing", hint=hint)
    file = read_problem(classes, prices, require_rates=jobs is None)
    if not file.has_prices:
        hint = "Add gpu_types: {a100: {instance_type: p4d.24xlarge}}"
        raise MissingPrice("boa whatif compares dollars", file=file.path, hint=hint)
    if jobs is None and flags.quota:
        raise InputError("a quota is for a list or a trace", hint="Add --jobs FILE or --trace FILE")
    listed = None if jobs is None else read_list(jobs, [c.name for c in file.problem.classes])
    boot_hours = flags.boot_seconds / SECONDS_PER_HOUR
    machines = tuple(file.instance_types.values())
    names = [one.name for one in file.problem.classes]
    spot = None if flags.world is None else load_world(flags.world, machines, names).spot
    kind: BaseKind = "stream" if listed is None else "list"
    base = Scenario(name="base", budget=budget, quota=read_quota(flags.quota, file.instance_types))
    return ScenarioTable(
        name=classes.name,
        base=ScenarioBase(
            scenario=base,
            kind=kind,
            problem=file.problem,
            machines=file.instance_types,
            spot=spot or Spot(),
        ),
        row=lambda tasks, scenario: (
            tasks.submit(plan_scenario, file, scenario, listed, boot_hours, base).result
        ),
        assumed=assumptions(
            file,
            is_list=listed is not None,
            **{"the base's budget": budget},
            **(
                {"list": "" if jobs is None else jobs.name, "boot": f"{flags.boot_seconds:g} seconds"}
                if listed
                else {}
            ),
        ),
    )


def of_trace(trace: Path, flags: WhatIfFlags) -> ScenarioTable:
    """Return a comparison of simulations of a trace under the daemon's policy."""
    if flags.budget is None:
        raise InputError("no budget", hint="Give --budget 40/h or 25000/month")
    file = class_file_of(trace, flags.classes)
    budget = parse_budget(flags.budget)
    settings = settings_in_world(trace, file, budget, world=flags.world, spot=False, boot=None)
    settings = replace(settings, policy=DEFAULT_POLICY, boot_seconds=flags.boot_seconds)
    return _replays(
        trace.name, settings, flags.budget, flags.quota, {"trace": trace.name, "classes": file.name}
    )


def of_history(days: float, flags: WhatIfFlags, config: Path | None, socket: str | None) -> ScenarioTable:
    """Return a comparison of simulations of the daemon's own last days."""
    from boa_daemon.daemon.service.backtest import compare_with_past, past_simulation  # noqa: PLC0415 - slow to import, and few ask

    with a_client(config, socket) as client:
        document = client.past(days=days)
    settings = past_simulation(document)
    budget = flags.budget or f"{settings.budget.amount:.10g}/h"
    left = ", ".join(f"{number} {why}" for why, number in document["left_out"].items()) or "none"
    asked = _replays(
        f"the last {days:g} days",
        settings,
        budget,
        flags.quota,
        {"jobs": f"{len(document['jobs'])} that are over; left out: {left}"},
    )
    return replace(asked, more=lambda rows: {"days": days, "happened": compare_with_past(document, rows[0])})


def _replays(
    name: str, settings: SimulationSettings, budget: str, quota: list[str], assumed: dict[str, str]
) -> ScenarioTable:
    """Return a comparison of simulations of the same jobs."""
    machines = settings.instance_types
    market = settings.world.spot
    base = Scenario(name="base", budget=budget, quota=read_quota(quota, machines), spot=market)
    terms = market or Spot()
    return ScenarioTable(
        name=name,
        base=ScenarioBase(
            scenario=base, kind="trace", problem=settings.problem, machines=machines, spot=terms
        ),
        row=lambda tasks, scenario: partial(tasks.run, run_scenario, settings, scenario),
        assumed={
            **assumed,
            "the base's budget": budget,
            "policy": settings.policy,
            "boot": f"{settings.boot_seconds:g} seconds, waited for and paid",
            **{
                f"commitment {one.name}": f"{price_in_dollars(one.usd_per_hour)} per hour, used or not"
                for one in settings.commitments.fixed
            },
            "spot, where asked for": f"{terms.price_fraction:.0%} of the price on demand, taken back after "
            f"{terms.mean_interruption_hours:g} hours on average",
            **{
                f"price of {machine.name}": (
                    f"{price_in_dollars(machine.usd_per_hour)} per hour, {machine.gpus} x {kind}"
                )
                for kind, machine in machines.items()
            },
        },
    )
