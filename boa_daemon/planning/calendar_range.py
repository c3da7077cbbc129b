"""Low and high variants of a calendar: the same jobs, order and machines with other hours and spot prices.

*Low*: every job is faster by its spread, no spot node is interrupted, and spot is cheap. *High*: every job is
slower, and jobs on spot take the hours that 95 % of runs do not exceed, at a high price. Limits of money and
machines hold in both, so jobs wait once a month's money is spent. All jobs are fast or slow together, so the
range is wider than independent variation would make it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from boa_daemon.planning.spot_list import SpotList
from policies.optimum.calendar import (
    Calendar,
    CalendarEntry,
    CalendarJob,
    CalendarLimits,
    InstanceOption,
    calendar_of_order,
)
from policies.optimum.calendar_search import CalendarSearchResult

SPREAD = 0.1
"""Default fraction by which a job's hours may differ; 90 % of jobs lie within it."""
LEAST = 0.01
"""No job takes less than this fraction of its hours."""


@dataclass(frozen=True, kw_only=True)
class CalendarRange:
    """The low calendar (fast jobs, calm spot market) and the high one (slow jobs, interruptions)."""

    low: Calendar
    high: Calendar
    spread: Mapping[str, float]

    @property
    def at_risk(self) -> tuple[CalendarJob, ...]:
        """Jobs with a date that the high calendar misses."""
        return self.high.missed

    @cached_property
    def by_job(self) -> Mapping[str, tuple[CalendarEntry | None, CalendarEntry | None]]:
        """The entries of each job, low and high; None where it is left out."""
        low, high = ({e.job.job.id: e for e in one.entries} for one in (self.low, self.high))
        return {name: (low.get(name), high.get(name)) for name in {**low, **high}}


def calendar_range(
    found: CalendarSearchResult,
    limits: CalendarLimits,
    spread: Mapping[str, float],
    spot: SpotList | None = None,
) -> CalendarRange:
    """Return the range of a calendar; `spread` is by class."""
    chosen = {entry.job.job.id: entry.option for entry in found.calendar.entries}
    order = [job for job in found.order if job.job.id in chosen]

    def again(changed: Callable[[CalendarJob, InstanceOption], InstanceOption]) -> Calendar:
        jobs = [replace(job, options=(changed(job, chosen[job.job.id]),)) for job in order]
        return calendar_of_order(jobs, limits, 0.0)

    def low(job: CalendarJob, option: InstanceOption) -> InstanceOption:
        calm, price = option.hours, 1.0
        if spot is not None and option.kind.is_spot:
            calm = spot.calm_hours[job.job.id, option.gpu_type, option.gpus]
            price = spot.price_range[0]
        return _taking(option, calm * max(1.0 - spread[job.job.class_name], LEAST), price)

    def high(job: CalendarJob, option: InstanceOption) -> InstanceOption:
        price = spot.price_range[1] if spot is not None and option.kind.is_spot else 1.0
        slow = max(option.hours, option.sure_hours)
        return _taking(option, slow * (1.0 + spread[job.job.class_name]), price)

    return CalendarRange(low=again(low), high=again(high), spread=spread)


def _taking(option: InstanceOption, hours: float, price: float) -> InstanceOption:
    usd = option.usd / option.hours * hours * price
    return replace(option, hours=hours, usd=usd, sure_hours=0.0)


def range_document(between: CalendarRange, at: Callable[[float], str | None]) -> dict[str, Any]:
    """Return the range as JSON; `at` converts hours to an instant."""

    def one(calendar: Calendar) -> dict[str, Any]:
        return {
            "all_done_hours": calendar.all_done,
            "all_done_at": at(calendar.all_done),
            "spend": calendar.spend,
            "missed": [job.job.id for job in calendar.missed],
            "left_out": [job.job.id for job in calendar.left_out],
        }

    return {
        "spread": dict(between.spread),
        "low": one(between.low),
        "high": one(between.high),
    }


def job_range(
    between: CalendarRange, spot: SpotList | None, entry: CalendarEntry, at: Callable[[float], str | None]
) -> dict[str, Any]:
    """Return the keys of a job's row for its market and its range."""
    low, high = between.by_job[entry.job.job.id]
    per_hour = spot.per_node_hour * entry.option.instances if spot and entry.option.kind.is_spot else 0.0
    ends = [entry.ends, *(one.ends for one in (low, high) if one is not None)]
    spends = [entry.option.usd, *(one.option.usd for one in (low, high) if one is not None)]
    latest = None if high is None else max(ends)
    return {
        "market": entry.option.kind.market,
        "interruptions": per_hour * entry.option.hours,
        "end_low_hours": min(ends),
        "end_high_hours": latest,
        "end_low_at": at(min(ends)),
        "end_high_at": None if latest is None else at(latest),
        "spend_low": min(spends),
        "spend_high": max(spends),
        "is_at_risk": high is None or high.is_late,
    }


def range_said(between: CalendarRange) -> str:
    """Return a sentence part on what low and high mean."""
    wide = sorted(set(between.spread.values()))
    parts = f"{wide[0]:.0%}" if len(wide) == 1 else f"{wide[0]:.0%} to {wide[-1]:.0%}"
    return (
        f"every job faster, or slower, by {parts}; spot calm and cheap, or expensive and interrupted "
        "as often as in the worst of twenty runs"
    )
