"""BOA, the budget-optimal allocation: the widths with the least mean completion time for a budget.

Sources: Li et al., How to Rent GPUs on a Budget (arXiv 2406.15560), sections 1-2, for the model and the
optimality of one fixed width per type; extended here to phases, overheads and several GPU types.

    minimise  sum_i lambda_i w_i T_i    subject to    sum_i lambda_i C_i <= B

    symbol   here                  meaning
    lambda   arrivals_per_hour     jobs per hour
    w        weight                priority
    T, C     hours, spend          completion time of a job, and its cost in units of the budget
    B        budget                dollars per hour, or GPUs, on average over time
    mu       multiplier            hours per hour that one more unit of budget saves

Three versions, each with its own module and each exact:

    integer-mixed   whole widths, at most one phase randomised     frontier    O(n log n), n options
    integer-pure    whole widths, none randomised                  knapsack    exponential at worst, bounded
    continuous      real widths on curves and concave envelopes    continuous  O(n) per step on mu
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from policies.answer import Allocation, NodePrices, Reasons
from policies.errors import InvalidProblem
from policies.model import Budget, Job, Money, Problem, Width
from policies.optimum.continuous import solve_continuous
from policies.optimum.frontier import MixedFrontier
from policies.optimum.knapsack import solve_pure
from policies.optimum.solution import PlanShare, Solution, Version


def solve(problem: Problem, budget: float, *, version: Version = "integer-mixed") -> Solution:
    """Return the budget-optimal allocation; `budget` is in the problem's unit.

    Raises:
        InfeasibleBudget: when the budget is below the least that runs every job.
        ProblemTooLarge: integer-pure only, when the search hits its limit; carries the best found.
        InvalidProblem: when the budget is not a positive finite number.
    """
    Budget(amount=budget, unit=problem.budget_unit)
    if version == "integer-mixed":
        return MixedFrontier.of(problem).solution_at(budget)
    if version == "integer-pure":
        return solve_pure(problem, budget)
    return solve_continuous(problem, budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptimal:
    """Give every job at once the width that its class's plan has for its phase; never queue.

    If the optimum mixes two plans, a job's `draw` selects one for its whole life, so the mix holds on average
    and no job flaps between the two.
    """

    reads_money: ClassVar[bool] = False

    plans: Mapping[str, tuple[PlanShare, ...]]
    multiplier: float = 0.0
    nodes: NodePrices | None = None

    @classmethod
    def from_problem(cls, problem: Problem, budget: Budget) -> BudgetOptimal:
        """Solve the problem exactly, once, and build the policy from the plans.

        Raises:
            InfeasibleBudget: when the budget is below the least that runs every job.
            InvalidProblem: when the budget's unit is not the problem's.
        """
        if budget.unit != problem.budget_unit:
            raise InvalidProblem(f"the budget is {budget}, but the problem counts {problem.budget_unit}")
        return cls.from_solution(solve(problem, budget.amount))

    @classmethod
    def from_solution(cls, solution: Solution, *, nodes: NodePrices | None = None) -> BudgetOptimal:
        """Build the policy from a solution at whole widths; `nodes` are prices of whole nodes."""
        plans = {c.name: c.plans for c in solution.classes}
        return cls(plans=plans, multiplier=solution.multiplier, nodes=nodes)

    def plan_of(self, job: Job) -> PlanShare:
        """Return the plan that the job's draw selects."""
        plans = self.plans[job.class_name]
        if len(plans) == 1:
            return plans[0]
        below = 0.0
        for plan in plans[:-1]:
            below += plan.job_fraction
            if job.draw < below:
                return plan
        return plans[-1]

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the planned width of each job; no job waits or depends on other jobs. Cost: O(jobs)."""
        del now, money
        plan_of = self.plan_of
        return Allocation(
            widths={job.id: plan_of(job).widths[job.phase] for job in jobs},
            node_prices=self.nodes,
            reasons=Reasons(jobs=jobs, say=self.reason),
        )

    def alone(self, job: Job) -> Width:
        """Return the planned width of one job."""
        return self.plan_of(job).widths[job.phase]

    def by_phase(self, job: Job) -> Sequence[Width]:
        """Return the planned width of one job in each of its phases."""
        return self.plan_of(job).widths

    def reason(self, job: Job) -> str:
        """Return the reason for the job's width: its plan, and the hours that a unit of budget saves."""
        plan = self.plan_of(job)
        share = "" if plan.job_fraction == 1.0 else f", which {plan.job_fraction:.0%} of its class follow"
        return (
            f"class {job.class_name} finishes in {plan.hours:.3g} h for {plan.spend:.4g} of the budget"
            f"{share}; one more unit of budget per hour would save {self.multiplier:.3g} job-hours per hour"
        )
