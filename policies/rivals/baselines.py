"""Baselines: what a user would do instead of optimising, each without avoidable mistakes.

    policy                nodes                        width of a job
    EqualWidth            rented as jobs need them     the fastest within the same limit for all
    EfficiencyThreshold   rented as jobs need them     the fastest that wastes no more than the same share
    StaticFifo            a fixed number               as EqualWidth; first come, first served
    StaticSrsf            a fixed number               given by class; shortest remaining service first
    EqualShare            a fixed number               the fastest within an equal share of the fleet

"The fastest within k" is the allowed width of at most k GPUs with the highest speed (the narrowest of
equals), and the narrowest allowed one where all are wider: no baseline takes GPUs that slow its job down.
Renting what each job asks for on arrival, as SkyPilot and Karpenter do, is EqualWidth with the width that is
asked; an idle hold is the site's rule, not the policy's. `greedy` holds one more baseline.
Cost: O(jobs) per call, O(jobs log jobs) where jobs are sorted.

    symbol   here           meaning
    n        len(jobs)      jobs in the system
    G        fleet.gpus     GPUs of the fixed fleet
    k        gpus_per_job   the limit on a job's width
    e        efficiency     least GPU-hours of work over those at the width, 0..1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from policies.answer import Allocation
from policies.errors import InvalidProblem
from policies.model import InstanceType, Job, JobClass, JobId, Money, Width
from policies.rivals.ladder import Ladder, Widths, fastest_within, job_hours, whole_job_ladder

_Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a phase takes at a width, GPU-hours per hour of work, and the work and service after it."""

    gpu_hours_per_work_hour: float
    later_work_hours: float
    later_gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthMenu:
    """The allowed widths of each class and phase on one GPU type, and the fastest within a limit."""

    classes: Mapping[str, JobClass]
    gpu_type: str
    _known: dict[_Key, Width] = field(default_factory=dict, repr=False, compare=False)
    _services: dict[tuple[str, Widths], tuple[Service, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _ladders: dict[str, Ladder] = field(default_factory=dict, repr=False, compare=False)
    _thresholds: list[float] = field(default_factory=list, repr=False, compare=False)
    _limits: list[int] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self) -> None:
        for job_class in self.classes.values():
            if not all(self.gpu_type in phase.speedups for phase in job_class.phases):
                raise InvalidProblem(f"class {job_class.name} does not run on {self.gpu_type} in every phase")

    def fastest_within(self, class_name: str, phase: int, gpus: int) -> Width:
        """Return the fastest allowed width of at most `gpus`; the narrowest allowed where none is."""
        key = (class_name, phase, gpus)
        width = self._known.get(key)
        if width is None:
            found = fastest_within(self.classes[class_name].phases[phase], self.gpu_type, gpus)
            width = self._known[key] = found
        return width

    def services(self, class_name: str, widths: Widths) -> tuple[Service, ...]:
        """Return, phase by phase, what a job takes at these widths."""
        key = (class_name, widths)
        found = self._services.get(key)
        if found is None:
            found = self._services[key] = tuple(self._services_backwards(class_name, widths))[::-1]
        return found

    def _services_backwards(self, class_name: str, widths: Widths) -> Iterator[Service]:
        """Yield the service of each phase, last phase first."""
        work = service = 0.0
        for phase, width in zip(reversed(self.classes[class_name].phases), reversed(widths), strict=True):
            price = width.gpus / float(phase.speedups[self.gpu_type].speed_at(width.gpus))
            yield Service(gpu_hours_per_work_hour=price, later_work_hours=work, later_gpu_hours=service)
            work, service = work + phase.size_gpu_hours, service + phase.size_gpu_hours * price

    def widths_within(self, class_name: str, gpus: int) -> Widths:
        """Return the fastest width within a limit of each phase of a class."""
        phases = range(len(self.classes[class_name].phases))
        return tuple(self.fastest_within(class_name, phase, gpus) for phase in phases)

    def ladder(self, class_name: str) -> Ladder:
        """Return what a whole job of the class takes at each width that all its phases allow."""
        ladder = self._ladders.get(class_name)
        if ladder is None:
            ladder = whole_job_ladder(self.classes[class_name], self.gpu_type)
            self._ladders[class_name] = ladder
        return ladder

    def thresholds(self) -> list[float]:
        """Return every efficiency at which some class changes its width, descending: those worth trying."""
        if not self._thresholds:
            found = {1.0}
            for name in self.classes:
                found |= {float(e) for e in self.ladder(name).efficiencies if 0.0 < e < 1.0}
            self._thresholds.extend(sorted(found, reverse=True))
        return self._thresholds

    def limits(self) -> list[int]:
        """Return every width that some class allows in some phase, ascending: the limits worth trying."""
        if not self._limits:
            phases = (phase for job_class in self.classes.values() for phase in job_class.phases)
            found = {int(w) for phase in phases for w in phase.speedups[self.gpu_type].whole_widths()}
            self._limits.extend(sorted(found))
        return self._limits


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
    """Rent on arrival; every job gets the fastest width within ``gpus_per_job``.

    A `share` of the jobs, by their draws, gets the next higher limit, so that any money can be spent.
    """

    menu: WidthMenu
    gpus_per_job: int
    share: float = 0.0

    def __post_init__(self) -> None:
        _check_share(self.share)

    def width_of(self, job: Job) -> Width:
        """Return the width of one job; the others do not matter."""
        limit = self.gpus_per_job
        if job.draw < self.share:
            limit = min((wider for wider in self.menu.limits() if wider > limit), default=limit)
        return self.menu.fastest_within(job.class_name, job.phase, limit)

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job, and leave the nodes to the widths."""
        return Allocation(widths={job.id: self.width_of(job) for job in jobs})


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyThreshold:
    """Rent on arrival; every job gets the fastest width whose efficiency is at least ``efficiency``.

    A job keeps one width for life. Efficiency is that of the whole job: the GPU-hours of its work at the
    narrowest width over those at the width, T(1) / (k T(k)) where one GPU is allowed. Start-ups do not count,
    so the choice does not depend on a job's scale. The strongest simple rule that we know of: it needs run
    times by width and one number. A `share` of the jobs, by their draws, follows the next lower threshold.
    """

    menu: WidthMenu
    efficiency: float
    share: float = 0.0

    def __post_init__(self) -> None:
        _check_share(self.share)
        if not 0.0 <= self.efficiency <= 1.0:
            raise InvalidProblem(f"an efficiency is a number from 0 to 1; got {self.efficiency!r}")

    def widths_of(self, class_name: str, *, lower: bool = False) -> Widths:
        """Return the width of each phase of a class; those of the next lower threshold where asked."""
        ladder, efficiency = self.menu.ladder(class_name), self.efficiency
        if lower:
            efficiency = next((e for e in self.menu.thresholds() if e < efficiency), efficiency)
        return ladder.widths[ladder.fastest_at(efficiency)]

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job, and leave the nodes to the widths."""
        kinds = {(job.class_name, job.draw < self.share) for job in jobs}
        plans = {(name, lower): self.widths_of(name, lower=lower) for name, lower in kinds}
        return Allocation(
            widths={job.id: plans[job.class_name, job.draw < self.share][job.phase] for job in jobs}
        )


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
class StaticSrsf:
    """Hold a fixed fleet; the jobs with the least remaining service over weight run, others are stopped.

    Service is GPU-hours: time times width (Gu et al., Tiresias, NSDI 2019, with sizes known). A job that no
    longer fits is passed over, so that no GPU is idle while a job could use it. `plans` are the widths
    of each class, phase by phase.
    """

    menu: WidthMenu
    fleet: Fleet
    plans: Mapping[str, Widths]

    @classmethod
    def within(cls, *, menu: WidthMenu, fleet: Fleet, gpus_per_job: int) -> StaticSrsf:
        """Return the policy whose jobs have the fastest widths within one limit for all."""
        limit = min(gpus_per_job, fleet.gpus)
        plans = {name: menu.widths_within(name, limit) for name in menu.classes}
        return cls(menu=menu, fleet=fleet, plans=plans)

    def width_of(self, job: Job) -> Width:
        """Return the width of a job in its phase."""
        return self.plans[job.class_name][job.phase]

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return widths, least remaining service first, of the jobs that fit."""
        widths: dict[JobId, Width] = {}
        left = self.fleet.gpus
        for job in sorted(jobs, key=lambda job: (self.service_of(job) / job.weight, job.arrived_at, job.id)):
            width = self.width_of(job)
            if width.gpus <= left:
                widths[job.id] = width
                left -= width.gpus
        return Allocation(widths=widths, nodes=self.fleet.count_by_type)

    def service_of(self, job: Job) -> float:
        """Return the GPU-hours of work that a job still takes at its widths, phase by phase."""
        at = self.menu.services(job.class_name, self.plans[job.class_name])[job.phase]
        left = max(0.0, job.remaining_gpu_hours - at.later_work_hours * job.scale)
        return left * at.gpu_hours_per_work_hour + at.later_gpu_hours * job.scale


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


def _check_share(share: float) -> None:
    """Raise unless a share of jobs is one."""
    if not 0.0 <= share <= 1.0:
        raise InvalidProblem(f"a share of jobs is a number from 0 to 1; got {share!r}")


def oldest_first(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs in order of arrival, ties by id."""
    return sorted(jobs, key=lambda job: (job.arrived_at, job.id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What fixed widths come to in the long run: hours per job, and GPUs held on average."""

    mean_jct_hours: float
    gpus: float


def promise_of(plans: Mapping[str, Widths], classes: Mapping[str, JobClass]) -> Promise:
    """Return what one plan per class comes to: GPUs held are arrivals per hour times GPU-hours per job."""
    held = waited = arrivals = 0.0
    for name, job_class in classes.items():
        hours, gpu_hours = job_hours(job_class, plans[name])
        held += job_class.arrivals_per_hour * gpu_hours
        waited += job_class.arrivals_per_hour * hours
        arrivals += job_class.arrivals_per_hour
    return Promise(mean_jct_hours=waited / arrivals, gpus=held)


def equal_width_promise(menu: WidthMenu, *, gpus_per_job: int) -> Promise:
    """Return what one limit for all comes to."""
    return promise_of({name: menu.widths_within(name, gpus_per_job) for name in menu.classes}, menu.classes)


def efficiency_promise(menu: WidthMenu, *, efficiency: float) -> Promise:
    """Return what one efficiency for all comes to."""
    rule = EfficiencyThreshold(menu=menu, efficiency=efficiency)
    return promise_of({name: rule.widths_of(name) for name in menu.classes}, menu.classes)
