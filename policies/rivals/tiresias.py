"""Tiresias: a fixed fleet with the widths that users ask for; jobs with little attained service come first.

Source: Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, discretised
two-dimensional least attained service. Two queues split at 16 GPU-hours and rounds of 60 s are as in Pollux's
simulator, and so are the users' "tuned" widths (`requested_widths`). It knows neither sizes nor speed-ups.

    symbol   here        meaning
    a        attained    GPU-hours of work that a job had
    Q        threshold   GPU-hours at which a job moves to the second queue

Within a queue the older job comes first; a job that does not fit is skipped. In Pollux's simulator the second
queue is ordered by the time of the move instead.
Cost: O(jobs log jobs) per round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from policies.answer import Allocation
from policies.errors import InvalidProblem
from policies.memo import Memo
from policies.model import Job, JobId, Money, Width
from policies.rivals.ladder import Widths
from policies.rivals.requested_widths import RequestedWidths
from policies.rivals.rounds import ROUND_SECONDS, is_due, widths_held
from policies.rivals.width_menu import FixedFleet, fleet_of, menu_of
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site
from policies.speedup import Floats

THRESHOLD_GPU_HOURS = 16.0


@dataclass(frozen=True, kw_only=True)
class Tiresias:
    """Hold a fixed fleet; in rounds, jobs below the threshold first, then the others, oldest first."""

    asked: RequestedWidths
    fleet: FixedFleet
    threshold_gpu_hours: float = THRESHOLD_GPU_HOURS
    round_seconds: float = ROUND_SECONDS

    def __post_init__(self) -> None:
        if not self.threshold_gpu_hours > 0.0:
            raise InvalidProblem(f"a threshold is more than 0 GPU-hours; got {self.threshold_gpu_hours!r}")

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the widths of the jobs that may run; between two rounds, the current widths."""
        if not is_due(money, self.round_seconds):
            return Allocation(widths=widths_held(jobs), nodes=self.fleet.count_by_type)
        widths: dict[JobId, Width] = {}
        left = self.fleet.gpus
        for job in sorted(jobs, key=self._rank):
            width = self.width_of(job)
            if width.gpus <= left:
                widths[job.id] = width
                left -= width.gpus
        return Allocation(widths=widths, nodes=self.fleet.count_by_type, memory=(float(self.fleet.nodes),))

    def width_of(self, job: Job) -> Width:
        """Return the width that the job's user asked for; on a smaller fleet, the fastest that fits on it."""
        width = self.asked.widths_of(job)[job.phase]
        if width.gpus <= self.fleet.gpus:
            return width
        return self.asked.menu.fastest_within(job.class_name, job.phase, self.fleet.gpus)

    def attained(self, job: Job) -> float:
        """Return the GPU-hours of work that a job had at its width."""
        phases = self.asked.menu.classes[job.class_name].phases
        prices = self._prices[job.class_name, self.asked.widths_of(job)]
        sizes = np.array([phase.size_gpu_hours for phase in phases]) * job.scale
        done = np.zeros(len(sizes))
        done[: job.phase] = sizes[: job.phase]
        left = job.remaining_gpu_hours - float(sizes[job.phase + 1 :].sum())
        done[job.phase] = max(0.0, float(sizes[job.phase]) - left)
        return float(done @ prices)

    @cached_property
    def _prices(self) -> Memo[tuple[str, Widths], Floats]:
        """GPU-hours per hour of work in each phase, by class and widths."""
        menu = self.asked.menu

        def prices(asked: tuple[str, Widths]) -> Floats:
            services = menu.services(*asked)
            return np.array([service.gpu_hours_per_work_hour for service in services])

        return Memo(prices)

    def _rank(self, job: Job) -> tuple[bool, float, JobId]:
        """Return the sort key of jobs."""
        return (self.attained(job) >= self.threshold_gpu_hours, job.arrived_at, job.id)


def build(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build Tiresias on the fleet that the budget pays for, with the widths that users ask for."""
    menu = menu_of(site, options)
    return BuiltPolicy(
        allocator=Tiresias(asked=RequestedWidths(menu=menu), fleet=fleet_of(site, options, menu.gpu_type)),
        round_seconds=ROUND_SECONDS,
    )


TIRESIAS = PolicyEntry(
    name="tiresias",
    kind="fleet",
    summary="a fixed fleet, widths as users ask, jobs that had little service first",
    build=build,
    options=frozenset({"gpu_type", "nodes"}),
    reads_progress=True,
)
