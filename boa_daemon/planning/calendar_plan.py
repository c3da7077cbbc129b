"""The calendar of a list with dates: when each job runs, which are late, and what would meet their dates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from types import MappingProxyType
from typing import Any

import numpy as np

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.calendar_range import (
    SPREAD,
    CalendarRange,
    calendar_range,
    job_range,
    range_document,
)
from boa_daemon.planning.measured_range import RangeEdge, range_edges
from boa_daemon.planning.spot_list import SpotList, quota_of_both, spot_sentence
from boa_daemon.planning.unused_types import UnusedType, unused_by_calendar
from boa_daemon.sim.spot_market import with_spot
from boa_daemon.sim.world_settings import WorldSettings
from boa_daemon.units import (
    HOURS_PER_DAY,
    HOURS_PER_MONTH,
    HOURS_PER_WEEK,
    HOURS_PER_YEAR,
    counted,
    format_hours,
    parse_budget,
    parse_dollars,
    per_of,
)
from policies.model import InstanceType
from policies.money_text import in_dollars
from policies.optimum.calendar import CalendarEntry, CalendarJob, CalendarLimits, calendar_jobs, per_period
from policies.optimum.calendar_search import CalendarSearchResult, DeadlineFix, deadline_fixes, search
from policies.optimum.job_list import ListedJob
from policies.optimum.working_time import ALWAYS, WorkingTime

_NAMED = 10
"""Most jobs that a sentence names."""
PERIODS = {
    "day": HOURS_PER_DAY,
    "week": HOURS_PER_WEEK,
    "month": HOURS_PER_MONTH,
    "year": HOURS_PER_YEAR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarBudget:
    """A budget of `amount` dollars per `per`: hour, day, week, month or year; "all" is a total."""

    amount: float
    per: str

    def limits(self, quota: Mapping[str, int]) -> CalendarLimits:
        """Return the limits of a calendar under this budget and a quota."""
        if self.per == "hour":
            return CalendarLimits(usd_per_hour=self.amount, instances=quota)
        if self.per == "all":
            return CalendarLimits(usd_in_all=self.amount, instances=quota)
        return CalendarLimits(usd_per_period=self.amount, period_hours=PERIODS[self.per], instances=quota)

    def said(self, factor: float = 1.0) -> str:
        """Return the budget times `factor` as text."""
        period = {"all": "in all", "hour": "an hour"}.get(self.per, f"a {self.per}")
        return f"{in_dollars(self.amount * factor)} {period}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarPlan:
    """The calendar found, with its limits and the change that would save each late job."""

    found: CalendarSearchResult
    budget: CalendarBudget | None
    limits: CalendarLimits
    machines: Mapping[str, InstanceType]
    start: datetime | None
    changes: Mapping[str, DeadlineFix]
    between: CalendarRange
    spot: SpotList | None = None
    edges: tuple[RangeEdge, ...] = ()

    @property
    def entries(self) -> tuple[CalendarEntry, ...]:
        """Entries in the order in which they start."""
        return tuple(sorted(self.found.calendar.entries, key=lambda e: (e.starts, e.job.job.id)))

    @property
    def unused(self) -> tuple[UnusedType, ...]:
        """GPU types that no job is on, and why."""
        entries = self.found.calendar.entries
        return unused_by_calendar(
            self.machines, self.found.order, {entry.option.gpu_type for entry in entries}
        )

    @property
    def is_met(self) -> bool:
        """Whether every job has a place and no deadline is missed."""
        return not self.found.calendar.missed and not self.found.calendar.left_out

    def at(self, hours: float) -> str | None:
        """Return the instant `hours` after the begin; None if the list has no dates."""
        if self.start is None or not np.isfinite(hours):
            return None
        return (self.start + timedelta(hours=hours)).isoformat(timespec="minutes")

    def when(self, hours: float) -> str:
        """Return a time as text: a date, or hours after the begin."""
        if self.start is None:
            return f"hour {hours:,.{_digits(hours)}f}"
        return f"{self.start + timedelta(hours=hours):%d %b %H:%M}"

    def date_for(self, hours: float) -> str:
        """Return the earliest date, as exact as `when` shows it, that an end at `hours` meets."""
        step = 1.0 / 60.0 if self.start is not None else 10.0 ** -_digits(hours)
        return self.when(ceil(hours / step * (1.0 - 1e-9)) * step)

    def to_document(self) -> dict[str, Any]:
        """Return the calendar as JSON."""
        found, entries = self.found, self.entries
        weight = sum(e.job.job.weight for e in entries)
        waits = [e.ends - e.job.job.submit_hours for e in entries]
        is_whole = bool(entries) and not found.calendar.left_out
        return {
            "status": "met" if self.is_met else "missed",
            "budget_unit": None
            if self.budget is None
            else f"usd_per_{self.budget.per}".replace("usd_per_all", "usd"),
            "budget": None if self.budget is None else self.budget.amount,
            "start_at": self.at(0.0),
            "all_done_hours": found.calendar.all_done,
            "all_done_at": self.at(found.calendar.all_done),
            "spend": found.calendar.spend,
            "mean_jct_hours": float(np.mean(waits)) if entries else None,
            "weighted_mean_jct_hours": found.calendar.weighted_hours / weight if entries else None,
            "dual_bound_hours": found.bound_weighted_hours / weight if is_whole else None,
            "gap": found.gap,
            "gap_with_dates": found.gap_with_dates,
            "least_missed_deadlines": found.least_missed,
            "periods": self._periods(),
            "range": range_document(self.between, self.at),
            "jobs": [
                self._entry_document(entry) | job_range(self.between, self.spot, entry, self.at)
                for entry in entries
            ],
            "missed": [self._missed_document(job) for job in found.calendar.missed],
            "left_out": [job.job.id for job in found.calendar.left_out],
            "unused": [one.to_document() for one in self.unused],
            "edges": [one.to_document() for one in self.edges],
        }

    def _periods(self) -> list[dict[str, Any]]:
        """Return the money spent and not spent in each period of the budget."""
        if self.budget is None or self.budget.per not in PERIODS:
            return []
        hours = PERIODS[self.budget.per]
        return [
            {
                "start_hours": number * hours,
                "start_at": self.at(number * hours),
                "spend": float(usd),
                "not_spent": max(0.0, self.budget.amount - float(usd)),
            }
            for number, usd in enumerate(per_period(self.found.calendar, hours))
        ]

    def _entry_document(self, entry: CalendarEntry) -> dict[str, Any]:
        job, option = entry.job, entry.option
        return {
            "job_id": job.job.id,
            "class_name": job.job.class_name,
            "gpu_type": option.gpu_type,
            "instance_type": self.machines[option.gpu_type].name,
            "instances": option.instances,
            "gpus": option.gpus,
            "submit_hours": job.job.submit_hours,
            "start_hours": entry.starts,
            "end_hours": entry.ends,
            "due_hours": job.due_hours if np.isfinite(job.due_hours) else None,
            "start_at": self.at(entry.starts),
            "end_at": self.at(entry.ends),
            "due_at": self.at(job.due_hours),
            "spend": option.usd,
            "is_late": entry.is_late,
        }

    def _missed_document(self, job: CalendarJob) -> dict[str, Any]:
        """Return one missed deadline, with the cheapest change found that would meet it."""
        change = self.changes[job.job.id]
        ends = {e.job.job.id: e.ends for e in self.found.calendar.entries}.get(job.job.id)
        return {
            "job_id": job.job.id,
            "due_hours": job.due_hours,
            "end_hours": ends,
            "late_hours": None if ends is None else ends - job.due_hours,
            "change": {
                "kind": change.kind,
                "budget": None
                if change.kind != "budget" or self.budget is None
                else change.factor * self.budget.amount,
                "gpu_type": change.gpu_type or None,
                "instances": change.instances or None,
                "late_instead": list(change.misses),
                "end_hours": change.ends if np.isfinite(change.ends) else None,
                "extra_spend": change.extra_usd if change.kind != "date" else None,
            },
            "message": self.said(change),
        }

    def said(self, change: DeadlineFix) -> str:
        """Return a change as text."""
        more = f" ({in_dollars(change.extra_usd)} more is spent)" if change.extra_usd >= 0.01 else ""
        if change.kind == "budget" and self.budget is not None:
            return f"a budget of {self.budget.said(change.factor)}{more}"
        if change.kind == "quota":
            name = self.machines[change.gpu_type].name
            return f"a quota of {change.instances} x {name}{more}"
        if change.kind == "always":
            return f"no hours off{more}"
        if change.kind in ("first", "on-demand"):
            others = ", ".join(change.misses)
            instead = f"; then late: {others}" if others else "; no other job is late then"
            return f"{'put it first' if change.kind == 'first' else 'on demand, and first'}{more}{instead}"
        if np.isfinite(change.ends):
            return f"another date: {self.date_for(change.ends)}"
        return "no change found: no width fits the budget and the quota"

    @property
    def verdict(self) -> list[str]:
        """What is not well, in sentences: jobs without a place, late jobs and by how much, jobs at risk."""
        calendar, said = self.found.calendar, []
        if calendar.left_out:
            names = _few([job.job.id for job in calendar.left_out])
            said.append(f"No place within the budget and the quota for: {names}.")
        late = sorted((e for e in calendar.entries if e.is_late), key=lambda e: e.job.due_hours - e.ends)
        if late:
            due = sum(np.isfinite(e.job.due_hours) for e in calendar.entries)
            names = _few([f"{e.job.job.id} by {format_hours(e.ends - e.job.due_hours)}" for e in late])
            said.append(f"{len(late)} of {counted(due, 'deadline')} missed: {names}.")
        if risky := [job.job.id for job in self.between.at_risk if job.job.id not in self.changes]:
            said.append(f"Met only just, and late if jobs run slowly: {_few(risky)}.")
        return said

    def sentences(self) -> list[str]:
        """Return the answer in sentences."""
        found, calendar = self.found, self.found.calendar
        due = sum(np.isfinite(e.job.due_hours) for e in calendar.entries) + sum(
            np.isfinite(job.due_hours) for job in calendar.left_out
        )
        late = len(calendar.missed)
        low, high = self.between.low, self.between.high
        said = [
            f"All done by {self.when(calendar.all_done)}, for {in_dollars(calendar.spend)}.",
            f"From low to high: {self.when(low.all_done)} to {self.when(high.all_done)}, "
            f"{in_dollars(low.spend)} to {in_dollars(high.spend)}.",
        ]
        if due:
            least = f"; no calendar meets more than {due - found.least_missed}" if found.least_missed else ""
            said.append(f"{due - late} of {counted(due, 'deadline')} met{least}.")
        if risky := [job.job.id for job in self.between.at_risk if job.job.id not in self.changes]:
            said.append(f"Met only just, and late if jobs run slowly: {_few(risky)}.")
        if calendar.left_out:
            names = _few([job.job.id for job in calendar.left_out])
            said.append(f"No place within the budget and the quota for: {names}.")
        elif found.gap is not None:
            which = " that keeps these dates" if due else ""
            gap = found.gap_with_dates or 0.0
            best = f"At best, another calendar{which} would cut the mean JCT by {gap:.0%}."
            said.append(best if gap >= 0.005 else f"No other calendar{which} has a shorter mean JCT.")
        if self.spot is not None:
            said.append(spot_sentence(self.spot, calendar))
        if self.budget is not None:
            said += [
                f"{(self.budget.per).capitalize()} {number}: {in_dollars(part['spend'])} spent, "
                f"{in_dollars(part['not_spent'])} not spent."
                for number, part in enumerate(self._periods()[:12], start=1)
            ]
        said += [one.sentence for one in self.unused]
        return said + [one.sentence for one in self.edges]


def _few(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def calendar_plan(
    file: ProblemFile,
    jobs: Sequence[ListedJob],
    *,
    budget: CalendarBudget | None,
    quota: Mapping[str, int],
    start: datetime | None,
    boot_hours: float,
    working: WorkingTime = ALWAYS,
    known: CalendarPlan | None = None,
    windows: Mapping[str, tuple[float, float]] = MappingProxyType({}),
    market: WorldSettings | None = None,
    spread: float | None = None,
) -> CalendarPlan:
    """Return the best calendar found for a list, with changes that would meet each missed deadline.

    The calendar is no worse than a `known` one of the same list and prices that fits these limits. With a
    `market`, jobs may run on spot as well. `spread` is the fraction by which hours may differ, for classes
    whose file gives none.
    """
    file = file if market is None else with_spot(file, market)
    machines = file.instance_types
    quota = quota if market is None else quota_of_both(quota, machines)
    limits = CalendarLimits(instances=quota) if budget is None else budget.limits(quota)
    limits = replace(limits, working=working, windows=windows)
    prices = {name: machine.usd_per_hour for name, machine in machines.items()}
    before = known.found if known is not None and limits.allows(known.limits) else None
    spot = None if market is None else SpotList.of(file, jobs, market, boot_hours=boot_hours)
    listed = calendar_jobs(file.problem, jobs, machines, boot_hours=boot_hours) if spot is None else spot.jobs
    found = search(listed, limits, prices, known=before)
    wide = {one.name: SPREAD if spread is None else spread for one in file.problem.classes}
    return CalendarPlan(
        between=calendar_range(found, limits, {**wide, **file.spreads}, spot),
        spot=spot,
        edges=range_edges(
            file, ((e.job.job.class_name, e.option.gpu_type, e.option.gpus) for e in found.calendar.entries)
        ),
        found=found,
        budget=budget,
        limits=limits,
        machines=machines,
        start=start,
        changes=deadline_fixes(found, limits),
    )


def is_rate(text: str) -> bool:
    """Return whether a budget is money per time."""
    return "/" in text


def calendar_budget(text: str) -> CalendarBudget:
    """Return the budget of a calendar: ``40/h``, ``900/day``, ``40000/month``, or a total such as ``1500``.

    Raises:
        InputError: when the text is none of these.
    """
    if not is_rate(text):
        if text.strip().lower().startswith("gpus:"):
            hint = "Give dollars, and instances by --quota TYPE=4"
            raise InputError(f"--budget {text!r}: the budget of a calendar is in dollars", hint=hint)
        return CalendarBudget(amount=parse_dollars(text), per="all")
    per_hour, per = parse_budget(text).amount, per_of(text)
    if per.name in PERIODS:
        return CalendarBudget(amount=per_hour * per.hours, per=per.name)
    return CalendarBudget(amount=per_hour, per="hour")


def read_quota(texts: Sequence[str], machines: Mapping[str, InstanceType]) -> dict[str, int]:
    """Return instances by GPU type from texts such as ``a100=4``; an instance type's name works too.

    Raises:
        InputError: when a name is unknown or a number is not a whole number.
    """
    names = {machine.name: name for name, machine in machines.items()} | {name: name for name in machines}
    found = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.replace(":", "=", 1).partition("="))
        if name not in names:
            hint = did_you_mean(name, list(names)) or f"Known: {', '.join(names)}"
            raise InputError(f"--quota {text!r}: unknown type {name!r}", hint=hint)
        if not (number.isascii() and number.isdigit()):
            raise InputError(f"--quota {text!r} is no number of instances", hint=f"Write --quota {name}=4")
        found[names[name]] = int(number)
    return found


def _digits(hours: float) -> int:
    """Return the digits of hours after the point, by which dates minutes apart differ."""
    return 2 if hours < 10.0 else 1
