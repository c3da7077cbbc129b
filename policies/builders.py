"""How BOA's own policies are built for a site; rivals build themselves, beside their own code."""

from __future__ import annotations

from policies.online.best_effort import Account, BestEffort, Shortfall, shortfall_of
from policies.online.multiplier_table import curvature_at
from policies.online.node_prices import WholeNodePrices, with_boots_at_changes
from policies.online.paced_optimum import PacedBudgetOptimal
from policies.online.pacing import MONTH_HOURS, Pace
from policies.optimum.boa import BudgetOptimal, solve
from policies.optimum.frontier import MixedFrontier
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site


def boa(site: Site, _options: PolicyOptions) -> BuiltPolicy:
    """Return the optimum under the budget, followed with whole nodes."""
    solution = solve(with_boots_at_changes(site.problem, site.boot_hours), site.budget.amount)
    nodes = WholeNodePrices.of(site.problem, solution, site.instance_types, boot_hours=site.boot_hours)
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
        covered_per_hour=site.covered_per_hour,
    )
    problem = with_boots_at_changes(site.problem, site.boot_hours)
    frontier = MixedFrontier.of(problem)
    curvature = curvature_at(frontier.mean_jct_at, pace.budget, least=frontier.cheapest_feasible_spend)
    # Beliefs may make the budget look too small; what nodes are wanted is then judged at the least plan.
    plan = frontier.solution_at(max(pace.budget, frontier.cheapest_feasible_spend))
    nodes = WholeNodePrices.of(site.problem, plan, site.instance_types, boot_hours=site.boot_hours)
    return PacedBudgetOptimal.from_problem(
        problem,
        pace,
        nodes=nodes,
        load_over_stated=site.load_over_stated,
        curvature=curvature,
        options=frontier.options,
        free=site.free,
    )


def best_effort(site: Site, options: PolicyOptions, account: Account) -> BuiltPolicy:
    """Return what BOA does of a budget below the least feasible spend."""
    paced = paced_optimum(site, options)
    allocator = BestEffort.of(paced, account=account, boot_hours=site.boot_hours)
    # Without a pace the books forgo no credit: what a node takes may accrue for weeks.
    return BuiltPolicy(allocator=allocator, planned_spend=site.budget.amount)


def shortfall_of_site(site: Site) -> Shortfall:
    """Return how far a site's budget goes beside the least feasible spend."""
    frontier = MixedFrontier.of(with_boots_at_changes(site.problem, site.boot_hours))
    return shortfall_of(frontier, site.budget.amount)


BOA = PolicyEntry(
    name="boa",
    kind="optimum",
    summary="the widths with the least mean JCT that the budget can pay for",
    build=boa,
    is_job_by_job=True,
)

BOA_PACED = PolicyEntry(
    name="boa-paced",
    kind="optimum",
    summary="the same, steered by what was spent so that the budget holds",
    build=boa_paced,
    options=frozenset({"window_hours"}),
    # One job asked about alone is judged at the planned multiplier; the next tick uses the real one.
    is_job_by_job=True,
    reads_progress=True,
)
