"""Policies by name: an explicit table, with the options that each understands.

A policy is built for a site: a problem (classes, prices), a budget, and the machine of each GPU type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from policies.baselines import EqualShare, EqualWidth, Fleet, StaticFifo, WidthMenu, equal_width_promise
from policies.boa import BudgetOptimal, solve
from policies.errors import InfeasibleBudget, InvalidProblem, UnknownPolicy
from policies.first_fit import FirstFit
from policies.lwf import LeastWorkloadFirst
from policies.model import Budget, GpuType, InstanceType, Problem
from policies.paced import PacedBudgetOptimal
from policies.pacing import WINDOW_HOURS, Pace
from policies.protocols import Allocator, Placer


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
    menu = _menu(site, options)
    price = site.problem.price_of(menu.gpu_type)
    promises = [
        equal_width_promise(menu, gpus_per_job=limit)
        for limit in ([options.gpus_per_job] if options.gpus_per_job else menu.limits())
    ]
    affordable = [p for p in promises if options.gpus_per_job or p.gpus * price <= site.budget.amount]
    if not affordable:
        least = min(promise.gpus for promise in promises) * price
        raise InfeasibleBudget(
            f"{site.budget} is too small: one width for all takes at least {least:.2f}. Raise the budget",
            least_spend=least,
        )
    best = min(affordable, key=lambda promise: (promise.mean_jct_hours, promise.gpus))
    return BuiltPolicy(
        allocator=EqualWidth(menu=menu, gpus_per_job=best.gpus_per_job),
        planned_mean_jct_hours=best.mean_jct_hours,
        planned_spend=best.gpus * price,
    )


def _static_fifo(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return first come, first served on the fleet that the budget pays for."""
    menu = _menu(site, options)
    fleet = _fleet(site, options, menu.gpu_type)
    gpus = options.gpus_per_job or fleet.instance_type.gpus
    return BuiltPolicy(allocator=StaticFifo(menu=menu, fleet=fleet, gpus_per_job=gpus))


def _static_equal(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return equal shares of the fleet that the budget pays for."""
    menu = _menu(site, options)
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
            name="static-fifo",
            summary="a fixed fleet, first come, first served, the same limit on the width of all jobs",
            build=_static_fifo,
            options=frozenset({"gpu_type", "gpus_per_job", "nodes"}),
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
        InvalidProblem: when the policy has no such option, or the value is not a positive (whole) number.
    """
    values: dict[str, str | int | float] = {}
    for key, text in settings.items():
        if key not in entry.options:
            raise InvalidProblem(f"policy {entry.name} has no option {key!r}. {_closest(key, entry.options)}")
        values[key] = _PARSERS.get(key, _whole)(key, text)
    return PolicyOptions(**values)  # type: ignore[arg-type]


def build_policy(name: str, site: Site, options: PolicyOptions | None = None) -> BuiltPolicy:
    """Return the policy of that name for a site.

    Raises:
        UnknownPolicy: when there is none of that name.
        InfeasibleBudget: when the budget cannot run every job.
    """
    return find_policy(name).build(site, options or PolicyOptions())


def _whole(key: str, text: str) -> int:
    """Return the positive whole number that an option says."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InvalidProblem(f"option {key} must be a positive whole number; got {text!r}")
    return int(text)


def _hours(key: str, text: str) -> float:
    """Return the positive number of hours that an option says."""
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not (math.isfinite(hours) and hours > 0.0):
        raise InvalidProblem(f"option {key} must be a positive number of hours; got {text!r}")
    return hours


_PARSERS: Mapping[str, Callable[[str, str], str | int | float]] = {
    "gpu_type": lambda _key, text: text,
    "window_hours": _hours,
}


def _closest(word: str, known: Mapping[str, object] | frozenset[str]) -> str:
    """Return a hint with the closest known word, or with all of them."""
    close = get_close_matches(word, known, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(sorted(known))}" if known else "It has no options"


def _menu(site: Site, options: PolicyOptions) -> WidthMenu:
    """Return the widths on the chosen GPU type, or on the one that does the work most cheaply."""
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
