"""Baselines: simple rules instead of optimisation, each without avoidable mistakes.

    policy                nodes                        width of a job
    EqualWidth            rented as jobs need them     the fastest within the same limit for all
    EfficiencyThreshold   rented as jobs need them     the fastest that wastes no more than the same share
    StaticFifo            a fixed number               as EqualWidth; first come, first served
    StaticSrsf            a fixed number               given by class; shortest remaining service first
    EqualShare            a fixed number               the fastest within an equal share of the fleet

"The fastest within k" is the allowed width of at most k GPUs with the highest speed (the narrowest of
equals), or the narrowest allowed one if all are wider. So no baseline takes GPUs that slow its job down.
Renting what each job asks for on arrival, as SkyPilot and Karpenter do, is in `requested_widths`. How long
idle nodes are kept is the site's rule, not the policy's.
Cost: O(jobs) per call, O(jobs log jobs) where jobs are sorted.

    symbol   here           meaning
    n        len(jobs)      jobs in the system
    G        fleet.gpus     GPUs of the fixed fleet
    k        gpus_per_job   the limit on a job's width
    e        efficiency     least GPU-hours of work over those at the width, 0..1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from policies.answer import Allocation
from policies.errors import InvalidProblem
from policies.model import Job, JobId, Money, Width
from policies.rivals.ladder import Widths
from policies.rivals.long_run_averages import LongRunAverages, fastest_affordable, long_run_of
from policies.rivals.width_menu import FixedFleet, PhaseService, WidthMenu, fleet_of, menu_of
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualWidth:
    """Rent on arrival; every job gets the fastest width within ``gpus_per_job``.

    A fraction `share` of the jobs, by their draws, gets the next higher limit, so that any budget can be met.
    """

    menu: WidthMenu
    gpus_per_job: int
    share: float = 0.0

    def __post_init__(self) -> None:
        _check_share(self.share)

    def width_of(self, job: Job) -> Width:
        """Return the width of one job; it does not depend on other jobs."""
        limit = self.gpus_per_job
        if job.draw < self.share:
            limit = min((wider for wider in self.menu.limits if wider > limit), default=limit)
        return self.menu.fastest_within(job.class_name, job.phase, limit)

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job; the nodes to rent follow from the widths."""
        return Allocation(widths={job.id: self.width_of(job) for job in jobs})


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyThreshold:
    """Rent on arrival; every job gets the fastest width whose efficiency is at least ``efficiency``.

    A job keeps one width for life. Efficiency is that of the whole job: the GPU-hours of its work at the
    narrowest width over those at the chosen width, T(1) / (k T(k)) if one GPU is allowed. Start-ups do not
    count, so the choice does not depend on a job's scale. It is the strongest simple rule that we know: it
    needs only run times by width and one number. A fraction `share` of the jobs, by their draws, follows the
    next lower threshold.
    """

    menu: WidthMenu
    efficiency: float
    share: float = 0.0

    def __post_init__(self) -> None:
        _check_share(self.share)
        if not 0.0 <= self.efficiency <= 1.0:
            raise InvalidProblem(f"an efficiency is a number from 0 to 1; got {self.efficiency!r}")

    def widths_of(self, class_name: str, *, lower: bool = False) -> Widths:
        """Return the width of each phase of a class; with `lower`, those of the next lower threshold."""
        ladder, efficiency = self.menu.ladders[class_name], self.efficiency
        if lower:
            efficiency = next((e for e in self.menu.thresholds if e < efficiency), efficiency)
        return ladder.widths[ladder.fastest_at(efficiency)]

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job; the nodes to rent follow from the widths."""
        kinds = {(job.class_name, job.draw < self.share) for job in jobs}
        plans = {(name, lower): self.widths_of(name, lower=lower) for name, lower in kinds}
        return Allocation(
            widths={job.id: plans[job.class_name, job.draw < self.share][job.phase] for job in jobs}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFifo:
    """Hold a fixed fleet; oldest first, every job gets the fastest width within ``gpus_per_job``."""

    menu: WidthMenu
    fleet: FixedFleet
    gpus_per_job: int

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return widths oldest first, up to the first job that does not fit."""
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


@dataclass(frozen=True, kw_only=True)
class StaticSrsf:
    """Hold a fixed fleet; the jobs with the least remaining service over weight run, others are stopped.

    Service is GPU-hours: time times width (Gu et al., Tiresias, NSDI 2019, with sizes known). A job that does
    not fit is skipped, so that no GPU idles while a job could use it. `plans` are the widths of each class,
    phase by phase.
    """

    menu: WidthMenu
    fleet: FixedFleet
    plans: Mapping[str, Widths]

    @classmethod
    def within(cls, *, menu: WidthMenu, fleet: FixedFleet, gpus_per_job: int) -> StaticSrsf:
        """Build the policy with the fastest widths within one limit for all classes."""
        limit = min(gpus_per_job, fleet.gpus)
        plans = {name: menu.widths_within(name, limit) for name in menu.classes}
        return cls(menu=menu, fleet=fleet, plans=plans)

    @cached_property
    def services(self) -> Mapping[str, tuple[PhaseService, ...]]:
        """The service that a job takes at its widths, by class and phase."""
        return {name: self.menu.services(name, widths) for name, widths in self.plans.items()}

    def width_of(self, job: Job) -> Width:
        """Return the width of a job in its phase."""
        return self.plans[job.class_name][job.phase]

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the widths of the jobs that fit, least remaining service over weight first."""
        widths: dict[JobId, Width] = {}
        left = self.fleet.gpus
        for job in sorted(jobs, key=lambda job: (self.service_of(job) / job.weight, job.arrived_at, job.id)):
            width = self.width_of(job)
            if width.gpus <= left:
                widths[job.id] = width
                left -= width.gpus
        return Allocation(widths=widths, nodes=self.fleet.count_by_type)

    def service_of(self, job: Job) -> float:
        """Return the GPU-hours that a job's work left takes at its widths."""
        at = self.services[job.class_name][job.phase]
        left = max(0.0, job.remaining_gpu_hours - at.later_work_hours * job.scale)
        return left * at.gpu_hours_per_work_hour + at.later_gpu_hours * job.scale


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualShare:
    """Hold a fixed fleet; every job gets the fastest width within ``G // n``, at least ``min_gpus``."""

    menu: WidthMenu
    fleet: FixedFleet
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
    if not 0.0 <= share <= 1.0:
        raise InvalidProblem(f"a share of jobs is a number from 0 to 1; got {share!r}")


def oldest_first(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs in order of arrival, ties by id."""
    return sorted(jobs, key=lambda job: (job.arrived_at, job.id))


def equal_width_averages(menu: WidthMenu, *, gpus_per_job: int) -> LongRunAverages:
    """Return the long-run averages of one width limit for all jobs."""
    return long_run_of({name: menu.widths_within(name, gpus_per_job) for name in menu.classes}, menu.classes)


def efficiency_averages(menu: WidthMenu, *, efficiency: float) -> LongRunAverages:
    """Return the long-run averages of one efficiency threshold for all jobs."""
    rule = EfficiencyThreshold(menu=menu, efficiency=efficiency)
    return long_run_of({name: rule.widths_of(name) for name in menu.classes}, menu.classes)


def equal_width(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build rent-on-arrival with one width limit: the given one, or the best that the budget pays for.

    Raises:
        InfeasibleBudget: when no limit is given and the budget pays for none.
    """
    menu = menu_of(site, options)
    limits = [options.gpus_per_job] if options.gpus_per_job else menu.limits
    promises = {limit: equal_width_averages(menu, gpus_per_job=limit) for limit in limits}
    best = fastest_affordable(promises, site, menu, what="one width for all", given=options.gpus_per_job)
    return BuiltPolicy(
        allocator=EqualWidth(menu=menu, gpus_per_job=best, share=options.share or 0.0),
        planned_mean_jct_hours=promises[best].mean_jct_hours,
        planned_spend=promises[best].gpus * site.problem.price_of(menu.gpu_type),
    )


def efficiency(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build rent-on-arrival with one efficiency: the given one, or the best that the budget pays for.

    Raises:
        InfeasibleBudget: when no efficiency is given and the budget pays for none.
    """
    menu = menu_of(site, options)
    given = options.efficiency
    promises = {
        e: efficiency_averages(menu, efficiency=e) for e in (menu.thresholds if given is None else [given])
    }
    best = fastest_affordable(promises, site, menu, what="one efficiency for all", given=given)
    return BuiltPolicy(
        allocator=EfficiencyThreshold(menu=menu, efficiency=best, share=options.share or 0.0),
        planned_mean_jct_hours=promises[best].mean_jct_hours,
        planned_spend=promises[best].gpus * site.problem.price_of(menu.gpu_type),
    )


def fixed_fleet_queue(
    order: Callable[..., StaticFifo | StaticSrsf], site: Site, options: PolicyOptions
) -> BuiltPolicy:
    """Build a queue on the fleet that the budget pays for; the width limit is a node unless one is given."""
    menu = menu_of(site, options)
    fleet = fleet_of(site, options, menu.gpu_type)
    gpus = options.gpus_per_job or fleet.instance_type.gpus
    return BuiltPolicy(allocator=order(menu=menu, fleet=fleet, gpus_per_job=gpus))


def static_equal(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build equal shares of the fleet that the budget pays for."""
    menu = menu_of(site, options)
    return BuiltPolicy(allocator=EqualShare(menu=menu, fleet=fleet_of(site, options, menu.gpu_type)))


EQUAL_WIDTH = PolicyEntry(
    name="equal-width",
    kind="rule",
    summary="rent on arrival, the same limit on the width of all jobs",
    build=equal_width,
    is_job_by_job=True,
    options=frozenset({"gpu_type", "gpus_per_job", "share"}),
)
EFFICIENCY = PolicyEntry(
    name="efficiency",
    kind="rule",
    summary="rent on arrival, the same least efficiency for all jobs",
    build=efficiency,
    is_job_by_job=True,
    options=frozenset({"gpu_type", "efficiency", "share"}),
)
STATIC_FIFO = PolicyEntry(
    name="static-fifo",
    kind="fleet",
    summary="a fixed fleet, first come, first served, the same limit on the width of all jobs",
    build=partial(fixed_fleet_queue, StaticFifo),
    options=frozenset({"gpu_type", "gpus_per_job", "nodes"}),
)
STATIC_SRSF = PolicyEntry(
    name="static-srsf",
    kind="fleet",
    summary="a fixed fleet, shortest remaining service first, the same limit on all widths",
    build=partial(fixed_fleet_queue, StaticSrsf.within),
    options=frozenset({"gpu_type", "gpus_per_job", "nodes"}),
    reads_progress=True,
)
STATIC_EQUAL = PolicyEntry(
    name="static-equal",
    kind="fleet",
    summary="a fixed fleet, shared equally among the jobs present",
    build=static_equal,
    options=frozenset({"gpu_type", "nodes"}),
)
