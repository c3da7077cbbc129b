"""Lower bounds for all calendars: weighted waiting, and the number of missed deadlines.

Each bound relaxes all but one limit.

- *Alone*: every job runs with its fastest option.
- *Money as a machine*: with at most R dollars per hour (the budget, or the quotas at their prices), a job's
  dollars pass through a machine of that speed. The job spends evenly from start to end, so it ends half its
  hours after the mean moment of its dollars. The weighted sum of those moments is least if the machine always
  serves the largest weight per dollar (Goemans 1997: preemptive, with release dates). With money by the
  period, the machine stops when the period's money is used; jobs are then released at their period's
  beginning.
- *A sum in all*: the lower hull of (dollars, hours) of each job, with edges taken until the sum is used.
- *Deadlines*: by b at most `spendable` dollars can be spent, so the jobs that meet deadlines up to b cost no
  more than that; the fewest that must be dropped are found by dropping the dearest (Moore and Hodgson 1968).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from policies.optimum.calendar import CALENDAR_TOLERANCE, CalendarJob, CalendarLimits


def machine_rate(
    jobs: Sequence[CalendarJob], limits: CalendarLimits, usd_per_hour: dict[str, float]
) -> float:
    """Return the most dollars per hour that the jobs can spend under the money limit and the quotas."""
    types = {option.gpu_type for job in jobs for option in job.options}
    most = sum(limits.instances.get(name, np.inf) * usd_per_hour[name] for name in types)
    return min(limits.usd_per_hour, most)


def bound_weighted_hours(
    jobs: Sequence[CalendarJob], limits: CalendarLimits, usd_per_hour: dict[str, float]
) -> float:
    """Return a lower bound on the weighted sum of completion times, from submission, of any calendar."""
    found = [sum(job.job.weight * job.least_hours for job in jobs)]
    rate = machine_rate(jobs, limits, usd_per_hour)
    if 0.0 < rate < np.inf:
        found.append(_passing(jobs, rate, CalendarLimits()))
    if rate > 0.0 and np.isfinite(limits.usd_per_period):
        found.append(_passing(jobs, rate, limits))
    if np.isfinite(limits.usd_in_all):
        found.append(_in_all(jobs, limits.usd_in_all))
    return max(found)


def least_missed(jobs: Sequence[CalendarJob], limits: CalendarLimits, usd_per_hour: dict[str, float]) -> int:
    """Return a lower bound on the number of deadlines that any calendar misses."""
    rate = machine_rate(jobs, limits, usd_per_hour)
    certain, kept = 0, []
    for job in jobs:
        if not np.isfinite(job.due_hours):
            continue
        timely = [
            o
            for o in job.options
            if job.job.submit_hours + o.hours <= job.due_hours * (1.0 + CALENDAR_TOLERANCE)
        ]
        if not timely:
            certain += 1
        else:
            kept.append((spendable(job.due_hours, rate, limits), min(option.usd for option in timely)))
    spent = 0.0
    dearest: list[float] = []
    for most, usd in sorted(kept):
        heapq.heappush(dearest, -usd)
        spent += usd
        while spent > most * (1.0 + 1e-6):
            spent += heapq.heappop(dearest)
            certain += 1
    return certain


def spendable(until: float, rate: float, limits: CalendarLimits) -> float:
    """Return the most dollars that can be spent by the hour `until`, at most `rate` per hour."""
    if not np.isfinite(limits.usd_per_period):
        return min(rate * until, limits.usd_in_all)
    whole, part = divmod(until, limits.period_hours)
    each = min(limits.usd_per_period, rate * limits.period_hours)
    last = min(each, rate * part) if part > 0.0 else 0.0
    return min(whole * each + last, limits.usd_in_all)


def _passing(jobs: Sequence[CalendarJob], rate: float, limits: CalendarLimits) -> float:
    """Return the bound of money as a machine of `rate` dollars per hour and the limits' money per period."""
    starts = [job.job.submit_hours for job in jobs]
    if np.isfinite(limits.usd_per_period):
        starts = [at // limits.period_hours * limits.period_hours for at in starts]
    waiting = sorted(((at, number) for number, at in enumerate(starts)), reverse=True)
    left = [job.least_usd for job in jobs]
    moments = [0.0] * len(jobs)
    ready: list[tuple[float, int]] = []
    for begin, end in _stretches(sorted(set(starts)), limits):  # pragma: no branch  Ends inside.
        while waiting and waiting[-1][0] <= begin:
            _, number = waiting.pop()
            heapq.heappush(ready, (-jobs[number].job.weight / jobs[number].least_usd, number))
        now, room = begin, limits.usd_per_period
        while ready and room > 0.0 and now < end:
            number = ready[0][1]
            amount = min(left[number], room, rate * (end - now) if np.isfinite(end) else np.inf)
            hours = amount / rate
            moments[number] += amount / jobs[number].least_usd * (now + hours / 2.0)
            left[number] -= amount
            room -= amount
            now = end if amount == rate * (end - now) else now + hours
            if left[number] <= 1e-12 * jobs[number].least_usd:
                heapq.heappop(ready)
        if not ready and not waiting:
            break
    return float(
        sum(
            job.job.weight * (moment + job.least_hours / 2.0 - job.job.submit_hours)
            for job, moment in zip(jobs, moments, strict=True)
        )
    )


def _stretches(starts: Sequence[float], limits: CalendarLimits) -> Iterator[tuple[float, float]]:
    """Yield (begin, end) of the periods, or of the times between submissions if money has no period."""
    if np.isfinite(limits.usd_per_period):
        for number in itertools.count():  # pragma: no branch  The caller stops the iteration.
            yield number * limits.period_hours, (number + 1) * limits.period_hours
    yield from zip(starts, [*starts[1:], np.inf], strict=True)


def _in_all(jobs: Sequence[CalendarJob], usd: float) -> float:
    """Return the bound for one sum of money: take the steepest edges of the jobs' hulls first."""
    hours = sum(job.job.weight * _hull(job)[0][1] for job in jobs)
    left = usd - sum(job.least_usd for job in jobs)
    edges = []
    for job in jobs:
        corners = _hull(job)
        edges += [
            (job.job.weight * (a[1] - b[1]) / (b[0] - a[0]), b[0] - a[0])
            for a, b in itertools.pairwise(corners)
        ]
    for slope, usd_of_edge in sorted(edges, reverse=True):
        part = max(0.0, min(left, usd_of_edge))
        hours -= slope * part
        left -= part
    return hours


def _hull(job: CalendarJob) -> list[tuple[float, float]]:
    """Return the lower hull of (dollars, hours), the cheapest first."""
    corners: list[tuple[float, float]] = []
    for point in sorted((option.usd, option.hours) for option in job.options):
        if corners and point[1] >= corners[-1][1]:
            continue
        while len(corners) > 1 and _is_above(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    return corners


def _is_above(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])
