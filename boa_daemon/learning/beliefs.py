"""Beliefs about each class: arrival rate and size, with prior, estimate and intervals.

The prior is the class file. The data are the rows of `boa_daemon.learning.samples` and the work of running
jobs. The mathematics is in `policies.online.estimates`. Classes that may have changed are estimated again, a
few at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import fsum

import numpy as np

from boa_daemon.learning.samples import ENOUGH_MORE, HOUR, Sample
from policies.fast_dataclasses import fast_init
from policies.memo import IdentityMemo
from policies.model import Job, JobClass, Phase
from policies.online.estimates import (
    SPREAD,
    ArrivalCounts,
    Belief,
    SizeSums,
    estimate_rate,
    estimate_size,
    mean_left,
)
from policies.speedup import Floats, SpeedupCurve, Table

PRIOR_JOBS, HALF_LIFE_HOURS = 2.0, 168.0
UNSTATED_JOBS = 0.5
"""The weight, in jobs, of a rate that is not stated: the first arrivals outweigh it."""
AGAIN_SECONDS, LATE_SECONDS = 120.0, 600.0
"""Seconds between estimates of a class with jobs; and of one without, or of however little was seen."""
UNSEEN_SPREAD = 0.99
"""The most spread of sizes that is believed before a job of the class has ended. Above 1 a job that has
worked longer would have more left than others, and at a cap jobs would take turns without any evidence."""
QUIET_SECONDS = 3600.0
"""The least time without any job after which a class is estimated again."""
MOST_AT_ONCE = 16
"""Classes estimated in one tick: each takes up to five milliseconds."""
MOST_HALF_LIVES = 13.0
CHANGE_THRESHOLD = 0.1
"""A relative change of a rate, a size or a speed above this is worth a new plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceWeights:
    """Weights of evidence: the class file counts as `prior_jobs` jobs; data one half-life old count half."""

    prior_jobs: float = PRIOR_JOBS
    half_life_hours: float = HALF_LIFE_HOURS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassBelief:
    """The belief about a class.

    `rate` is in jobs per hour, `size` in hours on one reference GPU for a job of scale 1; `stated_per_hour`
    and `stated_gpu_hours` are from the class file. `arrivals` and `ended` count jobs, `cut` those that did
    not end by themselves; `newest_at` is when the last of them was seen, None before the first. `unfinished`
    is what running jobs had done, in stated sizes, when the size was estimated.
    """

    name: str
    rate: Belief
    size: Belief
    stated_per_hour: float
    stated_gpu_hours: float
    arrivals: int = 0
    ended: int = 0
    cut: int = 0
    unfinished: float = 0.0
    newest_at: float | None = None
    began_at: float | None = None

    @property
    def size_factor(self) -> float:
        """The factor from the stated size to the believed one."""
        return self.size.mean / self.stated_gpu_hours


def estimate_class(
    job_class: JobClass,
    rows: Collection[Sample],
    running: Iterable[float],
    *,
    now: float,
    weights: EvidenceWeights,
    is_rate_stated: bool = True,
    before: ClassBelief | None = None,
) -> ClassBelief:
    """Return the belief about a class from its rows and from the work that running jobs have done.

    The size stays as `before` if no job has ended since, and those that run have not done much more.
    """
    stated = job_class.size_gpu_hours
    life = weights.half_life_hours
    rate = estimate_rate(
        job_class.arrivals_per_hour,
        _counts(rows, now, life),
        prior_jobs=weights.prior_jobs if is_rate_stated else min(UNSTATED_JOBS, weights.prior_jobs),
        half_life_hours=life,
    )
    bounds = [work / stated for work in running if work > 0.0]
    unfinished, ended, cut = fsum(bounds), _count(rows, "size"), _count(rows, "cut")
    if (
        before is not None
        and (ended, cut) == (before.ended, before.cut)
        and unfinished <= ENOUGH_MORE * before.unfinished
    ):
        size, unfinished = before.size, before.unfinished
    else:
        size = _size_of(rows, bounds, stated, now=now, weights=weights)
    return ClassBelief(
        name=job_class.name,
        rate=rate,
        size=size,
        stated_per_hour=job_class.arrivals_per_hour,
        stated_gpu_hours=stated,
        arrivals=_count(rows, "seen") + _count(rows, "arrivals"),
        ended=ended,
        cut=cut,
        unfinished=unfinished,
        newest_at=max((row.at for row in rows), default=None),
        began_at=min((row.at for row in rows if row.kind == "seen"), default=None),
    )


def _size_of(
    rows: Collection[Sample], bounds: list[float], stated: float, *, now: float, weights: EvidenceWeights
) -> Belief:
    """Return the belief about the size from the rows, and from what running jobs did over the stated size."""
    sums, bound_weights = SizeSums(), [1.0] * len(bounds)
    for row in rows:
        age = 0.5 ** (max(now - row.at, 0.0) / (HOUR * weights.half_life_hours))
        if row.kind == "size":
            one = SizeSums(weight=row.count, mean=row.total, log_mean=row.moment)
            sums = sums.plus(one.over(stated).times(age))
        elif row.kind == "cut":
            bounds.append(row.total / stated)
            bound_weights.append(row.count * age)
    size = estimate_size(sums, np.array(bounds), np.array(bound_weights), prior_jobs=weights.prior_jobs)
    if not sums.weight:
        size = replace(size, spread=min(size.spread, UNSEEN_SPREAD))
    return size.times(stated)


def _count(rows: Iterable[Sample], kind: str) -> int:
    return round(sum(row.count for row in rows if row.kind == kind))


def _counts(rows: Iterable[Sample], now: float, half_life_hours: float) -> ArrivalCounts | None:
    """Return arrivals by the hour since a class was first seen; None if it never was."""
    seen = [row.at for row in rows if row.kind == "seen"]
    if not seen:
        return None
    last = int(now // HOUR)
    first = max(int(min(seen) // HOUR), last - int(MOST_HALF_LIVES * half_life_hours))
    hours = max(last - first, 0) + 1
    jobs: Floats = np.zeros(hours)
    squares: Floats = np.zeros(hours)
    for row in rows:
        at = int(row.at // HOUR) - first
        if row.kind == "arrivals" and 0 <= at < hours:
            jobs[at] += row.count
            squares[at] += row.moment
    watched: Floats = np.ones(hours)
    watched[0] -= max(min(seen) / HOUR - first, 0.0)
    watched[-1] -= last + 1.0 - now / HOUR
    np.maximum(watched, 0.0, out=watched)
    ages: Floats = np.arange(hours, dtype=np.float64)[::-1] + 0.5
    return ArrivalCounts(jobs=jobs, squares=squares, ages=ages, hours=watched)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFigures:
    """The figures that a class is planned with: jobs per hour, and the factor on the stated size."""

    per_hour: float
    size_factor: float = 1.0

    def followed(self, belief: ClassBelief, *, rates: bool, sizes: bool) -> PlannedFigures:
        """Return the figures to plan with: each stays until the data contradict it, then it is the estimate.

        A figure is contradicted once it lies outside the interval, so a plan changes a few times in all and
        not with every job. `rates` and `sizes` say which figures may change.
        """
        per_hour, factor = self.per_hour, self.size_factor
        if rates and not belief.rate.low <= per_hour <= belief.rate.high:
            per_hour = belief.rate.mean
        size = factor * belief.stated_gpu_hours
        if sizes and not belief.size.low <= size <= belief.size.high:
            factor = belief.size_factor
        return PlannedFigures(per_hour=per_hour, size_factor=factor)

    def of(self, job_class: JobClass) -> JobClass:
        """Return a class, or a variant of it, with this rate and size; its phases keep their proportions."""
        if self.size_factor == 1.0:
            return replace(job_class, arrivals_per_hour=self.per_hour)
        phases = tuple(
            Phase(size_gpu_hours=phase.size_gpu_hours * self.size_factor, speedups=phase.speedups)
            for phase in job_class.phases
        )
        return replace(job_class, phases=phases, arrivals_per_hour=self.per_hour)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingWork:
    """The belief about the rest of a job: the work left, its current phase, and its scale."""

    left: float
    phase: int
    scale: float


def remaining_work_of(job_class: JobClass, *, scale: float, done: float, spread: float) -> RemainingWork:
    """Return the rest of a job that has done some work, for a class planned with a size.

    The work left is the mean over the sizes above the work done; `spread` is the sizes' standard deviation
    over their mean. The job then counts as one of the resulting size, so its phases are longer in proportion.
    """
    left = mean_left(_work_of(job_class).size * scale, done, spread=spread)
    whole = max(done, 0.0) + left
    phase, scale = phase_at(job_class, left, whole)
    return RemainingWork(left=left, phase=phase, scale=scale)


def phase_at(job_class: JobClass, left: float, size: float) -> tuple[int, float]:
    """Return the phase of a job with so much work left, and the job's scale."""
    work = _work_of(job_class)
    scale = size / work.size
    if len(work.after) == 1:
        return 0, scale
    phases_left = bisect_left(work.after, left, key=lambda after: after * scale)
    return len(work.after) - max(phases_left, 1), scale


def work_until(job_class: JobClass, job: Job, phase: int) -> float:
    """Return the least work that a job does before a later phase begins; all of it if there is no such phase.

    While it works, the work that it is believed to have left falls by as much, or more slowly.
    """
    after = _work_of(job_class).after
    number = len(after) - phase
    return job.remaining_gpu_hours - (after[number] * job.scale if number >= 0 else 0.0)


@dataclass(frozen=True, slots=True)
class _Work:
    """The work of a class: of a whole job, and after each phase, ascending, so the last phase comes first."""

    size: float
    after: tuple[float, ...]

    @classmethod
    def of(cls, job_class: JobClass) -> _Work:
        sizes = [phase.size_gpu_hours for phase in job_class.phases]
        after = tuple(fsum(sizes[number:]) for number in range(len(sizes), 0, -1))
        return cls(job_class.size_gpu_hours, after)


_work_of = IdentityMemo(_Work.of, most=10_000)
"""Jobs of a class ask for its phases one by one, and a class may have hundreds."""


def classes_differ(found: JobClass, known: JobClass) -> bool:
    """Return whether rate, size or some speed of a class changed by more than `CHANGE_THRESHOLD`."""
    for new_figure, old_figure in (
        (found.arrivals_per_hour, known.arrivals_per_hour),
        (found.size_gpu_hours, known.size_gpu_hours),
    ):
        if abs(new_figure / old_figure - 1.0) > CHANGE_THRESHOLD:
            return True
    return any(
        _speeds_differ(curve, old.speedups[name])
        for new, old in zip(found.phases, known.phases, strict=True)
        if new.speedups is not old.speedups
        for name, curve in new.speedups.items()
    )


def _speeds_differ(new: SpeedupCurve, old: SpeedupCurve) -> bool:
    """Return whether the speed at some width of a curve changed by more than `CHANGE_THRESHOLD`."""
    if new is old:
        return False
    if isinstance(new, Table) and isinstance(old, Table) and new.gpus == old.gpus:
        speeds = zip(new.speeds, old.speeds, strict=True)
        return any(abs(now / before - 1.0) > CHANGE_THRESHOLD for now, before in speeds)
    widths = new.whole_widths()
    ratio = new.speed_at(widths) / old.speed_at(widths)
    return bool(np.any(np.abs(ratio - 1.0) > CHANGE_THRESHOLD))


def explain_belief(belief: ClassBelief) -> str:
    """Return rate and size with their intervals, beside the stated ones, as a sentence."""
    return (
        f"Class {belief.name}: {_said(belief.rate)}; stated {belief.stated_per_hour:.3g}) jobs/h from "
        f"{belief.arrivals} jobs; {_said(belief.size)}; stated {belief.stated_gpu_hours:.3g}) GPU-hours a "
        f"job from {belief.ended} that ended."
    )


def _said(belief: Belief) -> str:
    """Return an estimate and its interval, the bracket left open."""
    return f"{belief.mean:.3g} ({belief.low:.3g} to {belief.high:.3g}"


@dataclass(slots=True)
class Beliefs:
    """The newest belief about each class, refreshed a few classes at a time."""

    weights: EvidenceWeights = field(default_factory=EvidenceWeights)
    again_seconds: float = AGAIN_SECONDS
    late_seconds: float = LATE_SECONDS
    known: dict[str, ClassBelief] = field(default_factory=dict)
    estimates: int = 0
    _estimated_at: dict[str, float] = field(default_factory=dict)
    _known_events: dict[str, int] = field(default_factory=dict)

    def spread_of(self, name: str) -> float:
        """Return the spread of the job sizes of a class: standard deviation over mean."""
        known = self.known.get(name.partition("[")[0])
        return SPREAD if known is None else known.size.spread

    def due(
        self,
        classes: Collection[str],
        seen: Collection[str],
        *,
        events: Mapping[str, int] | None = None,
        now: float,
    ) -> list[str]:
        """Return the classes to estimate now, the longest wait first."""
        waited = {name: now - self._estimated_at.get(name, float("-inf")) for name in classes}
        rests = {name: self.again_seconds if name in seen else self.late_seconds for name in classes}
        found = [
            name for name, age in waited.items() if age >= rests[name] and self._has_moved(name, events, now)
        ]
        return sorted(found, key=lambda name: -waited[name])[:MOST_AT_ONCE]

    def _has_moved(self, name: str, events: Mapping[str, int] | None, now: float) -> bool:
        """Return whether enough was seen of a class since its estimate to move it by a part of its error.

        Half as many more jobs came or ended, or any after a while, or half as much more time went by. Old
        jobs and hours count less. Without `events`, always.
        """
        known, at = self.known.get(name), self._estimated_at.get(name)
        if events is None or known is None or at is None:
            return True
        more, part = events.get(name, 0) - self._known_events.get(name, 0), ENOUGH_MORE - 1.0
        if more and (more >= part * (known.rate.weight + known.size.weight) or now - at >= self.late_seconds):
            return True
        begin = at if known.began_at is None else known.began_at
        hours = min((at - begin) / HOUR, self.weights.half_life_hours)
        return now - at > max(part * hours * HOUR, QUIET_SECONDS)

    def refresh(
        self,
        job_class: JobClass,
        rows: Collection[Sample],
        running: Iterable[float],
        *,
        is_rate_stated: bool = True,
        events: int = 0,
        now: float,
    ) -> None:
        """Estimate a class again."""
        self._estimated_at[job_class.name] = now
        self._known_events[job_class.name] = events
        self.estimates += 1
        before = self.known.get(job_class.name)
        if before is not None and before.stated_gpu_hours != job_class.size_gpu_hours:
            before = None
        self.known[job_class.name] = estimate_class(
            job_class,
            rows,
            running,
            now=now,
            weights=self.weights,
            is_rate_stated=is_rate_stated,
            before=before,
        )
