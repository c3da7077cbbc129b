"""Policies by name: an explicit table, with the options that each understands.

A policy is built for a site: a problem (classes, prices), a budget, and the machine of each GPU type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from policies.baselines import (
    EfficiencyThreshold,
    EqualShare,
    EqualWidth,
    Fleet,
    Promise,
    StaticFifo,
    StaticSrsf,
    WidthMenu,
    efficiency_promise,
    equal_width_promise,
    promise_of,
)
from policies.boa import BudgetOptimal, solve
from policies.errors import InfeasibleBudget, InvalidProblem, UnknownPolicy
from policies.first_fit import FirstFit
from policies.greedy import GreedyMarginal
from policies.lwf import LeastWorkloadFirst
from policies.model import Budget, GpuType, InstanceType, Problem
from policies.paced import PacedBudgetOptimal
from policies.pacing import WINDOW_HOURS, Pace
from policies.protocols import Allocator, Placer

_Knob = TypeVar("_Knob", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a policy is built for; `instance_types` names the machine that carries each GPU type."""

    problem: Problem
    budget: Budget
    instance_types: Mapping[str, InstanceType]

    def node_price(self, instance_type: InstanceType) -> float:
        """Return what a node takes from the budget per hour: dollars, or its GPUs where GPUs are counted."""
        return float(instance_type.gpus) if self.budget.unit == "gpus" else instance_type.usd_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """What can be set on a policy; None means "choose for me"."""

    gpu_type: str | None = None
    gpus_per_job: int | None = None
    nodes: int | None = None
    window_hours: float | None = None
    efficiency: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPolicy:
    """An allocator, what its plan promises in the long run where it has one, and its pace if it keeps one."""

    allocator: Allocator
    planned_mean_jct_hours: float | None = None
    planned_spend: float | None = None
    pace: Pace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """A policy's name, what it does, the options that it understands, and how it is built.

    `is_job_by_job` says that a job's width depends on that job alone, so that one job in a new phase need not
    be a reason to look at all. `reads_progress` says that the policy looks at the work that is left, so that
    work must be measured at every tick.
    """

    name: str
    summary: str
    build: Callable[[Site, PolicyOptions], BuiltPolicy]
    options: frozenset[str] = frozenset()
    is_job_by_job: bool = False
    reads_progress: bool = False


def _boa(site: Site, _options: PolicyOptions) -> BuiltPolicy:
    """Return the optimum under the budget."""
    solution = solve(site.problem, site.budget.amount)
    return BuiltPolicy(
        allocator=BudgetOptimal.from_solution(solution),
        planned_mean_jct_hours=solution.mean_jct_hours,
        planned_spend=solution.mean_spend,
    )


def _boa_paced(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return the optimum at a multiplier that follows the spend."""
    pace = Pace(budget=site.budget.amount, window_hours=options.window_hours or WINDOW_HOURS)
    return BuiltPolicy(allocator=PacedBudgetOptimal.from_problem(site.problem, pace), pace=pace)


def _equal_width(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return rent-on-arrival with one limit for all: the given one, or the best that the budget pays for."""
    menu = menu_of(site, options)
    limits = [options.gpus_per_job] if options.gpus_per_job else menu.limits()
    promises = {limit: equal_width_promise(menu, gpus_per_job=limit) for limit in limits}
    best = _fastest_affordable(promises, site, menu, what="one width for all", given=options.gpus_per_job)
    return BuiltPolicy(
        allocator=EqualWidth(menu=menu, gpus_per_job=best),
        planned_mean_jct_hours=promises[best].mean_jct_hours,
        planned_spend=promises[best].gpus * site.problem.price_of(menu.gpu_type),
    )


def _efficiency(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return rent-on-arrival with one efficiency for all: the given one, or the best that is paid for."""
    menu = menu_of(site, options)
    given = options.efficiency
    promises = {
        e: efficiency_promise(menu, efficiency=e) for e in (menu.thresholds() if given is None else [given])
    }
    best = _fastest_affordable(promises, site, menu, what="one efficiency for all", given=given)
    return BuiltPolicy(
        allocator=EfficiencyThreshold(menu=menu, efficiency=best),
        planned_mean_jct_hours=promises[best].mean_jct_hours,
        planned_spend=promises[best].gpus * site.problem.price_of(menu.gpu_type),
    )


def _fastest_affordable(
    promises: Mapping[_Knob, Promise], site: Site, menu: WidthMenu, *, what: str, given: _Knob | None
) -> _Knob:
    """Return the setting that promises the least waiting within the budget; the given one in any case."""
    if given is not None:
        return given
    price = site.problem.price_of(menu.gpu_type)
    affordable = [knob for knob, promise in promises.items() if promise.gpus * price <= site.budget.amount]
    if not affordable:
        least = min(promise.gpus for promise in promises.values()) * price
        raise InfeasibleBudget(
            f"{site.budget} is too small: {what} takes at least {least:.2f}. Raise the budget",
            least_spend=least,
        )
    return min(affordable, key=lambda knob: (promises[knob].mean_jct_hours, promises[knob].gpus))


def _greedy_marginal(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return the widths that greedy steps reach within the budget."""
    menu = menu_of(site, options)
    price = site.problem.price_of(menu.gpu_type)
    try:
        policy = GreedyMarginal.within(menu.classes, menu.gpu_type, gpus=site.budget.amount / price)
    except InfeasibleBudget as error:
        least = error.least_spend * price
        raise InfeasibleBudget(
            f"{site.budget} is too small: the narrowest widths take at least {least:.2f}. Raise the budget",
            least_spend=least,
        ) from error
    promise = promise_of(policy.plans, menu.classes)
    return BuiltPolicy(
        allocator=policy,
        planned_mean_jct_hours=promise.mean_jct_hours,
        planned_spend=promise.gpus * price,
    )


def _static_fifo(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return first come, first served on the fleet that the budget pays for."""
    menu = menu_of(site, options)
    fleet = _fleet(site, options, menu.gpu_type)
    gpus = options.gpus_per_job or fleet.instance_type.gpus
    return BuiltPolicy(allocator=StaticFifo(menu=menu, fleet=fleet, gpus_per_job=gpus))


def _static_srsf(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return shortest remaining service first on the fleet that the budget pays for."""
    menu = menu_of(site, options)
    fleet = _fleet(site, options, menu.gpu_type)
    gpus = options.gpus_per_job or fleet.instance_type.gpus
    return BuiltPolicy(allocator=StaticSrsf(menu=menu, fleet=fleet, gpus_per_job=gpus))


def _static_equal(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return equal shares of the fleet that the budget pays for."""
    menu = menu_of(site, options)
    return BuiltPolicy(allocator=EqualShare(menu=menu, fleet=_fleet(site, options, menu.gpu_type)))


POLICIES: Mapping[str, PolicyEntry] = {
    entry.name: entry
    for entry in (
        PolicyEntry(
            name="boa",
            summary="the widths with the least mean JCT that the budget can pay for",
            build=_boa,
            is_job_by_job=True,
        ),
        PolicyEntry(
            name="boa-paced",
            summary="the same, steered by what was spent so that the budget holds",
            build=_boa_paced,
            options=frozenset({"window_hours"}),
            # One job asked about alone is judged at the planned multiplier; the next tick uses the real one.
            is_job_by_job=True,
            reads_progress=True,
        ),
        PolicyEntry(
            name="equal-width",
            summary="rent on arrival, the same limit on the width of all jobs",
            build=_equal_width,
            is_job_by_job=True,
            options=frozenset({"gpu_type", "gpus_per_job"}),
        ),
        PolicyEntry(
            name="efficiency",
            summary="rent on arrival, the same least efficiency for all jobs",
            build=_efficiency,
            is_job_by_job=True,
            options=frozenset({"gpu_type", "efficiency"}),
        ),
        PolicyEntry(
            name="greedy-marginal",
            summary="rent on arrival, widths by greedy steps of most time per dollar",
            build=_greedy_marginal,
            is_job_by_job=True,
            options=frozenset({"gpu_type"}),
        ),
        PolicyEntry(
            name="static-fifo",
            summary="a fixed fleet, first come, first served, the same limit on the width of all jobs",
            build=_static_fifo,
            options=frozenset({"gpu_type", "gpus_per_job", "nodes"}),
        ),
        PolicyEntry(
            name="static-srsf",
            summary="a fixed fleet, shortest remaining service first, the same limit on all widths",
            build=_static_srsf,
            options=frozenset({"gpu_type", "gpus_per_job", "nodes"}),
            reads_progress=True,
        ),
        PolicyEntry(
            name="static-equal",
            summary="a fixed fleet, shared equally among the jobs present",
            build=_static_equal,
            options=frozenset({"gpu_type", "nodes"}),
        ),
    )
}

PLACERS: Mapping[str, Callable[[], Placer]] = {"first-fit": FirstFit, "lwf": LeastWorkloadFirst}


def find_policy(name: str) -> PolicyEntry:
    """Return the entry of a policy.

    Raises:
        UnknownPolicy: when there is none of that name.
    """
    if name not in POLICIES:
        raise UnknownPolicy(f"no policy {name!r}. {_closest(name, POLICIES)}")
    return POLICIES[name]


def find_placer(name: str) -> Placer:
    """Return a placer by name.

    Raises:
        UnknownPolicy: when there is none of that name.
    """
    if name not in PLACERS:
        raise UnknownPolicy(f"no placer {name!r}. {_closest(name, PLACERS)}")
    return PLACERS[name]()


def parse_options(entry: PolicyEntry, settings: Mapping[str, str]) -> PolicyOptions:
    """Return the options that ``key=value`` settings name.

    Raises:
        InvalidProblem: when the policy has no such option, or the value is not a number in its range.
    """
    values: dict[str, str | int | float] = {}
    for key, text in settings.items():
        if key not in entry.options:
            raise InvalidProblem(f"policy {entry.name} has no option {key!r}. {_closest(key, entry.options)}")
        values[key] = _READERS.get(key, _whole)(key, text)
    return PolicyOptions(**values)  # type: ignore[arg-type]


def build_policy(name: str, site: Site, options: PolicyOptions | None = None) -> BuiltPolicy:
    """Return the policy of that name for a site.

    Raises:
        UnknownPolicy: when there is none of that name.
        InfeasibleBudget: when the budget cannot run every job.
    """
    return find_policy(name).build(site, options or PolicyOptions())


def menu_of(site: Site, options: PolicyOptions) -> WidthMenu:
    """Return the widths on the chosen GPU type, or on the one that does the work most cheaply.

    Raises:
        InvalidProblem: when the chosen type does not exist, or no type runs everything.
    """
    classes = {job_class.name: job_class for job_class in site.problem.classes}
    if options.gpu_type is not None:
        if options.gpu_type not in site.instance_types:
            known = frozenset(site.instance_types)
            raise InvalidProblem(f"no GPU type {options.gpu_type!r}. {_closest(options.gpu_type, known)}")
        return WidthMenu(classes=classes, gpu_type=options.gpu_type)
    costs = {gpu.name: _cost_of_all_work(gpu, site.problem) for gpu in site.problem.gpu_types}
    best = min(costs, key=lambda name: (costs[name], name))
    if math.isinf(costs[best]):
        raise InvalidProblem("no GPU type runs every phase of every class: this policy needs one that does")
    return WidthMenu(classes=classes, gpu_type=best)


def _whole(key: str, text: str) -> int:
    """Return the positive whole number that an option says."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InvalidProblem(f"option {key} must be a positive whole number; got {text!r}")
    return int(text)


def _fraction(key: str, text: str) -> float:
    """Return the number from 0 to 1 that an option says."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise InvalidProblem(f"option {key} must be a number from 0 to 1; got {text!r}")
    return value


def _hours(key: str, text: str) -> float:
    """Return the positive number of hours that an option says."""
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not (math.isfinite(hours) and hours > 0.0):
        raise InvalidProblem(f"option {key} must be a positive number of hours; got {text!r}")
    return hours


_READERS: Mapping[str, Callable[[str, str], str | int | float]] = {
    "gpu_type": lambda _key, text: text,
    "efficiency": _fraction,
    "window_hours": _hours,
}
"""How to read options that are no counts."""


def _closest(word: str, known: Mapping[str, object] | frozenset[str]) -> str:
    """Return a hint with the closest known word, or with all of them."""
    close = get_close_matches(word, known, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(sorted(known))}" if known else "It has no options"


def _cost_of_all_work(gpu: GpuType, problem: Problem) -> float:
    """Return the least money per hour that runs all classes on one GPU type; infinite if one cannot run."""
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


def _fleet(site: Site, options: PolicyOptions, gpu_type: str) -> Fleet:
    """Return the fleet of the given size, or of as many whole nodes as the budget pays for."""
    instance_type = site.instance_types[gpu_type]
    affordable = math.floor(site.budget.amount / site.node_price(instance_type))
    if options.nodes is None and affordable < 1:
        price = site.node_price(instance_type)
        raise InfeasibleBudget(
            f"{site.budget} does not pay for one {instance_type.name}, which takes {price:.2f} per hour",
            least_spend=price,
        )
    return Fleet(instance_type=instance_type, nodes=options.nodes or affordable)
