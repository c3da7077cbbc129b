"""Jobs that try a width whose speed nobody knows yet, for a while, so that the plan knows it from then on.

One job of a class at a time tries one width beside its planned one. It is chosen where that is cheap: what
tries
cost, restarts included, stays below a fraction of the GPU time that the class was measured for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from boa_daemon.learning.speedups import CurveEstimate, Exploration, SpeedSample, worth_exploring
from boa_daemon.tick.state import JobState
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import Allocation, Job, JobClass, JobId, Money, Width
from policies.protocols import Allocator


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploring:
    """Follow another allocator, but for the jobs in `tries`; who tries what is decided elsewhere."""

    base: Allocator
    tries: Mapping[JobId, Exploration] = field(default_factory=lambda: MappingProxyType({}))

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the base's allocation with the widths that are tried; a job that waits tries nothing."""
        found = self.base.allocate(jobs, now=now, money=money)
        tried = {job: self.tries[job] for job in found.widths if job in self.tries}
        if not tried:
            return found
        widths = {
            job: Width(width.gpu_type, tried[job].gpus) if job in tried else width
            for job, width in found.widths.items()
        }
        reasons = {job: tried[job].reason if job in tried else found.reasons.get(job, "") for job in widths}
        return replace(found, widths=widths, reasons=reasons)


TRY_SECONDS = 300.0
"""A try works for so long at the most, and has so long again to get there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """A job that tries a width since an instant."""

    class_name: str
    gpu_type: str
    found: Exploration
    began_at: float


@dataclass(slots=True)
class Tries:
    """Who tries what now. `fraction` bounds the GPU time of tries, of what their class was measured for."""

    fraction: float = 0.02
    _now: dict[JobId, Try] = field(default_factory=dict)
    _spent: dict[str, float] = field(default_factory=dict)

    @property
    def explorations(self) -> Mapping[JobId, Exploration]:
        """The width that each job tries."""
        return {job: one.found for job, one in self._now.items()}

    def update(
        self,
        jobs: Mapping[JobId, JobState],
        curves: Collection[CurveEstimate],
        classes: Mapping[str, JobClass],
        samples: Sequence[SpeedSample],
        *,
        now: float,
    ) -> None:
        """End the tries that have said what they can, and let at most one job of each class begin one.

        `classes` are those that jobs are planned by, by name, their limits on width included.
        """
        self._now = {
            job: one for job, one in self._now.items() if job in jobs and not _is_over(one, samples, now)
        }
        busy = {one.class_name for one in self._now.values()}
        for curve in curves:
            if curve.class_name not in busy and self._begin(jobs, curve, classes, samples, now):
                busy.add(curve.class_name)

    def _begin(
        self,
        jobs: Mapping[JobId, JobState],
        curve: CurveEstimate,
        classes: Mapping[str, JobClass],
        samples: Sequence[SpeedSample],
        now: float,
    ) -> bool:
        """Let the running job of a class that has most left begin a try; return whether one does."""
        mine = [
            job
            for job in jobs.values()
            if job.slots
            and not job.is_stopping
            and job.job.class_name.partition("[")[0] == curve.class_name
            and job.job.width is not None
            and job.job.width.gpu_type == curve.gpu_type
            and job.job.class_name in classes
        ]
        if not mine:
            return False
        chosen = max(mine, key=lambda job: (job.job.remaining_gpu_hours, job.job.id))
        job_class, width = classes[chosen.job.class_name], chosen.job.width
        assert width is not None
        allowed = set(map(int, job_class.phases[chosen.job.phase].speedups[curve.gpu_type].whole_widths()))
        measured = sum(one.seconds * one.gpus for one in samples if one.class_name == curve.class_name)
        left = self.fraction * measured - self._spent.get(curve.class_name, 0.0)
        found = worth_exploring(
            curve, planned_gpus=width.gpus, seconds=TRY_SECONDS, most_gpu_seconds=left, allowed=allowed
        )
        if found is None:
            return False
        # There and back again: two restarts at the wider of the two widths.
        restarts = 2.0 * job_class.rescale_hours * SECONDS_PER_HOUR * max(found.gpus, width.gpus)
        if found.gpu_seconds + restarts > left:
            return False
        self._spent[curve.class_name] = self._spent.get(curve.class_name, 0.0) + found.gpu_seconds + restarts
        self._now[chosen.job.id] = Try(
            class_name=curve.class_name, gpu_type=curve.gpu_type, found=found, began_at=now
        )
        return True


def _is_over(one: Try, samples: Sequence[SpeedSample], now: float) -> bool:
    """Return whether a try has taken its time, or its width was measured for long enough."""
    if now - one.began_at > 2.0 * TRY_SECONDS:
        return True
    known = sum(
        sample.seconds
        for sample in samples
        if (sample.class_name, sample.gpu_type, sample.gpus) == (one.class_name, one.gpu_type, one.found.gpus)
        and sample.at >= one.began_at
    )
    return known >= TRY_SECONDS
