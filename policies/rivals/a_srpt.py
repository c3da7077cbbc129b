"""A-SRPT: jobs start in the order in which a virtual single machine under SRPT would finish them.

A reconstruction after Luo, Liu, Lee, Shroff, "Prediction-Assisted Online Distributed Deep Learning Workload
Scheduling in GPU Clusters" (arXiv 2501.05563, 2025). A virtual machine as fast as the whole fleet serves all
arriving jobs preemptively, the least work left first. When the virtual machine finishes a job, the job is
queued for the real fleet, and runs there to its end at its width.

    symbol   here      meaning
    v_j      service   GPU-hours of the job at its width, by its estimated size; over its weight for the order
    G        gpus      GPUs of the fleet: the virtual machine does G GPU-hours per hour

Better than the original: widths are the best fixed ones for the fleet (`fixed_widths`), not those that users
ask for; a job that does not fit is skipped; and GPUs that no finished job can use go to the next job in the
virtual order, so that no GPU idles while a job waits. Left out: the forecast of sizes by a random forest (the
site's estimates are used), and the mapping of a job's graph to servers (the site's placer does that).

The virtual machine remembers jobs that have left, so the policy has state; when built again, it starts with
the jobs that are present. Cost: O(jobs log jobs) per call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from policies.answer import Allocation
from policies.model import Job, JobId, Money, Width
from policies.rivals.baselines import StaticSrsf
from policies.rivals.fixed_widths import best_srsf
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site

_NOTHING = 1e-12


@dataclass(slots=True, kw_only=True)
class VirtualMachine:
    """A machine that serves the job with the least work left over its weight first.

    `ended` are the instants, in hours, at which jobs ended, in this order.
    """

    speed: float
    now: float = 0.0
    left: dict[JobId, float] = field(default_factory=dict)
    weights: dict[JobId, float] = field(default_factory=dict)
    ended: dict[JobId, float] = field(default_factory=dict)

    def add(self, job: JobId, work: float, *, weight: float, at: float) -> None:
        """Add a job that arrives at `at`; instants are in hours and must not decrease."""
        self.run_until(at)
        self.left[job], self.weights[job] = work, weight

    def run_until(self, hour: float) -> None:
        """Serve jobs until the instant `hour`."""
        while self.left and self.now < hour:
            first = self.order()[0]
            took = min(self.left[first] / self.speed, hour - self.now)
            self.now += took
            self.left[first] -= took * self.speed
            if self.left[first] <= _NOTHING:
                del self.left[first], self.weights[first]
                self.ended[first] = self.now
        self.now = max(self.now, hour)

    def order(self) -> list[JobId]:
        """Return the unfinished jobs in order of service."""
        return sorted(self.left, key=lambda job: (self.left[job] / self.weights[job], job))


class VirtualOrder:
    """Hold a fixed fleet; running jobs stay, the others start in the order of the virtual machine.

    The virtual machine keeps its state between calls.
    """

    def __init__(self, *, queue: StaticSrsf) -> None:
        self.queue = queue
        self.machine = VirtualMachine(speed=float(queue.fleet.gpus))

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the widths of running jobs, and of the waiting jobs that fit, in the virtual order."""
        by_id = {job.id: job for job in jobs}
        running = [job.id for job in jobs if job.width is not None]
        widths: dict[JobId, Width] = {}
        left = self.queue.fleet.gpus
        for job in dict.fromkeys((*running, *self.order(jobs, now=now))):
            width = self.queue.width_of(by_id[job])
            if width.gpus <= left:
                widths[job] = width
                left -= width.gpus
        return Allocation(widths=widths, nodes=self.queue.fleet.count_by_type)

    def order(self, jobs: Sequence[Job], *, now: float) -> list[JobId]:
        """Return the jobs present in the order in which the virtual machine ends them."""
        machine, present = self.machine, {job.id for job in jobs}
        fresh = [job for job in jobs if job.id not in machine.left and job.id not in machine.ended]
        for job in sorted(fresh, key=lambda job: (job.arrived_at, job.id)):
            at = max(machine.now, job.arrived_at / 3600.0)
            machine.add(job.id, self.queue.service_of(job), weight=job.weight, at=at)
        machine.run_until(now / 3600.0)
        for gone in machine.ended.keys() - present:
            del machine.ended[gone]
        return [job for job in (*machine.ended, *machine.order()) if job in present]


def build(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build A-SRPT with the best fixed width of each class."""
    return BuiltPolicy(allocator=VirtualOrder(queue=best_srsf(site, options)))


A_SRPT = PolicyEntry(
    name="a-srpt",
    kind="fleet",
    summary="a fixed fleet, jobs start in the order in which a single machine would finish them",
    build=build,
    options=frozenset({"gpu_type", "nodes"}),
    reads_progress=True,
)
