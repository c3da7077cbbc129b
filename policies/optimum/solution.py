"""The answer of a solver: widths for every class, with a certificate of optimality."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from policies.errors import PolicyError
from policies.model import BudgetUnit, Width, width_of
from policies.optimum.options import PhaseOption

Version: TypeAlias = Literal["integer-mixed", "integer-pure", "continuous"]
Status: TypeAlias = Literal["optimal", "feasible"]


@dataclass(frozen=True, kw_only=True)
class PlanShare:
    """A whole-job plan, one step per phase, and the fraction of the class's jobs that follow it."""

    job_fraction: float
    steps: tuple[PhaseOption, ...]

    @property
    def hours(self) -> float:
        """Completion time of a job on this plan, hours."""
        return sum(step.hours for step in self.steps)

    @property
    def spend(self) -> float:
        """Cost of a job on this plan: dollars, or GPU-hours."""
        return sum(step.spend for step in self.steps)

    @cached_property
    def widths(self) -> tuple[Width, ...]:
        """The width of each phase, whole versions only; cached, because identical objects compare fast."""
        return tuple([width_of(step.gpu_type, int(step.gpus)) for step in self.steps])


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSolution:
    """The plans of one class; their fractions add up to one. At most one class has two plans."""

    name: str
    is_coupled: bool
    plans: tuple[PlanShare, ...]

    @property
    def mean_jct_hours(self) -> float:
        """Mean completion time over the jobs of the class."""
        return sum(plan.job_fraction * plan.hours for plan in self.plans)

    @property
    def mean_spend(self) -> float:
        """Mean cost of a job of the class: dollars, or GPU-hours."""
        return sum(plan.job_fraction * plan.spend for plan in self.plans)

    def options(self) -> Iterator[tuple[tuple[float, PhaseOption], ...]]:
        """Yield for each phase the (fraction of jobs, step) of each width in use; equal widths are merged."""
        for number in range(len(self.plans[0].steps)):
            shares: dict[tuple[str, float], tuple[float, PhaseOption]] = {}
            for plan in self.plans:
                step = plan.steps[number]
                fraction, _ = shares.get((step.gpu_type, step.gpus), (0.0, step))
                shares[step.gpu_type, step.gpus] = (fraction + plan.job_fraction, step)
            yield tuple(shares.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """An allocation for a budget, with its certificate.

    `multiplier` is -d(sum of arrivals x weight x JCT)/d(budget): hours per hour that one more unit saves.
    `dual_bound_hours` is a lower bound on the weighted mean JCT of this version; `gap` is the relative
    distance to it, 0 for an optimal answer. `lower_bound_mean_jct_hours` bounds the plain mean JCT of every
    policy at whole widths, dynamic and clairvoyant ones included.
    """

    version: Version
    status: Status
    budget: float
    budget_unit: BudgetUnit
    mean_jct_hours: float
    weighted_mean_jct_hours: float
    mean_spend: float
    multiplier: float
    dual_bound_hours: float
    gap: float
    cheapest_feasible_spend: float
    largest_useful_spend: float
    lower_bound_mean_jct_hours: float
    is_weighted: bool
    classes: tuple[ClassSolution, ...]


class ProblemTooLarge(PolicyError):
    """The exact search hit its limit; carries the best answer found and its proven gap."""

    def __init__(self, message: str, *, best: Solution, gap: float) -> None:
        super().__init__(message)
        self.best = best
        self.gap = gap
