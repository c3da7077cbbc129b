"""Search for the best calendar, and for each missed deadline the change that would save it.

The first candidates are the orders by date, submission and size (EDF, FIFO, SRPT), each with the fastest end
and with the cheapest width, so the answer is never worse than any of these. Next come orders by weight per
dollar under several prices of money. Then come local moves: late jobs to the end, a late job to the front,
two jobs exchanged, another price for one job. The number of candidates depends only on the size of the list,
so the same list gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from policies.optimum.calendar import Calendar, CalendarJob, CalendarLimits, calendar_of_order
from policies.optimum.calendar_bound import bound_weighted_hours, least_missed
from policies.optimum.calendar_prices import PricedBound, bound_at_prices
from policies.optimum.working_time import ALWAYS

WORK = 150_000
"""Options placed in one search, over all candidates."""
LEAST_TRIES, MOST_TRIES = 24, 400
SMALL = 150
"""Lists up to this length get the fine grid of changes."""
FINE, COARSE = (1.02, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5, 1.75, 2.0, 3.0), (1.2, 2.0)
"""Factors on the budget that are tried to save deadlines."""
CHEAPEST = 1e9
"""A price of money (hours per dollar) so high that every job takes its cheapest option."""

RULES: dict[str, Callable[[CalendarJob], tuple[float, ...]]] = {
    "edf": lambda job: (job.due_hours, job.job.submit_hours),
    "fifo": lambda job: (job.job.submit_hours,),
    "srpt": lambda job: (job.least_hours, job.job.submit_hours),
}
"""Sort keys of the simple orders that people use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarSearchResult:
    """The best calendar found, the order and prices that gave it, and bounds that hold for any calendar."""

    calendar: Calendar
    order: tuple[CalendarJob, ...]
    hours_per_usd: float
    own: Mapping[str, float]
    bound_weighted_hours: float
    least_missed: int
    bound_with_dates: float = 0.0

    @property
    def gap(self) -> float | None:
        """The largest share of weighted hours that another calendar could save; None if jobs are left out."""
        return self._gap(self.bound_weighted_hours)

    @property
    def gap_with_dates(self) -> float | None:
        """The same for calendars that meet all deadlines that this one meets."""
        return self._gap(max(self.bound_with_dates, self.bound_weighted_hours))

    def _gap(self, bound: float) -> float | None:
        if self.calendar.left_out:
            return None
        return max(0.0, 1.0 - bound / self.calendar.weighted_hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineFix:
    """One change that saves a deadline, and the extra dollars of the new calendar.

    Kind `budget` multiplies the budget by `factor`; `quota` raises the quota of `gpu_type` to `instances`;
    `always` works through the hours off; `first` puts the job first in line; `on-demand` does so and takes it
    off the spot market; `date` moves the deadline to `ends`. `misses` are the jobs that become late instead.
    """

    kind: str
    extra_usd: float = 0.0
    factor: float = 1.0
    gpu_type: str = ""
    instances: int = 0
    misses: tuple[str, ...] = ()
    ends: float = np.inf


def calendar_by_rule(
    jobs: Sequence[CalendarJob], rule: str, limits: CalendarLimits, hours_per_usd: float
) -> Calendar:
    """Return the calendar for an order by date, submission or size: "edf", "fifo" or "srpt"."""
    return calendar_of_order(sorted(jobs, key=RULES[rule]), limits, hours_per_usd)


def search(
    jobs: Sequence[CalendarJob],
    limits: CalendarLimits,
    usd_per_hour: Mapping[str, float],
    *,
    tries: int | None = None,
    known: CalendarSearchResult | None = None,
) -> CalendarSearchResult:
    """Return the best calendar found; `usd_per_hour` is the price of an instance of each GPU type.

    `known` is a result under limits that are as tight or tighter. It is returned if no better calendar is
    found, so more money or machines never make the calendar worse.
    """
    options = sum(len(job.options) for job in jobs)
    tries = tries or int(np.clip(WORK // max(options, 1), LEAST_TRIES, MOST_TRIES))
    best: _Best | None = None
    count = 0
    for order, price in _starts(jobs):
        found = calendar_of_order(order, limits, price)
        count += 1
        if best is None or found.key < best.calendar.key:
            best = _Best(found, tuple(order), price, {})
        if count >= tries:
            break
    assert best is not None
    for step in range(max(tries - count, 0)):
        order, price, own = _moved(best, step)
        found = calendar_of_order(order, limits, price, own)
        if found.key < best.calendar.key:
            best = _Best(found, tuple(order), price, own)
    if known is not None and known.calendar.key <= best.calendar.key:
        best = _Best(known.calendar, known.order, known.hours_per_usd, known.own)
    prices = dict(usd_per_hour)
    free = with_dates = None
    if not best.calendar.left_out:
        free = bound_at_prices(jobs, limits, prices, best.calendar)
        best = _rounded(best, jobs, limits, free)
        with_dates = bound_at_prices(jobs, limits, prices, best.calendar, keeps_dates=True)
        rounded = _rounded(best, jobs, limits, with_dates)
        if rounded is not best:
            best = rounded
            with_dates = bound_at_prices(jobs, limits, prices, best.calendar, keeps_dates=True)
    return CalendarSearchResult(
        calendar=best.calendar,
        order=best.order,
        hours_per_usd=best.hours_per_usd,
        own=best.own,
        bound_weighted_hours=max(
            bound_weighted_hours(jobs, limits, prices), 0.0 if free is None else free.bound
        ),
        least_missed=least_missed(jobs, limits, prices),
        bound_with_dates=0.0 if with_dates is None else with_dates.bound,
    )


def _rounded(best: _Best, jobs: Sequence[CalendarJob], limits: CalendarLimits, priced: PricedBound) -> _Best:
    """Return the better of `best` and the calendars in order of the starts that jobs choose at the prices.

    Two such orders are tried: jobs whose deadlines are met come first, or all jobs by start.
    """
    kept = {entry.job.job.id for entry in best.calendar.entries if not entry.is_late}
    for has_dates_first in (True, False):
        order = sorted(
            jobs,
            key=lambda job: (
                has_dates_first and not (job.job.id in kept and np.isfinite(job.due_hours)),
                priced.starts[job.job.id],
            ),
        )
        found = calendar_of_order(order, limits, 0.0, priced.hours_per_usd)
        if found.key < best.calendar.key:
            best = _Best(found, tuple(order), 0.0, priced.hours_per_usd)
    return best


def _starts(jobs: Sequence[CalendarJob]) -> Iterator[tuple[list[CalendarJob], float]]:
    """Yield (order, price of money) of the first candidates, the simple orders first."""
    for rule in RULES.values():
        order = sorted(jobs, key=rule)
        yield order, 0.0
        yield order, CHEAPEST
    scale = sum(job.job.weight * job.least_hours for job in jobs) / sum(job.least_usd for job in jobs)
    density = sorted(jobs, key=lambda job: (-job.job.weight / job.least_usd, job.job.submit_hours))
    urgent = sorted(jobs, key=lambda job: (not np.isfinite(job.due_hours), _slack(job)))
    hopeful = sorted(
        jobs, key=lambda job: (_slack(job) < 0.0, job.due_hours, -job.job.weight / job.least_usd)
    )
    for factor in (1.0, 10.0, 100.0, 1000.0, 0.1):
        for order in (hopeful, density, urgent):
            yield order, factor * scale


def _slack(job: CalendarJob) -> float:
    """Return how long a job may wait and still be in time with its fastest option; infinite if not due."""
    return job.due_hours - job.job.submit_hours - job.least_hours


class _Best(NamedTuple):
    """The best calendar so far, and the order and prices that gave it."""

    calendar: Calendar
    order: tuple[CalendarJob, ...]
    hours_per_usd: float
    own: Mapping[str, float]


def _moved(best: _Best, step: int) -> tuple[list[CalendarJob], float, Mapping[str, float]]:
    """Return a neighbour of the best: one job moved, two exchanged, or another price for all or for one."""
    price, own, late = best.hours_per_usd, best.own, best.calendar.missed
    draws = np.random.default_rng(step)
    changed = list(best.order)
    kind = step % 7
    if kind >= 5:
        # Kind 5: a job without a deadline that it can meet goes last, and money costs it nothing.
        # Kind 6: money costs a random job nothing, or a lot.
        free = [job for job in changed if not 0.0 <= _slack(job) < np.inf] or changed
        job = free[(step // 7) % len(free)] if kind == 5 else changed[int(draws.integers(len(changed)))]
        if kind == 5:
            changed.remove(job)
            changed.append(job)
        return changed, price, {**own, job.job.id: float(draws.choice([0.0, CHEAPEST])) if kind == 6 else 0.0}
    if kind == 0 and late:
        names = {job.job.id for job in late}
        changed.sort(key=lambda job: job.job.id in names)
    elif kind == 4 and late:
        job = late[int(draws.integers(len(late)))]
        changed.remove(job)
        changed.insert(0 if _slack(job) >= 0.0 else len(changed), job)
    elif kind == 1:
        price *= float(np.exp(draws.normal(0.0, 1.0)))
    elif kind == 2 and len(changed) > 1:
        one, other = draws.choice(len(changed), 2, replace=False)
        changed[one], changed[other] = changed[other], changed[one]
    else:
        job = changed.pop(int(draws.integers(len(changed))))
        changed.insert(int(draws.integers(len(changed) + 1)), job)
    return changed, price, own


def deadline_fixes(found: CalendarSearchResult, limits: CalendarLimits) -> dict[str, DeadlineFix]:
    """Return for each missed deadline, by job id, the cheapest change of those tried that saves it.

    The changes are a larger budget, a larger quota of each type that has one, no hours off, the job first in
    line, and the same on demand instead of spot. A change counts if the job then ends in time and every
    deadline that was met is still met. For the last two, other jobs may become late and are listed in
    `misses`. The last resort is another date: the job's end in this calendar.
    """
    missed = found.calendar.missed
    met = {e.job.job.id for e in found.calendar.entries if not e.is_late}
    ends = {e.job.job.id: e.ends for e in found.calendar.entries}
    answers: dict[str, list[DeadlineFix]] = {job.job.id: [] for job in missed}
    hopeful = [job for job in missed if _slack(job) >= 0.0]
    is_fine = len(found.order) <= SMALL
    for change, changed in _changes(limits, is_fine=is_fine) if hopeful else ():
        best = _best_again(found, hopeful, changed, is_fine=is_fine)
        late = {job.job.id for job in best.missed} | {job.job.id for job in best.left_out}
        if not met & late:
            extra = max(0.0, best.spend - found.calendar.spend)
            kind = (change.kind, change.gpu_type)
            for job in hopeful:
                tried = {(other.kind, other.gpu_type) for other in answers[job.job.id]}
                if job.job.id not in late and kind not in tried:
                    answers[job.job.id].append(replace(change, extra_usd=extra))
    for job in hopeful[: WORK // (50 * len(found.order))]:
        firm = tuple(option for option in job.options if not option.sure_hours)
        is_spot = 0 < len(firm) < len(job.options)
        ways = [("first", job), *([("on-demand", replace(job, options=firm))] if is_spot else [])]
        for way, one in ways:
            order = (one, *(other for other in found.order if other is not job))
            first = calendar_of_order(order, limits, found.hours_per_usd, found.own)
            late = {other.job.id for other in (*first.missed, *first.left_out)}
            if job.job.id not in late:
                extra = max(0.0, first.spend - found.calendar.spend)
                misses = tuple(sorted(met & late))
                answers[job.job.id].append(DeadlineFix(kind=way, extra_usd=extra, misses=misses))
    for job in missed:
        end = ends.get(job.job.id, np.inf)
        answers[job.job.id].append(DeadlineFix(kind="date", ends=end))
    return {name: min(changes, key=_preference) for name, changes in answers.items()}


def _preference(change: DeadlineFix) -> tuple[float, ...]:
    """Return the sort key of a change: no new date, few other jobs late, few dollars, a small step."""
    size = change.factor + change.instances
    return (change.kind == "date", len(change.misses), round(change.extra_usd, 2), size)


def _changes(limits: CalendarLimits, *, is_fine: bool) -> Iterator[tuple[DeadlineFix, CalendarLimits]]:
    """Yield larger budgets, no hours off, and larger quotas; small steps come first."""
    money = min(limits.usd_per_hour, limits.usd_per_period, limits.usd_in_all)
    if np.isfinite(money):
        for factor in FINE if is_fine else COARSE:
            changed = replace(
                limits,
                usd_per_hour=limits.usd_per_hour * factor,
                usd_per_period=limits.usd_per_period * factor,
                usd_in_all=limits.usd_in_all * factor,
            )
            yield DeadlineFix(kind="budget", factor=factor), changed
    if not limits.working.is_always:
        yield DeadlineFix(kind="always"), replace(limits, working=ALWAYS)
    for name, number in limits.instances.items():
        if name in limits.windows:
            continue
        for more in (1, 2, 4, 8) if is_fine else (2,):
            changed = replace(limits, instances={**limits.instances, name: number + more})
            yield DeadlineFix(kind="quota", gpu_type=name, instances=number + more), changed


def _best_again(
    found: CalendarSearchResult, late: Sequence[CalendarJob], limits: CalendarLimits, *, is_fine: bool
) -> Calendar:
    """Return the best of a few calendars under other limits, from three orders: old, late first, by date."""
    names = {job.job.id for job in late}
    first = sorted(found.order, key=lambda job: job.job.id not in names)
    by_date = sorted(found.order, key=lambda job: (_slack(job) < 0.0, job.due_hours))
    prices = (found.hours_per_usd, CHEAPEST, 0.0) if is_fine else (found.hours_per_usd,)
    orders = (found.order, first, by_date)
    tried = (calendar_of_order(order, limits, price, found.own) for price in prices for order in orders)
    return min(tried, key=lambda calendar: calendar.key)
