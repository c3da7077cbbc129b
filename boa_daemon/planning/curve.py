"""The curve of waiting against money for any version: computed once, read at any number of budgets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.model import Problem
from policies.optimum.boa import solve
from policies.optimum.continuous import ContinuousFrontier
from policies.optimum.frontier import MixedFrontier
from policies.optimum.knee import Knee, knee_of
from policies.optimum.solution import Solution, Version
from policies.speedup import Floats

SMOOTH_POINTS = 400
"""Number of budgets at which a smooth curve is drawn and its knee is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondKnee:
    """The spend above the knee, in the budget's unit, and the waiting that it saves, also as a fraction."""

    spend: float
    saved_hours: float
    saved_fraction: float

    @classmethod
    def of(cls, knee: Knee, *, spend: float, hours: float) -> BeyondKnee:
        """Return it for a spend at which jobs wait so long; zeros for a spend below the knee."""
        more = max(0.0, spend - knee.budget)
        saved = 0.0 if more == 0.0 else max(0.0, knee.hours - hours)
        return cls(spend=more, saved_hours=saved, saved_fraction=saved / knee.hours if knee.hours else 0.0)


@dataclass(frozen=True)
class Curve:
    """A problem's curve; hours are the weighted mean JCT, which equals the mean JCT if weights are equal."""

    problem: Problem
    version: Version
    frontier: MixedFrontier | ContinuousFrontier

    @classmethod
    def of(cls, problem: Problem, version: Version) -> Curve:
        """Compute the curve. integer-pure is drawn as the mixed curve, its bound, and solved on request."""
        frontier = ContinuousFrontier.of(problem) if version == "continuous" else MixedFrontier.of(problem)
        return cls(problem=problem, version=version, frontier=frontier)

    @property
    def cheapest(self) -> float:
        """The least feasible budget."""
        return self.frontier.cheapest_feasible_spend

    @property
    def largest_useful(self) -> float:
        """The budget above which more money buys nothing."""
        return self.frontier.largest_useful_spend

    def weighted_hours_at(self, budgets: Floats) -> Floats:
        """Return the least weighted mean JCT in hours at each feasible budget."""
        if isinstance(self.frontier, MixedFrontier):
            return self.frontier.weighted_mean_jct_at(budgets)
        weighted = sum(c.arrivals_per_hour * c.weight for c in self.problem.classes)
        return self.frontier.curve_at(budgets)[0] / weighted

    def mean_jct_at(self, budget: float) -> float:
        """Return the plain mean JCT in hours of the curve's plan at a feasible budget."""
        return self.frontier.solution_at(budget).mean_jct_hours

    def vertices(self) -> tuple[Floats, Floats]:
        """Return (budgets, hours) of the curve: its vertices, or a fine grid if it is smooth."""
        if isinstance(self.frontier, MixedFrontier):
            budgets = self.frontier.merged.cost
        else:
            ends = self.cheapest, max(self.largest_useful, self.cheapest * (1.0 + 1e-9))
            budgets = np.geomspace(*ends, SMOOTH_POINTS)
            budgets[[0, -1]] = ends
        return budgets, self.weighted_hours_at(budgets)

    def knee(self) -> Knee:
        """Return the knee of the curve."""
        return knee_of(*self.vertices())

    def solution_at(self, budget: float) -> Solution:
        """Return the solution at one budget.

        Raises:
            InfeasibleBudget: when the budget is below the least feasible one.
            ProblemTooLarge: for the pure version only.
        """
        if self.version == "integer-pure":
            return solve(self.problem, budget, version="integer-pure")
        return self.frontier.solution_at(budget)
