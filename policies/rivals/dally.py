"""Dally: least attained service first, weighted by network sensitivity; jobs wait a while for few nodes.

A reconstruction after Sharma, Bhasi, Singh, Kesidis, Kandemir, Das, "GPU Cluster Scheduling for
Network-Sensitive Deep Learning" (arXiv 2401.16492, 2024). Two rules on a fixed fleet, each minute:

    who runs   the least a_j n_j first, in levels that grow by LEVEL, then the older job; others are stopped
    where      a waiting job takes GPUs on more nodes than its width needs only after its delay timer

    symbol   here          meaning
    a_j      attained      GPU-hours of work that a job had at its width
    f_j      share         seconds of sending per second of computing of a job of 2 or more GPUs across nodes
    n_j      sensitivity   1 / (1 + f_j): a job that loses more to the network goes first
    d_j      timer         hours that it would lose on more nodes: its hours left times f_j

Better than the original: levels of attained service instead of two queues; a job's timer is the time that the
better placement saves, where Dally tunes the timers of a tier from past waits; widths are the best fixed ones
for the fleet (`fixed_widths`), not those that users ask for. Left out: racks. A cloud has two tiers, one node
and several, and only classes that state their traffic (`network`) are slower across nodes.

Cost: O(jobs log jobs) per round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from policies.answer import Allocation
from policies.links.contention import Link
from policies.links.link_share import network_share
from policies.model import Job, JobId, Money, Width
from policies.rivals.baselines import StaticSrsf
from policies.rivals.fixed_widths import best_srsf
from policies.rivals.rounds import ROUND_SECONDS, is_due, widths_held
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site

LEVEL = 4.0
"""Ratio of the attained service of a level to that of the level before; large, so that jobs rarely swap."""
FIRST_GPU_HOURS = 0.25
"""Upper end of the first level, in weighted GPU-hours of attained service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dally:
    """Hold a fixed fleet; in rounds, run jobs with little weighted service first; they wait for few nodes."""

    queue: StaticSrsf
    round_seconds: float = ROUND_SECONDS

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the widths of the jobs that may run; between two rounds, the current widths."""
        fleet = self.queue.fleet
        if not is_due(money, self.round_seconds):
            return Allocation(widths=widths_held(jobs), nodes=fleet.count_by_type)
        widths: dict[JobId, Width] = {}
        left = fleet.gpus
        for job in sorted(jobs, key=self._rank):
            width = self.queue.width_of(job)
            if width.gpus <= left:
                widths[job.id] = width
                left -= width.gpus
        picky = [job.id for job in jobs if job.width is None and self.is_patient(job, now=now)]
        return Allocation(
            widths=widths, nodes=fleet.count_by_type, memory=(float(fleet.nodes),), compact=frozenset(picky)
        )

    def attained(self, job: Job) -> float:
        """Return the GPU-hours of work that a job had at its widths."""
        first = self.queue.services[job.class_name][0]
        size = self.queue.menu.classes[job.class_name].phases[0].size_gpu_hours
        whole = size * first.gpu_hours_per_work_hour + first.later_gpu_hours
        return max(0.0, whole * job.scale - self.queue.service_of(job))

    def share_of(self, job: Job) -> float:
        """Return the seconds of sending per second of computing of a job that spans nodes."""
        need = self.queue.menu.classes[job.class_name].network
        if need is None or self.queue.width_of(job).gpus == 1:
            return 0.0
        return network_share(Link.of_gigabits(self.queue.fleet.instance_type.link_gigabits_per_second), need)

    def is_patient(self, job: Job, *, now: float) -> bool:
        """Return whether the job's delay timer still runs, so that it should wait for few nodes."""
        width = self.queue.width_of(job)
        timer_hours = self.share_of(job) * self.queue.service_of(job) / width.gpus
        return (now - job.arrived_at) / 3600.0 < timer_hours

    def _rank(self, job: Job) -> tuple[int, float, JobId]:
        """Return the sort key of jobs."""
        weighed = self.attained(job) / (1.0 + self.share_of(job)) / job.weight
        level = 0 if weighed < FIRST_GPU_HOURS else 1 + math.floor(math.log(weighed / FIRST_GPU_HOURS, LEVEL))
        return level, job.arrived_at, job.id


def build(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build Dally with the best fixed width of each class."""
    return BuiltPolicy(allocator=Dally(queue=best_srsf(site, options)), round_seconds=ROUND_SECONDS)


DALLY = PolicyEntry(
    name="dally",
    kind="fleet",
    summary="a fixed fleet, little service first, jobs wait a while to be on one node",
    build=build,
    options=frozenset({"gpu_type", "nodes"}),
    reads_progress=True,
)
