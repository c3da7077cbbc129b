"""Beliefs about each class: arrival rate and size, with prior, estimate and intervals.

The prior is the class file. The data are the rows of `boa_daemon.learning.samples` and the work of running
jobs. The mathematics is in `policies.online.estimates`. Classes that may have changed are estimated again, a
few at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import fsum

import numpy as np

from boa_daemon.learning.samples import HOUR, Sample
from policies.model import JobClass, Phase
from policies.online.estimates import (
    SPREAD,
    ArrivalCounts,
    Belief,
    SizeSums,
    estimate_rate,
    estimate_size,
    mean_left,
)
from policies.speedup import Floats

PRIOR_JOBS, HALF_LIFE_HOURS = 2.0, 168.0
UNSTATED_JOBS = 0.5
"""The weight, in jobs, of a rate that is not stated: the first arrivals outweigh it."""
AGAIN_SECONDS, LATE_SECONDS = 120.0, 600.0
"""Seconds between estimates: of a class with jobs, and of a class without."""
ENOUGH_MORE = 1.1
"""Jobs or hours seen over those of the last estimate, before a class is estimated again."""
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
    not end by themselves; `newest_at` is when the last of them was seen, None before the first.
    """

    name: str
    rate: Belief
    size: Belief
    stated_per_hour: float
    stated_gpu_hours: float
    arrivals: int = 0
    ended: int = 0
    cut: int = 0
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
) -> ClassBelief:
    """Return the belief about a class from its rows and from the work that running jobs have done."""
    stated = job_class.size_gpu_hours
    life = weights.half_life_hours
    rate = estimate_rate(
        job_class.arrivals_per_hour,
        _counts(rows, now, life),
        prior_jobs=weights.prior_jobs if is_rate_stated else min(UNSTATED_JOBS, weights.prior_jobs),
        half_life_hours=life,
    )
    ended = SizeSums()
    bounds, bound_weights = [work / stated for work in running if work > 0.0], []
    bound_weights += [1.0] * len(bounds)
    for row in rows:
        age = 0.5 ** (max(now - row.at, 0.0) / (HOUR * life))
        if row.kind == "size":
            sums = SizeSums(weight=row.count, mean=row.total, log_mean=row.moment)
            ended = ended.plus(sums.over(stated).times(age))
        elif row.kind == "cut":
            bounds.append(row.total / stated)
            bound_weights.append(row.count * age)
    size = estimate_size(ended, np.array(bounds), np.array(bound_weights), prior_jobs=weights.prior_jobs)
    return ClassBelief(
        name=job_class.name,
        rate=rate,
        size=size.times(stated),
        stated_per_hour=job_class.arrivals_per_hour,
        stated_gpu_hours=stated,
        arrivals=_count(rows, "seen") + _count(rows, "arrivals"),
        ended=_count(rows, "size"),
        cut=_count(rows, "cut"),
        newest_at=max((row.at for row in rows), default=None),
        began_at=min((row.at for row in rows if row.kind == "seen"), default=None),
    )


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
    left = mean_left(job_class.size_gpu_hours * scale, done, spread=spread)
    whole = max(done, 0.0) + left
    phase, scale = phase_at(job_class, left, whole)
    return RemainingWork(left=left, phase=phase, scale=scale)


def phase_at(job_class: JobClass, left: float, size: float) -> tuple[int, float]:
    """Return the phase of a job with so much work left, and the job's scale."""
    scale = size / job_class.size_gpu_hours
    if len(job_class.phases) == 1:
        return 0, scale
    for phase in range(len(job_class.phases)):
        after = fsum(rest.size_gpu_hours for rest in job_class.phases[phase + 1 :]) * scale
        if left > after:
            return phase, scale
    return len(job_class.phases) - 1, scale


def classes_differ(found: JobClass, known: JobClass) -> bool:
    """Return whether rate, size or some speed of a class changed by more than `CHANGE_THRESHOLD`."""
    for new_figure, old_figure in (
        (found.arrivals_per_hour, known.arrivals_per_hour),
        (found.size_gpu_hours, known.size_gpu_hours),
    ):
        if abs(new_figure / old_figure - 1.0) > CHANGE_THRESHOLD:
            return True
    for new, old in zip(found.phases, known.phases, strict=True):
        for name, curve in new.speedups.items():
            widths = curve.whole_widths()
            ratio = curve.speed_at(widths) / old.speedups[name].speed_at(widths)
            if bool(np.any(np.abs(ratio - 1.0) > CHANGE_THRESHOLD)):
                return True
    return False


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

        A tenth more jobs came or ended, or any after a while, or a tenth more time went by without any.
        Without `events`, always.
        """
        known, at = self.known.get(name), self._estimated_at.get(name)
        if events is None or known is None or at is None:
            return True
        count, before = events.get(name, 0), self._known_events.get(name, 0)
        if count > (before if now - at >= self.late_seconds else ENOUGH_MORE * before):
            return True
        begin = at if known.began_at is None else known.began_at
        return now - at > max((ENOUGH_MORE - 1.0) * (at - begin), QUIET_SECONDS)

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
        self.known[job_class.name] = estimate_class(
            job_class, rows, running, now=now, weights=self.weights, is_rate_stated=is_rate_stated
        )
