"""Width trials: jobs try a width of unknown speed for a while, so that later plans know the speed.

One job of a class at a time tries one width beside its planned one, the width most worth knowing
(`boa_daemon.learning.speedups`), as soon as the class was measured at any width.

The trials of a class may waste, restarts and boots of whole nodes included, a fraction of the GPU time that
the class has worked plus the GPU time of one job. So the first job may try, and a user of three jobs does not
pay for a week of trials. A class is assumed to go on for as long as it has worked, plus ten jobs; a
measurement is valid for a week. A width that was tried and could not be measured is tried again once the
class has worked twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from boa_daemon.learning.exploration_value import Exploration, ExplorationStakes, worth_exploring
from boa_daemon.learning.learner import Learner, Worked
from boa_daemon.learning.samples import ENOUGH_MORE
from boa_daemon.learning.speedups import HALF_LIFE_SECONDS, CurveEstimate, SpeedSample, WidthEstimate
from boa_daemon.tick.facts.state import JobState
from boa_daemon.units import SECONDS_PER_HOUR
from policies.answer import Allocation, NodePrices
from policies.model import InstanceType, Job, JobClass, JobId, Money, Width
from policies.protocols import Allocator


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploringAllocator:
    """Follow another allocator, except for the jobs in `tries`, which are chosen elsewhere."""

    base: Allocator
    tries: Mapping[JobId, Exploration] = field(default_factory=lambda: MappingProxyType({}))

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the base's allocation with the tried widths; a waiting job tries nothing."""
        found = self.base.allocate(jobs, now=now, money=money)
        tried = {job: self.tries[job] for job in found.widths if job in self.tries}
        if not tried:
            return found
        widths = {
            job: Width(width.gpu_type, tried[job].gpus) if job in tried else width
            for job, width in found.widths.items()
        }
        reasons = {job: tried[job].reason if job in tried else found.reasons.get(job, "") for job in widths}
        return replace(found, widths=widths, reasons=reasons, exact=found.exact | tried.keys())


TRY_SECONDS, LEAST_TRY_SECONDS = 120.0, 30.0
"""Seconds of work in a trial: two minutes measure a speed to 7 %. Short jobs try for less."""
LATEST_SECONDS = 900.0
"""A trial not measured by then is given up: its nodes did not come, or its job cannot start."""
PART_OF_A_JOB = 1.0 / 3.0
ASK_SECONDS, LATEST_ASK_SECONDS = 300.0, 7200.0
"""Seconds after which a class whose trials did not pay is looked at again with the same measurements: if it
worked enough more, and in any case."""
ADVANCE_JOBS = 1.0
"""How many jobs' GPU time the trials of a class may waste before the class has worked at all."""
TRUSTED_JOBS = 10.0
"""How many more jobs a class is assumed to send, however few were seen."""
HALF_LIFE_HOURS = HALF_LIFE_SECONDS / SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthTrial:
    """A job's current trial of a width."""

    class_name: str
    gpu_type: str
    found: Exploration
    began_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHourWorth:
    """The value of money in the last decision, by GPU type: the hours that a GPU-hour's money saves.

    A node has `node_gpus` and takes `boot_seconds` until it is ready.
    """

    gpu_hour: Mapping[str, float]
    node_gpus: Mapping[str, int]
    boot_seconds: float = 0.0

    @classmethod
    def of(cls, node_prices: NodePrices | None, machines: Mapping[str, InstanceType]) -> GpuHourWorth | None:
        """Return the values from a policy's node prices; None if the policy has none."""
        if node_prices is None:
            return None
        return cls(
            gpu_hour={name: node_prices.node_worth(name) / kind.gpus for name, kind in machines.items()},
            node_gpus={name: kind.gpus for name, kind in machines.items()},
            boot_seconds=node_prices.boot_hours * SECONDS_PER_HOUR,
        )


FRACTION = 0.02
"""The part of a class's GPU time that its trials may waste, beside that of one job."""


def most_wasted(work_by_class: Mapping[str, Sequence[float]], fraction: float = FRACTION) -> float:
    """Return the part of the GPU time of these jobs, by class, that trials may waste at most."""
    work = [sum(jobs) for jobs in work_by_class.values()]
    first = [ADVANCE_JOBS * sum(jobs) / len(jobs) for jobs in work_by_class.values() if jobs]
    return fraction + (sum(first) / sum(work) if sum(work) > 0.0 else 0.0)


@dataclass(slots=True)
class WidthTrials:
    """The current width trials. `fraction` is the part of a class's GPU time that its trials may waste."""

    fraction: float = FRACTION
    _now: dict[JobId, WidthTrial] = field(default_factory=dict)
    _wasted: dict[str, float] = field(default_factory=dict)
    _asked: dict[tuple[str, str], tuple[tuple[WidthEstimate, ...], float, float]] = field(
        default_factory=dict
    )
    # By class, type and width: the GPU-seconds of work of the class before the width is tried again.
    _not_before: dict[tuple[str, str, int], float] = field(default_factory=dict)

    @property
    def explorations(self) -> Mapping[JobId, Exploration]:
        """The width that each job tries."""
        return {job: one.found for job, one in self._now.items()}

    @property
    def classes(self) -> frozenset[str]:
        """The classes that try a width."""
        return frozenset(one.class_name for one in self._now.values())

    @property
    def wasted_gpu_seconds(self) -> float:
        """The most that all trials so far may have wasted."""
        return sum(self._wasted.values())

    def update(
        self,
        jobs: Mapping[JobId, JobState],
        curves: Collection[CurveEstimate],
        classes: Mapping[str, JobClass],
        learner: Learner,
        *,
        worth: GpuHourWorth,
        now: float,
        believed: Callable[[Job], Job] = lambda job: job,
    ) -> None:
        """End the trials that are over, and let at most one job of each class begin one.

        `classes` are those that jobs are planned with, by name, with their limits on width. `believed`
        gives a job with the work left that it is believed to have.
        """
        for job, one in list(self._now.items()):
            if job not in jobs or _is_over(one, learner.samples_of(one.class_name), now):
                del self._now[job]
                self._not_before[one.class_name, one.gpu_type, one.found.gpus] = (
                    2.0 * learner.worked_of(one.class_name).gpu_seconds
                )
        busy = {one.class_name for one in self._now.values()}
        due = [
            curve for curve in curves if curve.class_name not in busy and self._is_due(curve, learner, now)
        ]
        if not due:
            return
        running: dict[str, list[Job]] = {}
        for state in jobs.values():
            if state.slots and not state.is_stopping and state.job.class_name in classes:
                running.setdefault(state.job.class_name.partition("[")[0], []).append(state.job)
        for curve in due:
            mine = [
                believed(job)
                for job in running.get(curve.class_name, ())
                if job.width is not None and job.width.gpu_type == curve.gpu_type
            ]
            if curve.class_name in busy or not mine:
                continue
            worked = learner.worked_of(curve.class_name)
            self._asked[curve.class_name, curve.gpu_type] = curve.widths, now, worked.gpu_seconds
            began = self._best(mine, curve, classes, worth, worked=worked)
            if began is not None:
                job, found = began
                busy.add(curve.class_name)
                self._wasted[curve.class_name] = self._wasted.get(curve.class_name, 0.0) + found.gpu_seconds
                self._now[job] = WidthTrial(
                    class_name=curve.class_name, gpu_type=curve.gpu_type, found=found, began_at=now
                )

    def _is_due(self, curve: CurveEstimate, learner: Learner, now: float) -> bool:
        """Return whether a trial may pay by now.

        What did not pay a moment ago does not pay now, unless the measurements have changed.
        """
        asked, at, worked = self._asked.get((curve.class_name, curve.gpu_type), (None, 0.0, 0.0))
        if asked is not curve.widths or now - at >= LATEST_ASK_SECONDS:
            return True
        more = learner.worked_of(curve.class_name).gpu_seconds
        return now - at >= ASK_SECONDS and more >= ENOUGH_MORE * worked

    def _best(
        self,
        mine: Sequence[Job],
        curve: CurveEstimate,
        classes: Mapping[str, JobClass],
        worth: GpuHourWorth,
        *,
        worked: Worked,
    ) -> tuple[JobId, Exploration] | None:
        """Return a trial for the class's running job with the most work left; None if none pays."""
        chosen = max(mine, key=lambda job: (job.remaining_gpu_hours, job.id))
        job_class, width = classes[chosen.class_name], chosen.width
        assert width is not None
        speedup = job_class.phases[chosen.phase].speedups[curve.gpu_type]
        allowed = {*map(int, speedup.whole_widths())} & {known.gpus for known in curve.widths}
        if width.gpus not in allowed:
            return None
        allowed -= {
            gpus
            for gpus in allowed
            if self._not_before.get((curve.class_name, curve.gpu_type, gpus), 0.0) > worked.gpu_seconds
        }
        speed = float(speedup.speed_at(width.gpus))
        seconds = PART_OF_A_JOB * chosen.remaining_gpu_hours / speed * SECONDS_PER_HOUR
        if seconds < LEAST_TRY_SECONDS:
            return None
        job_hours = job_class.size_gpu_hours / speed
        to_come = min(
            job_class.arrivals_per_hour * job_hours * HALF_LIFE_HOURS,
            worked.seconds / SECONDS_PER_HOUR + TRUSTED_JOBS * job_hours,
        )
        advance = ADVANCE_JOBS * job_hours * SECONDS_PER_HOUR * width.gpus
        found = worth_exploring(
            curve,
            planned_gpus=width.gpus,
            stakes=ExplorationStakes(
                gpu_hour_worth=worth.gpu_hour[curve.gpu_type],
                hours_to_come=to_come,
                weight=chosen.weight,
                restart_seconds=job_class.rescale_hours * SECONDS_PER_HOUR,
                boot_seconds=worth.boot_seconds,
                node_gpus=worth.node_gpus[curve.gpu_type],
                most_gpu_seconds=self.fraction * worked.gpu_seconds
                + advance
                - self._wasted.get(curve.class_name, 0.0),
            ),
            seconds=min(seconds, TRY_SECONDS),
            allowed=allowed,
        )
        return None if found is None else (chosen.id, found)


def _is_over(one: WidthTrial, samples: Sequence[SpeedSample], now: float) -> bool:
    """Return whether a trial has timed out, or its width was measured for long enough in these samples."""
    if now - one.began_at > LATEST_SECONDS:
        return True
    known = sum(
        sample.seconds
        for sample in samples
        if (sample.gpu_type, sample.gpus) == (one.gpu_type, one.found.gpus) and sample.at >= one.began_at
    )
    return known >= one.found.seconds
