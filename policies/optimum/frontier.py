"""The frontier at whole widths: the exact mixed optimum at every budget, from one computation.

The options of every (class, phase), or the plans of a coupled class, are reduced to their lower hulls, and
the hulls are merged by slope (see `hull`). Between two vertices of the frontier exactly one group moves, so
at most one phase (or one coupled class) is randomised. By linear-programming duality this is the least
weighted mean JCT of all policies, dynamic ones included (docs/explanation/model.md).

Cost: O(n log n) for n options; then O(log n) for the curve and O(groups) for the plans of one budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from policies.errors import InfeasibleBudget
from policies.model import Budget, Problem
from policies.money_text import least_in_dollars
from policies.optimum.hull import TIE, MergedFrontier, backward_sums, lower_hulls, merge
from policies.optimum.options import OptionSet, PhaseOption, whole_width_options
from policies.optimum.solution import ClassSolution, PlanShare, Solution
from policies.speedup import Floats, Ints


@dataclass(frozen=True)
class MixedFrontier:
    """The optimum at every budget; budgets are in the problem's unit."""

    problem: Problem
    options: OptionSet
    merged: MergedFrontier

    @classmethod
    def of(cls, problem: Problem) -> MixedFrontier:
        """Compute the frontier of a problem at whole widths."""
        return cls.of_options(whole_width_options(problem))

    @classmethod
    def of_options(cls, options: OptionSet) -> MixedFrontier:
        """Compute the frontier of given options."""
        chains = lower_hulls(options.cost, options.time(), options.group, groups=len(options.owner))
        return cls(problem=options.problem, options=options, merged=merge(chains))

    @cached_property
    def arrivals_per_hour(self) -> float:
        """Jobs per hour, all classes together."""
        return sum(c.arrivals_per_hour for c in self.problem.classes)

    @cached_property
    def weighted_arrivals(self) -> float:
        """Sum of arrivals x weight."""
        return sum(c.arrivals_per_hour * c.weight for c in self.problem.classes)

    @cached_property
    def is_weighted(self) -> bool:
        """Whether the weights differ, so that the weighted and the plain mean differ."""
        return len({c.weight for c in self.problem.classes}) > 1

    @property
    def cheapest_feasible_spend(self) -> float:
        """The least budget that runs every job, in the budget's unit."""
        return float(self.merged.cost[0])

    @property
    def largest_useful_spend(self) -> float:
        """The budget above which more money saves no time."""
        return float(self.merged.cost[-1])

    @cached_property
    def _plain_time(self) -> Floats:
        """Sum of arrivals x JCT (without weights) at each vertex of the frontier."""
        weights, chains = self.options.weights, self.merged.chains
        edge = self.merged.edge_vertex
        steps = (chains.time[edge] - chains.time[edge + 1]) / weights[self.merged.edge_group]
        return float((chains.time[chains.starts[1:] - 1] / weights).sum()) + backward_sums(steps)

    @cached_property
    def _plain(self) -> MergedFrontier:
        """The frontier of the plain mean JCT: the same problem with all weights 1."""
        options = self.options
        time = options.time(is_weighted=False)
        return merge(lower_hulls(options.cost, time, options.group, groups=len(options.owner)))

    def mean_jct_at(self, budgets: Floats) -> Floats:
        """Return the plain mean JCT in hours of the optimal plan at each budget, shape (budgets,)."""
        return np.asarray(np.interp(budgets, self.merged.cost, self._plain_time) / self.arrivals_per_hour)

    def weighted_mean_jct_at(self, budgets: Floats) -> Floats:
        """Return the least weighted mean JCT in hours at each budget, shape (budgets,)."""
        return self.merged.time_at(budgets) / self.weighted_arrivals

    def multiplier_at(self, budgets: Floats) -> Floats:
        """Return -d(sum of arrivals x weight x JCT)/d(budget) to the right of each budget."""
        return self.merged.slope_at(budgets)

    def lower_bound_at(self, budgets: Floats) -> Floats:
        """Return the least plain mean JCT in hours that any policy can reach at each budget."""
        if not self.is_weighted:
            return self.weighted_mean_jct_at(budgets)
        return self._plain.time_at(budgets) / self.arrivals_per_hour

    def check(self, budget: float) -> None:
        """Raise `InfeasibleBudget` when the budget cannot run every job."""
        least = self.cheapest_feasible_spend
        if budget < least * (1.0 - TIE):
            raise infeasible_budget(budget, least, self.problem)

    def least_mean_jct_at(self, budget: float) -> float:
        """Return the plain mean JCT in hours of the optimal plans at a budget, without computing the plans.

        Raises:
            InfeasibleBudget: when the budget is below `cheapest_feasible_spend`.
        """
        self.check(budget)
        return float(self.mean_jct_at(np.array([self._spent_of(budget)]))[0])

    def _spent_of(self, budget: float) -> float:
        return min(max(budget, self.cheapest_feasible_spend), self.largest_useful_spend)

    def solution_at(self, budget: float) -> Solution:
        """Return the optimal plans at a budget.

        Raises:
            InfeasibleBudget: when the budget is below `cheapest_feasible_spend`.
        """
        self.check(budget)
        taken, share = self.merged.split(budget)
        vertices = self.merged.vertices_after(taken)
        moving = None
        if share > 0.0:
            moving = (int(self.merged.edge_group[taken]), share)
        spend = self._spent_of(budget)
        at = np.array([spend])
        weighted = float(self.weighted_mean_jct_at(at)[0])
        return Solution(
            version="integer-mixed",
            status="optimal",
            budget=budget,
            budget_unit=self.problem.budget_unit,
            mean_jct_hours=float(self.mean_jct_at(at)[0]),
            weighted_mean_jct_hours=weighted,
            mean_spend=spend,
            multiplier=float(self.multiplier_at(at)[0]),
            dual_bound_hours=weighted,
            gap=0.0,
            cheapest_feasible_spend=self.cheapest_feasible_spend,
            largest_useful_spend=self.largest_useful_spend,
            lower_bound_mean_jct_hours=float(self.lower_bound_at(at)[0]),
            is_weighted=self.is_weighted,
            classes=class_solutions(
                self.options, self.merged.chains.option[vertices], self._mix(vertices, moving)
            ),
        )

    def _mix(self, vertices: Ints, moving: tuple[int, float] | None) -> tuple[int, int, float] | None:
        """Return (group, its second option, fraction of jobs with it) of the randomised group, if any."""
        if moving is None:
            return None
        group, share = moving
        return group, int(self.merged.chains.option[vertices[group] + 1]), share


def infeasible_budget(budget: float, least: float, problem: Problem) -> InfeasibleBudget:
    """Return the error for a budget that is too small; it names the least sufficient budget."""
    jobs, unit = len(problem.classes), problem.budget_unit
    enough = f"{rounded_up(least)} GPUs" if unit == "gpus" else f"{least_in_dollars(least)}/hour"
    return InfeasibleBudget(
        f"{Budget(amount=budget, unit=unit)} is too small: {jobs} {'class' if jobs == 1 else 'classes'} "
        f"need{'s' if jobs == 1 else ''} at least {enough}. "
        "Raise the budget, or allow widths that cost less per unit of work",
        least_spend=least,
        budget=budget if unit != "gpus" else None,
    )


def rounded_up(amount: float) -> str:
    """Return an amount rounded up to six digits, so that it is enough when it is typed in again."""
    unit = 10.0 ** (math.floor(math.log10(amount)) - 5)
    return f"{math.ceil(amount / unit * (1.0 - TIE)) * unit:.6g}"


def class_solutions(
    options: OptionSet, chosen: Ints, mix: tuple[int, int, float] | None
) -> tuple[ClassSolution, ...]:
    """Return the plans of every class: `chosen[group]` for all groups, and a second option for one.

    `mix` is (group, second option, fraction of jobs with it).
    """
    mixed_group, other, share = (-1, -1, 0.0) if mix is None else mix
    main: list[list[PhaseOption]] = [[] for _ in options.problem.classes]
    second: dict[int, list[PhaseOption]] = {}
    owners = options.owner.tolist()
    for group, steps in enumerate(options.steps_of(range(len(owners)), chosen)):
        owner = owners[group]
        if group == mixed_group:
            second[owner] = [*main[owner], *options.steps_of([group], np.array([other]))[0]]
        elif owner in second:
            second[owner].extend(steps)
        main[owner].extend(steps)
    return tuple(
        ClassSolution(
            name=job_class.name,
            is_coupled=job_class.is_coupled,
            plans=plan_pair(tuple(main[i]), tuple(second[i]) if i in second else None, share),
        )
        for i, job_class in enumerate(options.problem.classes)
    )


def plan_pair(
    steps: tuple[PhaseOption, ...], others: tuple[PhaseOption, ...] | None, share: float
) -> tuple[PlanShare, ...]:
    """Return one plan, or two plans with the fractions 1 - `share` and `share`."""
    if others is None:
        return (PlanShare(job_fraction=1.0, steps=steps),)
    return PlanShare(job_fraction=1.0 - share, steps=steps), PlanShare(job_fraction=share, steps=others)
