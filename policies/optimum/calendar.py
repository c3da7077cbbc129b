"""A calendar: when each job of a list runs and on which whole instances, under limits of money and machines.

`job_list` has one sum of money and unlimited GPUs; here money comes by the hour or by the period, and quotas
limit the number of instances. A job has whole instances for itself, at one width, from boot to end. Jobs are
placed one after the other in a given order, each at the earliest moment that every limit allows; the price of
money decides which of its options a job takes. `calendar_search` searches the orders and prices. With hours
off, jobs are placed on the clock of `working_time`: running jobs pause in these hours and continue after
them. Cost: O(jobs x options x changes of the profile).

    symbol   here          meaning
    r        submit_hours  hours after the calendar's beginning at which a job is submitted
    D        due_hours     latest end, hours after the calendar's beginning
    h, c     hours, usd    of an option, boot included
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from policies.errors import InvalidProblem
from policies.kinds import Kind, kind_of
from policies.model import InstanceType, JobClass, Problem
from policies.optimum.job_list import ListedJob
from policies.optimum.working_time import ALWAYS, WorkingTime
from policies.speedup import Floats

CALENDAR_TOLERANCE = 1e-9
LAST_HOUR = 1e9
"""The latest hour of any calendar."""
_FEW = 14
"""Periods among which the longest is sought: two weeks of days, or more than a year of months."""
MOST_OPTIONS = 12
"""Options of a job that are considered; from more, the cheapest and some evenly spread ones are taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceOption:
    """Whole instances of one type, the hours for which they are held, and the dollars that this costs.

    If `hours` is a mean, as on the spot market, `sure_hours` is the time that deadlines are checked with.
    """

    gpu_type: str
    instances: int
    gpus: int
    hours: float
    usd: float
    sure_hours: float = 0.0

    @property
    def kind(self) -> Kind:
        """The parts of `gpu_type`."""
        return kind_of(self.gpu_type)

    @property
    def usd_per_hour(self) -> float:
        """Dollars per hour while the job runs."""
        return self.usd / self.hours


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarLimits:
    """Limits on the spend at a moment, in each period and in all, on instances by type, and hours off.

    A type in `windows` is available only between these two hours of the working clock.
    """

    usd_per_hour: float = np.inf
    usd_per_period: float = np.inf
    period_hours: float = np.inf
    usd_in_all: float = np.inf
    instances: Mapping[str, int] = field(default_factory=dict)
    working: WorkingTime = ALWAYS
    windows: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def allows(self, other: CalendarLimits) -> bool:
        """Return whether every calendar within the `other` limits is also within these."""
        return (
            other.usd_per_hour <= self.usd_per_hour
            and other.usd_in_all <= self.usd_in_all
            and other.usd_per_period <= self.usd_per_period
            and (np.isinf(self.usd_per_period) or other.period_hours == self.period_hours)
            and all(other.instances.get(name, np.inf) <= most for name, most in self.instances.items())
            and (self.working.is_always or self.working == other.working)
            and self.windows == other.windows
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarJob:
    """A job of the list and its options, the fastest last."""

    job: ListedJob
    options: tuple[InstanceOption, ...]

    @property
    def due_hours(self) -> float:
        """Latest end, hours after the calendar's beginning; infinite without a deadline."""
        deadline = self.job.deadline_hours
        return np.inf if deadline is None else self.job.submit_hours + deadline

    @property
    def least_usd(self) -> float:
        """Dollars of the cheapest option."""
        return min(option.usd for option in self.options)

    @property
    def least_hours(self) -> float:
        """Hours of the fastest option."""
        return min(option.hours for option in self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarEntry:
    """When a job runs and on which instances; it pauses in hours that are off."""

    job: CalendarJob
    option: InstanceOption
    starts: float
    working: WorkingTime = ALWAYS

    @property
    def ends(self) -> float:
        """End of the job, hours after the calendar's beginning."""
        return self._after(self.option.hours)

    def _after(self, hours: float) -> float:
        """Return the moment that is `hours` working hours after the start."""
        if self.working.is_always:
            return self.starts + hours
        return self.working.end(self.working.worked(self.starts) + hours)

    @property
    def is_late(self) -> bool:
        """Whether the job ends after its deadline; on spot, by `sure_hours`."""
        surely = self._after(max(self.option.hours, self.option.sure_hours))
        return surely > self.job.due_hours * (1.0 + CALENDAR_TOLERANCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Entries in the order in which they were placed, and the jobs that could not be placed at all."""

    entries: tuple[CalendarEntry, ...]
    left_out: tuple[CalendarJob, ...] = ()

    @property
    def missed(self) -> tuple[CalendarJob, ...]:
        """Jobs that end late or never, though they have a deadline."""
        late = tuple(entry.job for entry in self.entries if entry.is_late)
        return late + tuple(job for job in self.left_out if np.isfinite(job.due_hours))

    @property
    def spend(self) -> float:
        """Dollars of all entries."""
        return float(sum(entry.option.usd for entry in self.entries))

    @property
    def all_done(self) -> float:
        """End of the last entry, hours after the beginning."""
        return max((entry.ends for entry in self.entries), default=0.0)

    @property
    def weighted_hours(self) -> float:
        """Weighted sum of the completion times, from submission to end."""
        return float(sum(e.job.job.weight * (e.ends - e.job.job.submit_hours) for e in self.entries))

    @property
    def key(self) -> tuple[float, float, float]:
        """The objective to minimise, in lexicographic order: weight left out, weight late, weighted hours."""
        out = sum(job.job.weight for job in self.left_out)
        return out, sum(job.job.weight for job in self.missed), self.weighted_hours


def calendar_jobs(
    problem: Problem,
    jobs: Sequence[ListedJob],
    machines: Mapping[str, InstanceType],
    *,
    boot_hours: float = 0.0,
) -> tuple[CalendarJob, ...]:
    """Return the jobs with their options on whole instances; `machines` is by GPU type.

    Raises:
        InvalidProblem: when a class is unknown, or no type and width serves all phases of it.
    """
    classes = {job_class.name: job_class for job_class in problem.classes}
    found: dict[tuple[str, float], tuple[InstanceOption, ...]] = {}
    for job in jobs:
        if job.class_name not in classes:
            raise InvalidProblem(f"job {job.id} is of class {job.class_name!r}, which does not exist")
        key = (job.class_name, job.scale)
        if key not in found:
            found[key] = _options(classes[job.class_name], job.scale, machines, boot_hours)
    return tuple(CalendarJob(job=job, options=found[job.class_name, job.scale]) for job in jobs)


def _options(
    job_class: JobClass, scale: float, machines: Mapping[str, InstanceType], boot_hours: float
) -> tuple[InstanceOption, ...]:
    """Return the options that are not dominated in hours, dollars and instances, at most `MOST_OPTIONS`."""
    found: list[InstanceOption] = []
    for name, machine in machines.items():
        curves = [phase.speedups.get(name) for phase in job_class.phases]
        if any(curve is None for curve in curves):
            continue
        shared = set.intersection(*(set(c.whole_widths().tolist()) for c in curves if c is not None))
        for gpus in sorted(shared):
            works = zip(job_class.phases, curves, strict=True)
            hours = sum(p.size_gpu_hours * scale / float(c.speed_at(gpus)) for p, c in works if c is not None)
            hours += job_class.startup_hours + boot_hours
            instances = -(-gpus // machine.gpus)
            usd = instances * machine.usd_per_hour * hours
            found.append(InstanceOption(gpu_type=name, instances=instances, gpus=gpus, hours=hours, usd=usd))
    if not found:
        raise InvalidProblem(f"class {job_class.name}: no GPU type has a width that all its phases allow")
    kept = [option for option in found if not any(_beats(other, option) for other in found)]
    kept.sort(key=lambda option: -option.hours)
    if len(kept) > MOST_OPTIONS:
        cheapest = min(kept, key=lambda option: option.usd)
        spread = np.geomspace(kept[0].hours, kept[-1].hours, MOST_OPTIONS - 1)
        near = {min(range(len(kept)), key=lambda i: abs(kept[i].hours - hours)) for hours in spread}
        kept = [kept[i] for i in sorted(near | {kept.index(cheapest)})]
    return tuple(kept)


def _beats(one: InstanceOption, other: InstanceOption) -> bool:
    """Return whether option `one` dominates `other` of the same type, or is equal with fewer GPUs."""
    if one.gpu_type != other.gpu_type:
        return False
    first = (one.hours, one.usd, one.instances)
    second = (other.hours, other.usd, other.instances)
    as_good = all(a <= b for a, b in zip(first, second, strict=True))
    return as_good and (first != second or one.gpus < other.gpus)


class Timeline:
    """Use of every limit over working time: step functions for instances and USD/hour, sums per period."""

    def __init__(self, limits: CalendarLimits) -> None:
        self.limits = limits
        self._is_always = limits.working.is_always
        self.spent = 0.0
        self._rows = {name: number for number, name in enumerate(limits.instances)}
        self._times = np.zeros(1)
        self._taken = np.zeros((len(self._rows) + 1, 1))
        self._periods: dict[int, float] = {}
        for name, (begin, end) in limits.windows.items():
            for at in (begin, end, LAST_HOUR):
                self._cut(at)
            is_gone = (self._times < begin) | ((self._times >= end) & (self._times < LAST_HOUR))
            self._taken[self._rows[name], is_gone] = limits.instances[name]

    def earliest(self, option: InstanceOption, after: float) -> float:
        """Return the first start at or after `after` that every limit allows; infinite if there is none."""
        rate, most = option.usd_per_hour, self.limits
        if rate > most.usd_per_hour * (1.0 + CALENDAR_TOLERANCE):
            return np.inf
        # A job whose cost of a whole period exceeds the limit fits at most into the end of one period and the
        # beginning of the next.
        paid = most.usd_per_period / rate
        if paid < self._longest_period() * (1.0 - CALENDAR_TOLERANCE) and option.hours > 2.0 * paid * (
            1.0 + CALENDAR_TOLERANCE
        ):
            return np.inf
        quota = most.instances.get(option.gpu_type, np.inf)
        if option.instances > quota:
            return np.inf
        # Use that ends before `after` does not matter.
        first = max(int(self._times.searchsorted(after, side="right")) - 1, 0)
        full = self._taken[-1, first:] + rate > most.usd_per_hour * (1.0 + CALENDAR_TOLERANCE)
        if option.gpu_type in self._rows:
            full |= self._taken[self._rows[option.gpu_type], first:] + option.instances > quota
        blocked = full.nonzero()[0] + first
        # Nothing is used after the last change, so the last piece of time is never blocked.
        opens = np.concatenate([[0.0], self._times[blocked + 1] if len(blocked) else []])
        closes = np.concatenate([self._times[blocked], [np.inf]])
        window = most.windows.get(option.gpu_type)
        start, last = after, np.inf if window is None else window[1]
        while True:
            begins = np.maximum(opens, start)
            fits = closes - begins >= option.hours * (1.0 - CALENDAR_TOLERANCE)
            start = float(begins[int(fits.argmax())])
            if start + option.hours > last * (1.0 + CALENDAR_TOLERANCE):
                return np.inf
            later = self._affordable(option, start)
            if later <= start:
                return start
            start = later

    def _affordable(self, option: InstanceOption, start: float) -> float:
        """Return `start` if each period has the money left, else the next start to try."""
        most = self.limits
        if not np.isfinite(most.usd_per_period):
            return start
        rate = option.usd_per_hour
        for number, hours in self._parts(start, start + option.hours):
            left = most.usd_per_period - self._periods.get(number, 0.0)
            if rate * hours > left + CALENDAR_TOLERANCE * most.usd_per_period:
                ends = self._edge(number + 1)
                return max(ends - max(left, 0.0) / rate, float(np.nextafter(start, np.inf)))
        return start

    def _parts(self, starts: float, ends: float) -> list[tuple[int, float]]:
        """Return (period, hours) of each period that an interval overlaps."""
        period, working = self.limits.period_hours, self.limits.working
        if not self._is_always:
            first, last = int(working.start(starts) // period), int(np.ceil(working.end(ends) / period))
        else:
            first, last = int(starts // period), ceil(ends / period)
            if last == first + 1 and starts < ends:
                return [(first, ends - starts)]
        parts = ((k, min(ends, self._edge(k + 1)) - max(starts, self._edge(k))) for k in range(first, last))
        return [(number, hours) for number, hours in parts if hours > 0.0]

    def _edge(self, number: int) -> float:
        """Return the working time at which a period begins."""
        at = number * self.limits.period_hours
        return at if self._is_always else self.limits.working.worked(at)

    def _longest_period(self) -> float:
        """Return the most working hours of any of the first `_FEW` periods."""
        period, working = self.limits.period_hours, self.limits.working
        if working.is_always or not np.isfinite(period):
            return period
        return max(self._edge(number + 1) - self._edge(number) for number in range(_FEW))

    def take(self, option: InstanceOption, start: float) -> None:
        """Book an option that starts at `start` against every limit."""
        end = start + option.hours
        self._cut(start)
        self._cut(end)
        held = slice(*np.searchsorted(self._times, [start, end]))
        self._taken[-1, held] += option.usd_per_hour
        if option.gpu_type in self._rows:
            self._taken[self._rows[option.gpu_type], held] += option.instances
        self.spent += option.usd
        if np.isfinite(self.limits.usd_per_period):
            for number, hours in self._parts(start, end):
                self._periods[number] = self._periods.get(number, 0.0) + option.usd_per_hour * hours

    def _cut(self, at: float) -> None:
        """Split the step functions at `at`."""
        place = int(self._times.searchsorted(at))
        if place == len(self._times) or self._times[place] != at:
            self._times = np.concatenate([self._times[:place], (at,), self._times[place:]])
            # The new piece has the same values as the piece before it.
            self._taken = np.concatenate([self._taken[:, :place], self._taken[:, place - 1 :]], axis=1)


def calendar_of_order(
    order: Sequence[CalendarJob],
    limits: CalendarLimits,
    hours_per_usd: float,
    own: Mapping[str, float] | None = None,
) -> Calendar:
    """Place jobs greedily in the given order; each takes the option that is best for it.

    A job prefers options that end in time, then the least weight x end + `hours_per_usd` x dollars; `own`
    overrides `hours_per_usd` for single jobs, by id. If `usd_in_all` pays for the cheapest options of all
    jobs, the money for those of the jobs still to come is reserved.
    """
    timeline, working = Timeline(limits), limits.working
    aside = sum(job.least_usd for job in order)
    is_enough = aside <= limits.usd_in_all * (1.0 + CALENDAR_TOLERANCE)
    entries: list[CalendarEntry] = []
    left_out: list[CalendarJob] = []
    for job in order:
        aside -= job.least_usd
        room = limits.usd_in_all * (1.0 + CALENDAR_TOLERANCE) - timeline.spent - (aside if is_enough else 0.0)
        best: tuple[bool, float] = (True, np.inf)
        chosen: CalendarEntry | None = None
        price = hours_per_usd if own is None else own.get(job.job.id, hours_per_usd)
        began, submitted = 0.0, job.job.submit_hours
        if not working.is_always:
            submitted = working.worked(submitted)
        for option in job.options:
            if option.usd > room:
                continue
            start = timeline.earliest(option, submitted)
            if not np.isfinite(start):
                continue
            at = start if working.is_always else working.start(start)
            entry = CalendarEntry(job=job, option=option, starts=at, working=working)
            score = (entry.is_late, job.job.weight * entry.ends + price * option.usd)
            if chosen is None or score < best:
                best, chosen, began = score, entry, start
        if chosen is None:
            left_out.append(job)
            continue
        timeline.take(chosen.option, began)
        entries.append(chosen)
    return Calendar(entries=tuple(entries), left_out=tuple(left_out))


def per_period(calendar: Calendar, period_hours: float) -> Floats:
    """Return the dollars spent in each period, from the beginning to the last end, shape (periods,)."""
    periods = int(np.ceil(calendar.all_done / period_hours))
    edges = np.arange(periods + 1) * period_hours
    spent = np.zeros(periods)
    for entry in calendar.entries:
        held = np.clip(edges, entry.starts, entry.ends)
        if not entry.working.is_always:
            held = np.array([entry.working.worked(float(at)) for at in held])
        spent += entry.option.usd_per_hour * np.diff(held)
    return spent
