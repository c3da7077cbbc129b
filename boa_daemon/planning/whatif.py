"""Compare a base with changes of money, prices, market, commitments, quotas, load or class sizes.

A stream or a list is planned anew for each change; `boa_daemon.planning.scenario_runs` simulates traces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.jobs_file import JobsFile
from boa_daemon.inputs.off_hours import working_time
from boa_daemon.inputs.problem_file import ProblemFile, with_budget
from boa_daemon.planning.calendar_plan import CalendarPlan, calendar_budget, calendar_plan, read_quota
from boa_daemon.planning.curve import Curve
from boa_daemon.planning.paid_commitments import PaidCommitments
from boa_daemon.planning.plan_documents import worth_document
from boa_daemon.planning.second_limit import Limits
from boa_daemon.sim.spot_market import on_both_markets
from boa_daemon.sim.world_settings import Checkpoints, Spot, WorldSettings
from boa_daemon.units import parse_budget
from policies.errors import InfeasibleBudget
from policies.model import InstanceType, JobClass, Problem

BaseKind: TypeAlias = Literal["stream", "list", "trace"]
"""What is compared: plans of a stream, calendars of a list, or simulations of a trace."""
KEYS = ("budget", "prices", "load", "quota", "nodes", "class", "market", "commit")
MARKETS = ("on-demand", "spot")
MOST_NODES = 100_000
_HINT = (
    "Write budget=60000/month, prices=+10%, load=x1.5, quota=a100:4, nodes=8, class=NAME:x2, market=spot or "
    "commit=FILE; commas combine several"
)
_NOT_FOR: Mapping[str, tuple[BaseKind, str, str]] = {
    "quota": ("stream", "a quota is for a list or a trace", "Add --jobs FILE or --trace FILE"),
    "nodes": ("list", "a limit on nodes is for a stream or a trace", "Change quota=TYPE:N of a list"),
    "commit": ("list", "commit is for a stream or a trace", "A list ends long before a commitment does"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What to plan or simulate: a budget as typed, and factors on the files' figures.

    `spot` is the spot market, None for on demand only; `commit` is a file of commitments; `max_nodes` are the
    most nodes at once, None for the base's own.
    """

    name: str
    budget: str
    prices: float = 1.0
    load: float = 1.0
    quota: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    spot: Spot | None = None
    commit: Path | None = None
    max_nodes: int | None = None

    def problem(self, base: Problem) -> Problem:
        """Return the classes and prices of this scenario."""
        return replace(
            base,
            gpu_types=tuple(
                replace(gpu, usd_per_gpu_hour=gpu.usd_per_gpu_hour * self.prices) for gpu in base.gpu_types
            ),
            classes=tuple(self._sized(job_class) for job_class in base.classes),
        )

    def machines(self, base: Mapping[str, InstanceType]) -> dict[str, InstanceType]:
        """Return the machines at the prices of this scenario."""
        return {
            name: replace(machine, usd_per_hour=machine.usd_per_hour * self.prices)
            for name, machine in base.items()
        }

    def paid(self, machines: Mapping[str, InstanceType]) -> PaidCommitments | None:
        """Return the commitments in force today; None without a file.

        Raises:
            InputError: when the file is wrong.
        """
        if self.commit is None:
            return None
        return PaidCommitments.read(self.commit, tuple(machines.values()), datetime.now(UTC).date())

    def _sized(self, job_class: JobClass) -> JobClass:
        """Return a class, or a variant of one, with the size and rate of this scenario."""
        factor = self.sizes.get(job_class.name.partition("[")[0], 1.0)
        phases = tuple(replace(p, size_gpu_hours=p.size_gpu_hours * factor) for p in job_class.phases)
        return replace(job_class, phases=phases, arrivals_per_hour=job_class.arrivals_per_hour * self.load)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioBase:
    """What changes apply to: the base scenario, its kind, classes, machines, and the terms of market=spot."""

    scenario: Scenario
    kind: BaseKind
    problem: Problem
    machines: Mapping[str, InstanceType]
    spot: Spot = field(default_factory=Spot)

    def changed(self, text: str) -> Scenario:
        """Return the base with changes such as ``budget=60000/month,prices=+10%``.

        Raises:
            InputError: when a change is not valid.
        """
        found = replace(self.scenario, name=text)
        for part in text.split(","):
            key, _, value = (word.strip() for word in part.partition("="))
            if key not in KEYS or not value:
                hint = did_you_mean(key, KEYS) if value else ""
                raise InputError(f"--change {part.strip()!r} is no change that BOA knows", hint=hint or _HINT)
            kind, problem, hint = _NOT_FOR.get(key, ("", "", ""))
            if kind == self.kind:
                raise InputError(problem, hint=hint)
            found = self._with(found, key, value, part.strip())
        return found

    def _with(self, found: Scenario, key: str, value: str, part: str) -> Scenario:
        """Return a scenario with one more change."""
        if key == "budget":
            return replace(found, budget=value)
        if key == "nodes":
            return replace(found, max_nodes=_count(value, part))
        if key == "commit":
            return replace(found, commit=Path(value))
        if key == "prices":
            return replace(found, prices=found.prices * _factor(value, part))
        if key == "load":
            return replace(found, load=found.load * _factor(value, part))
        if key == "market":
            if value not in MARKETS:
                hint = did_you_mean(value, MARKETS) or f"Known: {', '.join(MARKETS)}"
                raise InputError(f"--change {part!r}: unknown market {value!r}", hint=hint)
            return replace(found, spot=self.spot if value == "spot" else None)
        name, _, number = (word.strip() for word in value.rpartition(":"))
        if key == "quota":
            return replace(found, quota={**found.quota, **read_quota([f"{name}={number}"], self.machines)})
        known = sorted({job_class.name.partition("[")[0] for job_class in self.problem.classes})
        if name not in known:
            hint = did_you_mean(name, known) or f"Known: {', '.join(known)}"
            raise InputError(f"--change {part!r}: unknown class {name!r}", hint=hint)
        return replace(found, sizes={**found.sizes, name: _factor(number, part)})


def _count(text: str, part: str) -> int:
    """Return a number of nodes."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST_NODES:
        raise InputError(f"--change {part!r}: {text!r} is no number of nodes", hint="Write nodes=8")
    return int(text)


def _factor(text: str, part: str) -> float:
    """Return the factor of a text such as ``x1.5``, ``+10%`` or ``-20%``."""
    try:
        if text.startswith("x"):
            factor = float(text[1:])
        elif text.endswith("%") and text[0] in "+-":
            factor = 1.0 + float(text[:-1]) / 100.0
        else:
            factor = -1.0
    except ValueError:
        factor = -1.0
    if not 1e-6 <= factor <= 1e6:
        raise InputError(f"--change {part!r}: {text!r} is no factor", hint="Write x1.5, +10% or -20%")
    return factor


def plan_scenario(
    file: ProblemFile, scenario: Scenario, listed: JobsFile | None, boot_hours: float, base: Scenario
) -> dict[str, Any]:
    """Return one row: the plan of the stream, or of the list if one is given.

    A list with more money or quota than the base is no worse than the base.
    """
    machines = scenario.machines(file.instance_types)
    now = replace(file, problem=scenario.problem(file.problem), instance_types=machines)
    if listed is None:
        if scenario.spot is not None:
            now = on_both_markets(now, WorldSettings(spot=scenario.spot))
        return _stream(now, scenario)
    is_alike = (scenario.prices, scenario.load, scenario.sizes, scenario.spot) == (
        *(base.prices, base.load, base.sizes, base.spot),
    )
    before = _calendar(now, base, listed, boot_hours) if is_alike and scenario != base else None
    return _list(scenario, _calendar(now, scenario, listed, boot_hours, before))


def with_differences(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows, base first, each with its differences from the base."""

    def more(row: dict[str, Any], key: str) -> float | None:
        is_known = row[key] is not None and rows[0][key] is not None
        return row[key] - rows[0][key] if is_known else None

    return [row | {f"{key}_more": more(row, key) for key in ("mean_jct_hours", "spend")} for row in rows]


def _stream(file: ProblemFile, scenario: Scenario) -> dict[str, Any]:
    """Return the plan of a stream as one row; `spend` is dollars per hour."""
    budget = parse_budget(scenario.budget)
    problem, paid = with_budget(file, budget).problem, scenario.paid(file.instance_types)
    curve = Curve.of(problem, "integer-mixed")
    row = {
        "scenario": scenario.name,
        "budget": scenario.budget,
        "cheapest_feasible_spend": curve.cheapest,
        "largest_useful_spend": curve.largest_useful,
        **dict.fromkeys(("knee", "beyond_knee", "not_spent", "second_limit")),
    }
    try:
        amount = budget.amount if paid is None else paid.planning_budget(problem, budget.amount)
        solution = curve.solution_at(amount)
    except InfeasibleBudget as error:
        least = {"cheapest_feasible_spend": error.least_spend}
        return row | least | {"status": "infeasible", "mean_jct_hours": None, "spend": None}
    limits = Limits(nodes=scenario.max_nodes, nodes_setting="nodes=", machines=file.instance_types)
    worth = worth_document(problem, amount, limits)
    spend = solution.mean_spend if paid is None else paid.bill(paid.load_of(problem, solution)).total
    row |= worth | {"status": "optimal", "mean_jct_hours": solution.mean_jct_hours, "spend": spend}
    return row if worth["second_limit"] is None else row | _under(worth["second_limit"])


def _under(limit: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a limit beside the budget leaves of a plan."""
    hours = limit["mean_jct_hours"]
    status = "infeasible" if hours is None else "optimal"
    return {"status": status, "mean_jct_hours": hours, "spend": limit["mean_spend"]}


def _calendar(
    file: ProblemFile,
    scenario: Scenario,
    listed: JobsFile,
    boot_hours: float,
    known: CalendarPlan | None = None,
) -> CalendarPlan:
    return calendar_plan(
        file,
        [replace(job, scale=job.scale * scenario.load) for job in listed.jobs],
        budget=calendar_budget(scenario.budget),
        quota=scenario.quota,
        start=listed.start,
        boot_hours=boot_hours,
        working=working_time(listed.off, listed.start, boot_hours=boot_hours),
        known=known,
        market=None
        if scenario.spot is None
        else WorldSettings(spot=scenario.spot, checkpoints=Checkpoints()),
    )


def _list(scenario: Scenario, plan: CalendarPlan) -> dict[str, Any]:
    """Return the calendar of a list as one row; `spend` is total dollars."""
    document = plan.to_document()
    keys = ("status", "mean_jct_hours", "spend", "all_done_hours", "all_done_at", "left_out")
    row = {"scenario": scenario.name, "budget": scenario.budget}
    missed = [job["job_id"] for job in document["missed"]]
    return row | {key: document[key] for key in keys} | {"missed": missed}


def why_later(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return why jobs of a list may wait longer with more money: meeting dates has priority over waiting."""
    found, base = [], rows[0]
    for row in rows[1:]:
        kept = [job for job in base["missed"] if job not in row["missed"]]
        later = row["all_done_hours"] > base["all_done_hours"]
        if kept and (later or (row["mean_jct_hours_more"] or 0.0) > 0.0):
            others = "the list is done later" if later else "others wait longer on average"
            found.append(
                f"{row['scenario']} keeps the dates of {', '.join(kept)}: dates come before waiting, "
                f"so {others}."
            )
    return found
