"""How each policy is built for a site, with what was left open chosen for the budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from policies.errors import InfeasibleBudget
from policies.online.best_effort import Account, BestEffort, Shortfall, shortfall_of
from policies.online.node_prices import WholeNodes, with_boots_at_changes
from policies.online.paced import PacedBudgetOptimal
from policies.online.pacing import MONTH_HOURS, Pace, curvature_at
from policies.optimum.boa import BudgetOptimal, solve
from policies.optimum.frontier import MixedFrontier
from policies.rivals.a_srpt import VirtualOrder
from policies.rivals.asked import HOLD_SECONDS, AskedWidths, RentAsAsked
from policies.rivals.baselines import (
    EfficiencyThreshold,
    EqualShare,
    EqualWidth,
    Promise,
    StaticFifo,
    StaticSrsf,
    WidthMenu,
    efficiency_promise,
    equal_width_promise,
    promise_of,
)
from policies.rivals.boa_authors import GluedWidths
from policies.rivals.dally import Dally
from policies.rivals.fixed_widths import best_fixed_widths
from policies.rivals.greedy import GreedyMarginal
from policies.rivals.pollux import MOST_NODES, GoodputShares
from policies.rivals.rounds import ROUND_SECONDS
from policies.rivals.tiresias import Tiresias
from policies.site import BuiltPolicy, PolicyOptions, Site, fleet_of, menu_of

_Knob = TypeVar("_Knob", int, float)
UTILITY = 0.5
"""The middle of the band that Pollux's authors give as an example."""


def boa(site: Site, _options: PolicyOptions) -> BuiltPolicy:
    """Return the optimum under the budget, followed with whole nodes."""
    solution = solve(with_boots_at_changes(site.problem, site.boot_hours), site.budget.amount)
    nodes = WholeNodes.of(site.problem, solution, site.instance_types, boot_hours=site.boot_hours)
    return BuiltPolicy(
        allocator=BudgetOptimal.from_solution(solution, nodes=nodes),
        planned_mean_jct_hours=solution.mean_jct_hours,
        planned_spend=solution.mean_spend,
    )


def boa_paced(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return the optimum at a multiplier that follows the spend."""
    allocator = paced_optimum(site, options)
    return BuiltPolicy(allocator=allocator, pace=allocator.pace)


def paced_optimum(site: Site, options: PolicyOptions) -> PacedBudgetOptimal:
    """Return the optimum at a multiplier that follows the spend, for a budget of any size."""
    pace = Pace(
        budget=site.budget.amount,
        window_hours=options.window_hours or MONTH_HOURS,
        is_monthly=site.is_monthly,
        is_stated=site.is_load_stated,
        rhythm=site.rhythm,
    )
    problem = with_boots_at_changes(site.problem, site.boot_hours)
    frontier = MixedFrontier.of(problem)
    curvature = curvature_at(frontier.mean_jct_at, pace.budget, least=frontier.cheapest_feasible_spend)
    # Beliefs may make the budget look too small; what nodes are wanted is then judged at the least plan.
    plan = frontier.solution_at(max(pace.budget, frontier.cheapest_feasible_spend))
    nodes = WholeNodes.of(site.problem, plan, site.instance_types, boot_hours=site.boot_hours)
    return PacedBudgetOptimal.from_problem(
        problem, pace, nodes=nodes, load_over_stated=site.load_over_stated, curvature=curvature
    )


def best_effort(site: Site, options: PolicyOptions, account: Account | None = None) -> BuiltPolicy:
    """Return what BOA does of a budget below the least feasible spend."""
    paced = paced_optimum(site, options)
    allocator = BestEffort.of(
        paced, account=account or Account(budget=site.budget.amount), boot_hours=site.boot_hours
    )
    # Without a pace the books forgo no credit: what a node takes may accrue for weeks.
    return BuiltPolicy(allocator=allocator, planned_spend=site.budget.amount)


def shortfall_of_site(site: Site) -> Shortfall:
    """Return how far a site's budget goes beside the least feasible spend."""
    frontier = MixedFrontier.of(with_boots_at_changes(site.problem, site.boot_hours))
    return shortfall_of(frontier, site.budget.amount)


def equal_width(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return rent-on-arrival with one limit for all: the given one, or the best that the budget pays for."""
    menu = menu_of(site, options)
    limits = [options.gpus_per_job] if options.gpus_per_job else menu.limits()
    promises = {limit: equal_width_promise(menu, gpus_per_job=limit) for limit in limits}
    best = _fastest_affordable(promises, site, menu, what="one width for all", given=options.gpus_per_job)
    return BuiltPolicy(
        allocator=EqualWidth(menu=menu, gpus_per_job=best, share=options.share or 0.0),
        planned_mean_jct_hours=promises[best].mean_jct_hours,
        planned_spend=promises[best].gpus * site.problem.price_of(menu.gpu_type),
    )


def efficiency(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return rent-on-arrival with one efficiency for all: the given one, or the best that is paid for."""
    menu = menu_of(site, options)
    given = options.efficiency
    promises = {
        e: efficiency_promise(menu, efficiency=e) for e in (menu.thresholds() if given is None else [given])
    }
    best = _fastest_affordable(promises, site, menu, what="one efficiency for all", given=given)
    return BuiltPolicy(
        allocator=EfficiencyThreshold(menu=menu, efficiency=best, share=options.share or 0.0),
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


def greedy_marginal(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return the widths that greedy steps reach within the budget."""
    return _planned(site, options, GreedyMarginal.within, floor="the narrowest widths take at least {:.2f}")


def boa_authors(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return the BOA authors' rounded and glued widths; the same site gives the same plan."""
    glued = partial(GluedWidths.within, rng=np.random.default_rng(0))
    return _planned(site, options, glued, floor="rounding comes to {:.2f} at least")


def _planned(
    site: Site, options: PolicyOptions, within: Callable[..., GreedyMarginal | GluedWidths], *, floor: str
) -> BuiltPolicy:
    """Return the widths that `within` plans for the GPUs that the budget pays for, with what they promise.

    Raises:
        InfeasibleBudget: when it finds none; `floor` says what the least of its plans takes.
    """
    menu = menu_of(site, options)
    price = site.problem.price_of(menu.gpu_type)
    try:
        policy = within(menu.classes, menu.gpu_type, gpus=site.budget.amount / price)
    except InfeasibleBudget as error:
        least = error.least_spend * price
        raise InfeasibleBudget(
            f"{site.budget} is too small: {floor.format(least)}. Raise the budget", least_spend=least
        ) from error
    promise = promise_of(policy.plans, menu.classes)
    return BuiltPolicy(
        allocator=policy,
        planned_mean_jct_hours=promise.mean_jct_hours,
        planned_spend=promise.gpus * price,
    )


def static_fifo(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return first come, first served on the fleet that the budget pays for."""
    return _in_line(site, options, StaticFifo)


def static_srsf(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return shortest remaining service first on the fleet that the budget pays for."""
    return _in_line(site, options, StaticSrsf.within)


def _in_line(
    site: Site, options: PolicyOptions, order: Callable[..., StaticFifo | StaticSrsf]
) -> BuiltPolicy:
    """Return a queue for a fixed fleet; jobs are as wide as a node unless a width is given."""
    menu = menu_of(site, options)
    fleet = fleet_of(site, options, menu.gpu_type)
    gpus = options.gpus_per_job or fleet.instance_type.gpus
    return BuiltPolicy(allocator=order(menu=menu, fleet=fleet, gpus_per_job=gpus))


def srpt(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return shortest remaining service first with the best fixed width of each class."""
    return BuiltPolicy(allocator=_best_srsf(site, options))


def a_srpt(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return A-SRPT with the best fixed width of each class."""
    return BuiltPolicy(allocator=VirtualOrder(queue=_best_srsf(site, options)))


def dally(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return Dally with the best fixed width of each class."""
    return BuiltPolicy(allocator=Dally(queue=_best_srsf(site, options)), round_seconds=ROUND_SECONDS)


def _best_srsf(site: Site, options: PolicyOptions) -> StaticSrsf:
    """Return shortest remaining service first on the fleet, at the widths that wait least there.

    No job waits for a boot on a fleet that stands, so boots are taken out of the start-ups.
    """
    menu = menu_of(site, options)
    fleet = fleet_of(site, options, menu.gpu_type)
    at_once = {
        name: replace(job_class, startup_hours=max(0.0, job_class.startup_hours - site.boot_hours))
        for name, job_class in menu.classes.items()
    }
    plans = best_fixed_widths(WidthMenu(classes=at_once, gpu_type=menu.gpu_type), gpus=fleet.gpus)
    return StaticSrsf(menu=menu, fleet=fleet, plans=plans)


def static_equal(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return equal shares of the fleet that the budget pays for."""
    menu = menu_of(site, options)
    return BuiltPolicy(allocator=EqualShare(menu=menu, fleet=fleet_of(site, options, menu.gpu_type)))


def asked(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return rent-as-asked that holds nothing: users who ask for the given efficiency, or as is paid for."""
    return replace(_asked(site, options), idle_hold_seconds=0.0)


def asked_hold(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return the same with nodes that stay for a while."""
    return replace(_asked(site, options), idle_hold_seconds=HOLD_SECONDS)


def _asked(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return rent-as-asked, its hold left open."""
    menu = menu_of(site, options)
    given = options.efficiency
    crowds = {
        e: AskedWidths(menu=menu, efficiency=e) for e in (menu.thresholds() if given is None else [given])
    }
    promises = {e: crowd.promise() for e, crowd in crowds.items()}
    best = _fastest_affordable(promises, site, menu, what="what users ask for", given=given)
    return BuiltPolicy(
        allocator=RentAsAsked(asked=crowds[best]),
        planned_mean_jct_hours=promises[best].mean_jct_hours,
        planned_spend=promises[best].gpus * site.problem.price_of(menu.gpu_type),
    )


def pollux(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return Pollux on the fleet that the budget pays for."""
    menu = menu_of(site, options)
    fleet = fleet_of(site, options, menu.gpu_type)
    policy = GoodputShares(
        menu=menu, instance_type=fleet.instance_type, least_nodes=fleet.nodes, most_nodes=fleet.nodes
    )
    return BuiltPolicy(allocator=policy, round_seconds=ROUND_SECONDS)


def pollux_autoscale(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return Pollux whose cluster follows a utility band; it aims at no budget."""
    menu = menu_of(site, options)
    policy = GoodputShares(
        menu=menu,
        instance_type=site.instance_types[menu.gpu_type],
        least_nodes=0,
        most_nodes=MOST_NODES if site.max_nodes is None else min(MOST_NODES, site.max_nodes),
        utility=UTILITY if options.utility is None else options.utility,
    )
    return BuiltPolicy(allocator=policy, round_seconds=ROUND_SECONDS)


def tiresias(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return Tiresias on the fleet that the budget pays for, with the widths that users ask for."""
    menu = menu_of(site, options)
    return BuiltPolicy(
        allocator=Tiresias(asked=AskedWidths(menu=menu), fleet=fleet_of(site, options, menu.gpu_type)),
        round_seconds=ROUND_SECONDS,
    )
