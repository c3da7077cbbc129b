"""Baselines: what a user would do instead of optimising, each without avoidable mistakes.

    policy       nodes                        width of a job
    EqualWidth   rented as jobs need them     the fastest within the same limit for all
    StaticFifo   a fixed number               the same; first come, first served, nobody overtakes
    EqualShare   a fixed number               the fastest within an equal share of the fleet

"The fastest within k" is the allowed width of at most k GPUs with the highest speed (the narrowest of
equals), and the narrowest allowed one where all are wider: no baseline takes GPUs that slow its job down.
Cost: O(jobs) per call.

    symbol   here           meaning
    n        len(jobs)      jobs in the system
    G        fleet.gpus     GPUs of the fixed fleet
    k        gpus_per_job   the limit on a job's width
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from policies.errors import InvalidProblem
from policies.model import Allocation, InstanceType, Job, JobClass, JobId, Money, Width

_Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthMenu:
    """The allowed widths of each class and phase on one GPU type, and the fastest within a limit."""

    classes: Mapping[str, JobClass]
    gpu_type: str
    _known: dict[_Key, Width] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for job_class in self.classes.values():
            if not all(self.gpu_type in phase.speedups for phase in job_class.phases):
                raise InvalidProblem(f"class {job_class.name} does not run on {self.gpu_type} in every phase")

    def fastest_within(self, class_name: str, phase: int, gpus: int) -> Width:
        """Return the fastest allowed width of at most `gpus`; the narrowest allowed where none is."""
        key = (class_name, phase, gpus)
        width = self._known.get(key)
        if width is None:
            curve = self.classes[class_name].phases[phase].speedups[self.gpu_type]
            allowed = curve.whole_widths()
            fitting = allowed[allowed <= gpus]
            best = int(fitting[np.argmax(curve.speed_at(fitting))]) if len(fitting) else int(allowed[0])
            width = self._known[key] = Width(self.gpu_type, best)
        return width

    def limits(self) -> list[int]:
        """Return every width that some class allows in some phase, ascending: the limits worth trying."""
        phases = (phase for job_class in self.classes.values() for phase in job_class.phases)
        return sorted({int(w) for phase in phases for w in phase.speedups[self.gpu_type].whole_widths()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fixed number of nodes of one type."""

    instance_type: InstanceType
    nodes: int

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise InvalidProblem(f"a fleet has at least one node; got {self.nodes}")

    @property
    def gpus(self) -> int:
        """GPUs of the whole fleet."""
        return self.nodes * self.instance_type.gpus

    @property
    def count_by_type(self) -> Mapping[str, int]:
        """The fleet as an allocation names it."""
        return MappingProxyType({self.instance_type.name: self.nodes})


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualWidth:
    """Rent on arrival; every job gets the fastest width within ``gpus_per_job``."""

    menu: WidthMenu
    gpus_per_job: int

    def width_of(self, job: Job) -> Width:
        """Return the width of one job; the others do not matter."""
        return self.menu.fastest_within(job.class_name, job.phase, self.gpus_per_job)

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job, and leave the nodes to the widths."""
        return Allocation(widths={job.id: self.width_of(job) for job in jobs})


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFifo:
    """Hold a fixed fleet; oldest first, every job gets the fastest width within ``gpus_per_job``."""

    menu: WidthMenu
    fleet: Fleet
    gpus_per_job: int

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return widths oldest first, up to the first job that no longer fits."""
        widths: dict[JobId, Width] = {}
        left = self.fleet.gpus
        limit = min(self.gpus_per_job, self.fleet.gpus)
        for job in oldest_first(jobs):
            width = self.menu.fastest_within(job.class_name, job.phase, limit)
            left -= width.gpus
            if left < 0:
                break
            widths[job.id] = width
        return Allocation(widths=widths, nodes=self.fleet.count_by_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualShare:
    """Hold a fixed fleet; every job gets the fastest width within ``G // n``, at least ``min_gpus``."""

    menu: WidthMenu
    fleet: Fleet
    min_gpus: int = 1

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job, oldest first, until the GPUs run out."""
        widths: dict[JobId, Width] = {}
        left = self.fleet.gpus
        share = max(self.min_gpus, self.fleet.gpus // max(1, len(jobs)))
        for job in oldest_first(jobs):
            width = self.menu.fastest_within(job.class_name, job.phase, share)
            if width.gpus <= left:
                widths[job.id] = width
                left -= width.gpus
        return Allocation(widths=widths, nodes=self.fleet.count_by_type)


def oldest_first(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs in order of arrival, ties by id."""
    return sorted(jobs, key=lambda job: (job.arrived_at, job.id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What one limit on all widths comes to in the long run: hours per job, and GPUs held on average."""

    gpus_per_job: int
    mean_jct_hours: float
    gpus: float


def equal_width_promise(menu: WidthMenu, *, gpus_per_job: int) -> Promise:
    """Return what a limit comes to: GPUs held are arrivals per hour times GPU-hours per job."""
    held = waited = arrivals = 0.0
    for job_class in menu.classes.values():
        hours, gpu_hours = _hours_within(job_class, menu, gpus_per_job)
        held += job_class.arrivals_per_hour * gpu_hours
        waited += job_class.arrivals_per_hour * hours
        arrivals += job_class.arrivals_per_hour
    return Promise(gpus_per_job=gpus_per_job, mean_jct_hours=waited / arrivals, gpus=held)


def _hours_within(job_class: JobClass, menu: WidthMenu, gpus_per_job: int) -> tuple[float, float]:
    """Return (hours, GPU-hours) of one job at its fastest widths within a limit, overheads included."""
    hours = gpu_hours = 0.0
    before: Width | None = None
    for number, phase in enumerate(job_class.phases):
        width = menu.fastest_within(job_class.name, number, gpus_per_job)
        took = phase.size_gpu_hours / float(phase.speedups[width.gpu_type].speed_at(width.gpus))
        if before is None:
            took += job_class.startup_hours
        elif width != before:
            took += job_class.rescale_hours
        hours, gpu_hours, before = hours + took, gpu_hours + took * width.gpus, width
    return hours, gpu_hours
