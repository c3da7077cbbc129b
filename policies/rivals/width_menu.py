"""The choices of rivals: widths of each class on one GPU type, and the fleet that a budget pays for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from policies.errors import InfeasibleBudget, InvalidProblem
from policies.memo import Memo
from policies.model import Budget, GpuType, InstanceType, JobClass, Problem, Width
from policies.rivals.ladder import WidthLadder, Widths, fastest_within, whole_job_ladder
from policies.site import PolicyOptions, Site, closest


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseService:
    """GPU-hours per hour of work of a phase at its width, and work and GPU-hours of the later phases."""

    gpu_hours_per_work_hour: float
    later_work_hours: float
    later_gpu_hours: float


@dataclass(frozen=True, kw_only=True)
class WidthMenu:
    """The allowed widths of each class and phase on one GPU type, and the fastest within a limit."""

    classes: Mapping[str, JobClass]
    gpu_type: str

    def __post_init__(self) -> None:
        for job_class in self.classes.values():
            if not all(self.gpu_type in phase.speedups for phase in job_class.phases):
                raise InvalidProblem(f"class {job_class.name} does not run on {self.gpu_type} in every phase")

    def fastest_within(self, class_name: str, phase: int, gpus: int) -> Width:
        """Return the fastest allowed width of at most `gpus`, or the narrowest allowed if all are wider."""
        return self._fastest[class_name, phase, gpus]

    @cached_property
    def _fastest(self) -> Memo[tuple[str, int, int], Width]:
        """The cache of `fastest_within`."""
        classes, gpu_type = self.classes, self.gpu_type
        return Memo(lambda asked: fastest_within(classes[asked[0]].phases[asked[1]], gpu_type, asked[2]))

    def services(self, class_name: str, widths: Widths) -> tuple[PhaseService, ...]:
        """Return the service of each phase at these widths."""
        return tuple(self._services_backwards(class_name, widths))[::-1]

    def _services_backwards(self, class_name: str, widths: Widths) -> Iterator[PhaseService]:
        work = service = 0.0
        for phase, width in zip(reversed(self.classes[class_name].phases), reversed(widths), strict=True):
            price = width.gpus / float(phase.speedups[self.gpu_type].speed_at(width.gpus))
            yield PhaseService(gpu_hours_per_work_hour=price, later_work_hours=work, later_gpu_hours=service)
            work, service = work + phase.size_gpu_hours, service + phase.size_gpu_hours * price

    def widths_within(self, class_name: str, gpus: int) -> Widths:
        """Return the fastest width of at most `gpus` for each phase of a class."""
        phases = range(len(self.classes[class_name].phases))
        return tuple(self.fastest_within(class_name, phase, gpus) for phase in phases)

    @cached_property
    def ladders(self) -> Mapping[str, WidthLadder]:
        """The whole-job ladder of each class."""
        return {name: whole_job_ladder(job_class, self.gpu_type) for name, job_class in self.classes.items()}

    @cached_property
    def thresholds(self) -> tuple[float, ...]:
        """All efficiencies at which some class changes its width, descending: the settings to try."""
        found = {float(e) for ladder in self.ladders.values() for e in ladder.efficiencies if 0.0 < e < 1.0}
        return tuple(sorted(found | {1.0}, reverse=True))

    @cached_property
    def limits(self) -> tuple[int, ...]:
        """All widths that some class allows in some phase, ascending: the limits to try."""
        phases = (phase for job_class in self.classes.values() for phase in job_class.phases)
        return tuple(sorted({int(w) for p in phases for w in p.speedups[self.gpu_type].whole_widths()}))


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedFleet:
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
        """The fleet in the form of `Allocation.nodes`."""
        return MappingProxyType({self.instance_type.name: self.nodes})


def menu_of(site: Site, options: PolicyOptions) -> WidthMenu:
    """Return the widths on the chosen GPU type, or on the type that does all the work at the least cost.

    Raises:
        InvalidProblem: when the chosen type does not exist, or no type runs everything.
    """
    classes = {job_class.name: job_class for job_class in site.problem.classes}
    if options.gpu_type is not None:
        if options.gpu_type not in site.instance_types:
            known = frozenset(site.instance_types)
            raise InvalidProblem(f"no GPU type {options.gpu_type!r}. {closest(options.gpu_type, known)}")
        return WidthMenu(classes=classes, gpu_type=options.gpu_type)
    costs = {gpu.name: _cost_of_all_work(gpu, site.problem) for gpu in site.problem.gpu_types}
    best = min(costs, key=lambda name: (costs[name], name))
    if math.isinf(costs[best]):
        raise InvalidProblem("no GPU type runs every phase of every class: this policy needs one that does")
    return WidthMenu(classes=classes, gpu_type=best)


def _cost_of_all_work(gpu: GpuType, problem: Problem) -> float:
    """Return the least cost per hour of all classes on one GPU type; infinite if a class cannot run there."""
    total = 0.0
    for job_class in problem.classes:
        for phase in job_class.phases:
            curve = phase.speedups.get(gpu.name)
            if curve is None:
                return math.inf
            widths = curve.whole_widths()
            gpu_hours = phase.size_gpu_hours * float((widths / curve.speed_at(widths)).min())
            total += job_class.arrivals_per_hour * gpu_hours * problem.price_of(gpu.name)
    return total


def fleet_of(site: Site, options: PolicyOptions, gpu_type: str) -> FixedFleet:
    """Return a fleet of the given size, or of as many nodes as the budget pays for; at most the cap.

    Raises:
        InfeasibleBudget: when no size is given and the budget does not pay for one node.
    """
    instance_type = site.instance_types[gpu_type]
    affordable = math.floor(site.budget.amount / site.node_price(instance_type))
    if options.nodes is None and affordable < 1:
        price = site.node_price(instance_type)
        raise InfeasibleBudget(
            f"{site.budget} does not pay for one {instance_type.name}, which takes "
            f"{Budget(amount=price, unit=site.budget.unit)}",
            least_spend=price,
            budget=None if site.budget.unit == "gpus" else site.budget.amount,
        )
    nodes = options.nodes or affordable
    return FixedFleet(
        instance_type=instance_type, nodes=nodes if site.max_nodes is None else min(nodes, site.max_nodes)
    )
