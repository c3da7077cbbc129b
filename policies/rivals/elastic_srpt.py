"""Elastic SRPT: a fixed fleet; the shortest jobs run, and widths follow how many there are. Sizes are known.

Rule 1. Jobs are admitted at their most efficient width, the least remaining service over weight first; a job
        that does not fit is skipped.
Rule 2. GPUs that are left go to the admitted jobs by one common price, as in the theory of malleable jobs on
        a fixed number of cores (Whittle allocation; Li, Harchol-Balter, Berg, arXiv 2602.01411). A step from
        k to l GPUs pays up to the price

            mu = w (s_l - s_k) / (l s_k - k s_l)

        per GPU-hour. The step with the highest price times i is taken first, where i counts the admitted
        jobs from the longest (1) to the shortest: short jobs get more, but never all, as in heSRPT (Berg,
        Vesilo, Harchol-Balter, Performance Evaluation 144, 2020).
Rule 3. A restart must pay. While every waiting job can be admitted beside the current widths, running jobs
        keep these, and are only widened, where that ends them earlier in spite of the restart. Else a step up
        to the current width is worth more by the restart that it saves.

    symbol   here         meaning
    k, l     gpus         GPUs of a width and of the next wider one
    s        speed        speed-up at a width
    w        weight       how much the job counts
    mu       price        hours of waiting that a GPU-hour is worth

Cost: O((jobs + steps) log jobs) per call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

from policies.answer import Allocation
from policies.memo import Memo
from policies.model import Job, JobId, Money, Width
from policies.rivals.width_menu import FixedFleet, WidthMenu, fleet_of, menu_of
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A width that is best at some price: its GPUs and speed, and the price up to which it is the better."""

    gpus: int
    speed: float
    price: float


@dataclass(frozen=True, kw_only=True)
class ElasticSrpt:
    """Hold a fixed fleet; admit the shortest jobs, and share the rest of the GPUs at one price."""

    menu: WidthMenu
    fleet: FixedFleet

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the widths of the jobs that run."""
        in_line = sorted(jobs, key=lambda job: (self.service_of(job) / job.weight, job.arrived_at, job.id))
        kept = {job.id: job.width.gpus for job in in_line if job.width is not None and self._may_keep(job)}
        found = self._admitted(in_line, kept)
        if len(found) < len(in_line) and kept:
            # Not all fit beside the running ones: widths are chosen anew.
            kept = {}
            found = self._admitted(in_line, kept)
        self._widen([job for job in in_line if job.id in found], found, kept)
        return Allocation(
            widths={job: Width(self.menu.gpu_type, gpus) for job, gpus in found.items()},
            nodes=self.fleet.count_by_type,
        )

    def service_of(self, job: Job) -> float:
        """Return the GPU-hours that a job's work left takes at the most efficient width of its phase."""
        least = self._rungs[job.class_name, job.phase][0]
        return job.remaining_gpu_hours * least.gpus / least.speed

    def _may_keep(self, job: Job) -> bool:
        """Return whether a job's current width is on the ladder of its phase."""
        rungs = self._rungs[job.class_name, job.phase]
        return job.width is not None and any(rung.gpus == job.width.gpus for rung in rungs)

    def _admitted(self, in_line: Sequence[Job], kept: dict[JobId, int]) -> dict[JobId, int]:
        """Return the GPUs of the jobs that fit, in order: the kept ones, or the most efficient number."""
        found: dict[JobId, int] = {}
        left = self.fleet.gpus - sum(kept.values())
        for job in in_line:
            gpus = kept.get(job.id)
            if gpus is None:
                gpus = self._rungs[job.class_name, job.phase][0].gpus
                if gpus > left:
                    continue
                left -= gpus
            found[job.id] = gpus
        return found

    def _widen(self, in_line: Sequence[Job], found: dict[JobId, int], kept: dict[JobId, int]) -> None:
        """Give the GPUs that are left to the steps of highest worth; kept widths change only if that pays."""
        left = self.fleet.gpus - sum(found.values())
        steps: list[tuple[float, int, int]] = []
        for rank, job in enumerate(in_line):
            rungs = self._rungs[job.class_name, job.phase]
            at = next(number for number, rung in enumerate(rungs) if rung.gpus == found[job.id])
            if at + 1 < len(rungs):
                steps.append((-self._price(job, at + 1) * (len(in_line) - rank), rank, at + 1))
        heapify(steps)
        while steps and left > 0:
            _, rank, number = heappop(steps)
            job = in_line[rank]
            rungs = self._rungs[job.class_name, job.phase]
            more = rungs[number].gpus - found[job.id]
            if more > left or (job.id in kept and not self._pays(job, rungs[number])):
                continue
            left -= more
            found[job.id] = rungs[number].gpus
            if number + 1 < len(rungs):
                worth = self._price(job, number + 1) * (len(in_line) - rank)
                heappush(steps, (-worth, rank, number + 1))

    def _price(self, job: Job, number: int) -> float:
        """Return the price up to which a step pays; up to the current width it also saves a restart."""
        rungs = self._rungs[job.class_name, job.phase]
        price = rungs[number].price * job.weight
        if job.width is None or rungs[number].gpus > job.width.gpus:
            return price
        saved = job.remaining_gpu_hours * (1.0 / rungs[number - 1].speed - 1.0 / rungs[number].speed)
        restart = self.menu.classes[job.class_name].rescale_hours
        return price * (1.0 + restart / saved) if saved > 0.0 else math.inf

    def _pays(self, job: Job, wider: Rung) -> bool:
        """Return whether a running job ends earlier at a wider width in spite of its restart."""
        rungs = self._rungs[job.class_name, job.phase]
        held = next(rung for rung in rungs if job.width is not None and rung.gpus == job.width.gpus)
        saved = job.remaining_gpu_hours * (1.0 / held.speed - 1.0 / wider.speed)
        return saved > self.menu.classes[job.class_name].rescale_hours

    @cached_property
    def _rungs(self) -> Memo[tuple[str, int], tuple[Rung, ...]]:
        """The ladder of each class and phase, from the most efficient width to the fastest."""
        return Memo(lambda asked: self._ladder(*asked))

    def _ladder(self, class_name: str, phase: int) -> tuple[Rung, ...]:
        curve = self.menu.classes[class_name].phases[phase].speedups[self.menu.gpu_type]
        widths = curve.whole_widths()
        widths = widths[widths <= self.fleet.gpus] if widths[0] <= self.fleet.gpus else widths[:1]
        options = list(zip(widths.tolist(), curve.speed_at(widths).tolist(), strict=True))
        gpus, speed = min(options, key=lambda option: (option[0] / option[1], -option[1]))
        found = [Rung(gpus=gpus, speed=speed, price=0.0)]
        while True:
            last = found[-1]
            faster = [
                Rung(
                    gpus=gpus,
                    speed=speed,
                    price=(speed - last.speed) / (gpus * last.speed - last.gpus * speed),
                )
                for gpus, speed in options
                if speed > last.speed and gpus * last.speed > last.gpus * speed
            ]
            if not faster:
                return tuple(found)
            found.append(max(faster, key=lambda rung: (rung.price, rung.gpus)))


def build(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build elastic SRPT on the fleet that the budget pays for."""
    menu = menu_of(site, options)
    return BuiltPolicy(allocator=ElasticSrpt(menu=menu, fleet=fleet_of(site, options, menu.gpu_type)))


ELASTIC_SRPT = PolicyEntry(
    name="elastic-srpt",
    kind="fleet",
    summary="a fixed fleet, the shortest jobs run, and share the GPUs at one price",
    build=build,
    options=frozenset({"gpu_type", "nodes"}),
    reads_progress=True,
)
