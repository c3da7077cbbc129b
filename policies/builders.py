"""Builders of BOA's own policies for a site. The builder of a rival is in the rival's module."""

from __future__ import annotations

from policies.online.best_effort import Account, BestEffort, Shortfall, shortfall_of
from policies.online.node_prices import WholeNodePrices, with_boots_at_changes
from policies.online.paced_optimum import PacedBudgetOptimal
from policies.online.pacing import MONTH_HOURS, PERIOD, TOLERANCE, Pace
from policies.optimum.boa import BudgetOptimal, solve
from policies.optimum.frontier import MixedFrontier
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site


def boa(site: Site, _options: PolicyOptions) -> BuiltPolicy:
    """Build the optimum for the budget, with prices for whole nodes."""
    solution = solve(with_boots_at_changes(site.problem, site.boot_hours), site.budget.amount)
    nodes = WholeNodePrices.of(site.problem, solution, site.instance_types, boot_hours=site.boot_hours)
    return BuiltPolicy(
        allocator=BudgetOptimal.from_solution(solution, nodes=nodes),
        planned_mean_jct_hours=solution.mean_jct_hours,
        planned_spend=solution.mean_spend,
    )


def boa_paced(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build the optimum whose multiplier follows the spend."""
    allocator = paced_optimum(site, options)
    return BuiltPolicy(allocator=allocator, pace=allocator.pace)


def paced_optimum(site: Site, options: PolicyOptions) -> PacedBudgetOptimal:
    """Return the allocator whose multiplier follows the spend, for a budget of any size."""
    window_hours, period = options.window_hours, options.period or PERIOD
    if window_hours == MONTH_HOURS:
        window_hours, period = None, "month"
    pace = Pace(
        budget=site.budget.amount,
        period=period,
        tolerance=TOLERANCE if options.tolerance is None else options.tolerance,
        window_hours=window_hours,
        is_monthly=site.is_monthly,
        is_stated=site.is_load_stated,
        rhythm=site.rhythm,
        covered_per_hour=site.covered_per_hour,
    )
    problem = with_boots_at_changes(site.problem, site.boot_hours)
    frontier = MixedFrontier.of(problem)
    # Learnt rates may make the budget look too small. Node demand then comes from the cheapest plan.
    plan = frontier.solution_at(max(pace.budget, frontier.cheapest_feasible_spend))
    nodes = WholeNodePrices.of(site.problem, plan, site.instance_types, boot_hours=site.boot_hours)
    return PacedBudgetOptimal.from_problem(
        problem,
        pace,
        nodes=nodes,
        load_over_stated=site.load_over_stated,
        frontier=frontier,
        options=frontier.options,
        free=site.free,
    )


def best_effort(site: Site, options: PolicyOptions, account: Account) -> BuiltPolicy:
    """Build the policy for a budget below the least feasible spend (`policies.online.best_effort`)."""
    paced = paced_optimum(site, options)
    allocator = BestEffort.of(paced, account=account, boot_hours=site.boot_hours)
    # Without a pace no credit expires: the price of a node may accrue for weeks.
    return BuiltPolicy(allocator=allocator, planned_spend=site.budget.amount)


def shortfall_of_site(site: Site) -> Shortfall:
    """Return the site's budget compared with the least feasible spend, and which jobs it pays for."""
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
    options=frozenset({"period", "tolerance", "window_hours"}),
    # A question about a single job is answered at the planned multiplier; the next tick uses the actual one.
    is_job_by_job=True,
    reads_progress=True,
)
