"""Gittins' index: a fixed fleet; the jobs with the best chance to end per GPU-hour of service go first.

Sizes are unknown: a job's rank uses what it had so far and the sizes of the jobs of its class that have
ended. With X the service of a job in GPU-hours at its width, a what it had, the index is

    G(a) = w max over d of  P(X - a <= d | X > a) / (u + E[min(X - a, d) | X > a])

and the highest goes first (Gittins 1979; Scully, Grosof, Harchol-Balter, "The Gittins policy is nearly
optimal in the M/G/k under extremely general conditions", 2020; with set-up times, arXiv 2304.13231). The
distribution of a class is that of its last `MOST_SIZES` ends, and `PRIOR` quantiles of an exponential
distribution with its stated size as the mean, so that a policy without experience serves small classes first.

    symbol   here       meaning
    a        attained   GPU-hours of service that a job had at its width
    u        set_up     GPU-hours of a restart, for a job that does not run
    w        weight     how much the job counts

Stronger than the policy of the theory: widths are the best fixed ones for the fleet (`fixed_widths`), and a
job that does not fit is skipped. The sizes of ended jobs are the policy's state; when built again, it starts
with the stated ones. Cost: O(jobs x sizes) per call.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence

import numpy as np

from policies.answer import Allocation
from policies.model import Job, JobId, Money, Width
from policies.rivals.baselines import StaticSrsf
from policies.rivals.fixed_widths import best_srsf
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site
from policies.speedup import Floats

MOST_SIZES = 200
PRIOR = 8


class SizeSample:
    """The sizes of a class in ascending order: the last ends, and quantiles that stand for a mean."""

    def __init__(self, mean: float) -> None:
        self.mean = mean
        at = (np.arange(PRIOR) + 0.5) / PRIOR
        quantiles = -np.log1p(-at)
        self._sorted: list[float] = (mean * quantiles / quantiles.mean()).tolist()
        self._ends: deque[float] = deque()

    def add(self, size: float) -> None:
        """Add the size of a job that ended; the oldest one goes when there are too many."""
        insort(self._sorted, size)
        self._ends.append(size)
        if len(self._ends) > MOST_SIZES:
            self._sorted.remove(self._ends.popleft())

    def index(self, attained: float, *, set_up: float) -> float:
        """Return the index of a job that had `attained`: chances to end per GPU-hour."""
        left: Floats = np.array(self._sorted) - attained
        left = left[left > 0.0]
        if not len(left):
            # Longer than all others: as if it were at the start of another mean size.
            return 1.0 / (set_up + self.mean)
        ended = np.arange(1, len(left) + 1)
        served = np.cumsum(left) + (len(left) - ended) * left
        return float((ended / (served + set_up * len(left))).max())


class GittinsOrder:
    """Hold a fixed fleet; jobs run in order of their index, and the sizes of those that left are kept."""

    def __init__(self, *, queue: StaticSrsf) -> None:
        self.queue = queue
        self.sizes = {name: SizeSample(self._service_of_class(name)) for name in queue.menu.classes}
        self._present: dict[JobId, tuple[str, float]] = {}

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the widths of the jobs that fit, the highest index first."""
        self._learn(jobs)
        widths: dict[JobId, Width] = {}
        left = self.queue.fleet.gpus
        for job in sorted(jobs, key=lambda job: (-self.index_of(job), job.arrived_at, job.id)):
            width = self.queue.width_of(job)
            if width.gpus <= left:
                widths[job.id] = width
                left -= width.gpus
        return Allocation(widths=widths, nodes=self.queue.fleet.count_by_type)

    def index_of(self, job: Job) -> float:
        """Return a job's index; its scale and the work left are used for the service it had only."""
        attained = self._size_of(job) - self.queue.service_of(job)
        restart = self.queue.menu.classes[job.class_name].rescale_hours * self.queue.width_of(job).gpus
        set_up = 0.0 if job.width is not None else restart
        return job.weight * self.sizes[job.class_name].index(max(attained, 0.0), set_up=set_up)

    def _learn(self, jobs: Sequence[Job]) -> None:
        """Remember the sizes of the jobs that have left since the last call."""
        present = {job.id: (job.class_name, self._size_of(job)) for job in jobs}
        for job, (name, size) in self._present.items():
            if job not in present:
                self.sizes[name].add(size)
        self._present = present

    def _size_of(self, job: Job) -> float:
        """Return the GPU-hours of a job's whole work at its widths."""
        return self._service_of_class(job.class_name) * job.scale

    def _service_of_class(self, name: str) -> float:
        first = self.queue.services[name][0]
        size = self.queue.menu.classes[name].phases[0].size_gpu_hours
        return size * first.gpu_hours_per_work_hour + first.later_gpu_hours


def build(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build Gittins' policy with the best fixed width of each class."""
    return BuiltPolicy(allocator=GittinsOrder(queue=best_srsf(site, options)))


GITTINS = PolicyEntry(
    name="gittins",
    kind="fleet",
    summary="a fixed fleet, sizes unknown, the best chance to end per GPU-hour first",
    build=build,
    options=frozenset({"gpu_type", "nodes"}),
    reads_progress=True,
)
