"""A base and changes to it, side by side: money, prices, quotas, load, larger classes; each planned anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.jobs_file import JobsFile
from boa_daemon.inputs.problem_file import ProblemFile, with_budget
from boa_daemon.planning.calendar_plan import calendar_budget, calendar_plan, read_quota
from boa_daemon.planning.curve import Curve
from boa_daemon.units import parse_budget
from policies.errors import InfeasibleBudget
from policies.model import JobClass

KEYS = ("budget", "prices", "load", "quota", "class")
_HINT = "Write budget=60000/month, prices=+10%, load=x1.5, quota=a100:4 or class=NAME:x2; commas join several"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is planned: a budget as it is typed, and factors on what the files say."""

    name: str
    budget: str
    prices: float = 1.0
    load: float = 1.0
    quota: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)

    def applied(self, file: ProblemFile) -> ProblemFile:
        """Return the classes and prices of this scenario."""
        problem = file.problem
        return replace(
            file,
            problem=replace(
                problem,
                gpu_types=tuple(
                    replace(gpu, usd_per_gpu_hour=gpu.usd_per_gpu_hour * self.prices)
                    for gpu in problem.gpu_types
                ),
                classes=tuple(self._sized(job_class) for job_class in problem.classes),
            ),
            instance_types={
                name: replace(machine, usd_per_hour=machine.usd_per_hour * self.prices)
                for name, machine in file.instance_types.items()
            },
        )

    def _sized(self, job_class: JobClass) -> JobClass:
        """Return a class with its size and its rate in this scenario."""
        factor = self.sizes.get(job_class.name, 1.0)
        phases = tuple(replace(p, size_gpu_hours=p.size_gpu_hours * factor) for p in job_class.phases)
        return replace(job_class, phases=phases, arrivals_per_hour=job_class.arrivals_per_hour * self.load)


def changed(base: Scenario, text: str, file: ProblemFile) -> Scenario:
    """Return the base with changes such as ``budget=60000/month,prices=+10%``.

    Raises:
        InputError: when a change means nothing.
    """
    found = replace(base, name=text)
    for part in text.split(","):
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in KEYS or not value:
            hint = did_you_mean(key, KEYS) if value else ""
            raise InputError(f"--change {part.strip()!r} is no change that BOA knows", hint=hint or _HINT)
        if key == "budget":
            found = replace(found, budget=value)
        elif key == "prices":
            found = replace(found, prices=found.prices * _factor(value, part))
        elif key == "load":
            found = replace(found, load=found.load * _factor(value, part))
        else:
            name, _, number = (word.strip() for word in value.rpartition(":"))
            if key == "quota":
                more = read_quota([f"{name}={number}"], file.instance_types)
                found = replace(found, quota={**found.quota, **more})
                continue
            known = [job_class.name for job_class in file.problem.classes]
            if name not in known:
                hint = did_you_mean(name, known) or f"Known: {', '.join(known)}"
                raise InputError(f"--change {part.strip()!r}: unknown class {name!r}", hint=hint)
            found = replace(found, sizes={**found.sizes, name: _factor(number, part)})
    return found


def _factor(text: str, part: str) -> float:
    """Return the factor that ``x1.5``, ``+10%`` or ``-20%`` says."""
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
        raise InputError(f"--change {part.strip()!r}: {text!r} is no factor", hint="Write x1.5, +10% or -20%")
    return factor


def planned(
    file: ProblemFile, scenario: Scenario, listed: JobsFile | None, boot_hours: float
) -> dict[str, Any]:
    """Return one row: the plan of a stream, or of a list where there is one."""
    now = scenario.applied(file)
    return _stream(now, scenario) if listed is None else _list(now, scenario, listed, boot_hours)


def compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows, the base first, each with what differs from it."""

    def more(row: dict[str, Any], key: str) -> float | None:
        is_known = row[key] is not None and rows[0][key] is not None
        return row[key] - rows[0][key] if is_known else None

    return [row | {f"{key}_more": more(row, key) for key in ("mean_jct_hours", "spend")} for row in rows]


def _stream(file: ProblemFile, scenario: Scenario) -> dict[str, Any]:
    """Return the plan of a stream in one row; `spend` is per hour."""
    budget = parse_budget(scenario.budget)
    curve = Curve.of(with_budget(file, budget).problem, "integer-mixed")
    row = {"scenario": scenario.name, "budget": scenario.budget, "cheapest_feasible_spend": curve.cheapest}
    try:
        solution = curve.solution_at(budget.amount)
    except InfeasibleBudget:
        return row | {"status": "infeasible", "mean_jct_hours": None, "spend": None}
    spend = solution.mean_spend
    return row | {"status": "optimal", "mean_jct_hours": solution.mean_jct_hours, "spend": spend}


def _list(file: ProblemFile, scenario: Scenario, listed: JobsFile, boot_hours: float) -> dict[str, Any]:
    """Return the calendar of a list in one row; `spend` is in all."""
    plan = calendar_plan(
        file,
        [replace(job, scale=job.scale * scenario.load) for job in listed.jobs],
        budget=calendar_budget(scenario.budget),
        quota=scenario.quota,
        start=listed.start,
        boot_hours=boot_hours,
    )
    document = plan.to_document()
    keys = ("status", "mean_jct_hours", "spend", "all_done_hours", "all_done_at", "left_out")
    row = {"scenario": scenario.name, "budget": scenario.budget}
    missed = [job["job_id"] for job in document["missed"]]
    return row | {key: document[key] for key in keys} | {"missed": missed}
