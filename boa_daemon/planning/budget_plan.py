"""The plan of a stream of jobs: widths, value of the next dollar, packing waste, GPUs in use.

All figures are computed from the optimum and need neither an account nor a network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.curve import BeyondKnee, Curve
from boa_daemon.planning.machine_removal import MachineRemoval, machine_removals
from boa_daemon.planning.measured_range import RangeEdge, range_edges, widths_of
from boa_daemon.planning.plan_documents import landmarks, solution_document
from boa_daemon.planning.second_limit import Limits, SecondLimit
from boa_daemon.planning.unused_types import UnusedType, unused_by_plans
from boa_daemon.tick.room.shortfall import shortfall_document
from boa_daemon.traces.rates import at_mean_scale, with_rates
from boa_daemon.traces.reader import Trace
from policies.model import Budget, InstanceType, Problem
from policies.online.best_effort import Shortfall, shortfall_of
from policies.optimum.frontier import MixedFrontier
from policies.optimum.knee import Knee
from policies.optimum.solution import ProblemTooLarge, Solution, Version
from policies.optimum.swing import Swing, swings

NEARLY = 1.01
"""Waiting up to this many times as long counts as nearly the same."""
QUOTA_SHARE = 0.99
"""Fraction of the time for which the recommended quota suffices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingWaste:
    """Spend that whole instances waste on one GPU type, in the budget's unit.

    The waste is at least `shared` (jobs always packed onto the fewest nodes) and at most `unshared` (no two
    jobs on a node). The plan's prices per GPU-hour count only the GPUs that jobs hold.
    """

    gpu_type: str
    instance_type: InstanceType
    swing: Swing
    price: float

    @property
    def shared(self) -> float:
        """Waste if jobs were always packed onto the fewest nodes."""
        return self.price * self.swing.shared_waste_gpus(self.instance_type.gpus)

    @property
    def unshared(self) -> float:
        """Waste if no two jobs shared a node."""
        return self.price * self.swing.unshared_waste_gpus(self.instance_type.gpus)

    @property
    def quota_gpus(self) -> int:
        """GPUs that suffice for `QUOTA_SHARE` of the time."""
        return self.swing.quantile(QUOTA_SHARE)

    @property
    def quota_nodes(self) -> int:
        """Whole instances that hold `quota_gpus`."""
        return -(-self.quota_gpus // self.instance_type.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearlyAsGood:
    """A smaller spend, in the budget's unit, with nearly the same waiting (weighted mean, in hours)."""

    spend: float
    mean_jct_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPlan:
    """The optimum at a budget, with its place on the curve, packing waste and notes."""

    problem: Problem
    budget: Budget
    solution: Solution
    curve: Curve
    knee: Knee
    next_unit_saves_hours: float
    packing: tuple[PackingWaste, ...]
    without: tuple[MachineRemoval, ...] = ()
    unused: tuple[UnusedType, ...] = ()
    edges: tuple[RangeEdge, ...] = ()
    second_limit: SecondLimit | None = None

    @property
    def not_spent(self) -> float:
        """The part of the budget that the plan does not spend, in the budget's unit."""
        return max(0.0, self.budget.amount - self.solution.mean_spend)

    @property
    def beyond_knee(self) -> BeyondKnee:
        """What the part of the spend above the knee buys; zeros for a spend below it."""
        spend, hours = self.solution.mean_spend, self.solution.weighted_mean_jct_hours
        return BeyondKnee.of(self.knee, spend=spend, hours=hours)

    @property
    def nearly(self) -> NearlyAsGood:
        """The least spend at which jobs wait at most `NEARLY` times as long as in this plan."""
        budgets, hours = self.curve.vertices()
        here = self.solution.weighted_mean_jct_hours
        enough = float(np.interp(-NEARLY * here, -hours, budgets))
        spend = min(max(enough, self.curve.cheapest), self.solution.mean_spend)
        return NearlyAsGood(
            spend=spend, mean_jct_hours=float(self.curve.weighted_hours_at(np.array([spend]))[0])
        )

    @property
    def waste(self) -> tuple[float, float]:
        """Least and most packing waste, as fractions of the planned spend."""
        least = sum(p.shared for p in self.packing) / self.solution.mean_spend
        most = sum(p.unshared for p in self.packing) / self.solution.mean_spend
        return min(least, most), max(least, most)

    def to_document(self) -> dict[str, Any]:
        """Return the plan as JSON: the ``boa solve`` document, extended."""
        least, most = self.waste
        return solution_document(self.solution, self.problem) | {
            "class_spend": [
                {
                    "name": job_class.name,
                    "arrivals_per_hour": job_class.arrivals_per_hour,
                    "mean_jct_hours": answer.mean_jct_hours,
                    "spend_per_job": answer.mean_spend,
                    "spend_per_hour": job_class.arrivals_per_hour * answer.mean_spend,
                }
                for job_class, answer in zip(self.problem.classes, self.solution.classes, strict=True)
            ],
            "next_unit_saves_hours": self.next_unit_saves_hours,
            **landmarks(self.curve),
            "not_spent": self.not_spent,
            "beyond_knee": {
                "spend": self.beyond_knee.spend,
                "saved_mean_jct_hours": self.beyond_knee.saved_hours,
                "saved_fraction": self.beyond_knee.saved_fraction,
            },
            "nearly_as_good": {"spend": self.nearly.spend, "mean_jct_hours": self.nearly.mean_jct_hours},
            "unused": [one.to_document() for one in self.unused],
            "edges": [one.to_document() for one in self.edges],
            "packing_waste_fraction": {"least": least, "most": most},
            "swing": [
                {
                    "gpu_type": p.gpu_type,
                    "instance_type": p.instance_type.name,
                    "gpus_per_instance": p.instance_type.gpus,
                    "mean_gpus": p.swing.mean_gpus,
                    "sd_gpus": p.swing.sd_gpus,
                    "p99_gpus": p.quota_gpus,
                    "p99_instances": p.quota_nodes,
                }
                for p in self.packing
            ],
            "second_limit": None if self.second_limit is None else self.second_limit.to_document(),
            **({"without_machine": [one.to_document() for one in self.without]} if self.without else {}),
        }


def budget_plan(
    file: ProblemFile, budget: Budget, version: Version, *, max_nodes: int | None = None
) -> BudgetPlan:
    """Return the plan of a stream; with integer-pure the best found, if a proof would take too long.

    The plan is that without `max_nodes`, which says beside it what this limit takes from it.

    Raises:
        InfeasibleBudget: when the budget is below the least feasible one.
    """
    problem = file.problem
    curve = Curve.of(problem, version)
    try:
        solution = curve.solution_at(budget.amount)
    except ProblemTooLarge as error:
        solution = error.best
    here, there = curve.weighted_hours_at(np.array([budget.amount, budget.amount + 1.0]))
    return BudgetPlan(
        problem=problem,
        budget=budget,
        solution=solution,
        curve=curve,
        knee=curve.knee(),
        next_unit_saves_hours=float(here - there),
        without=machine_removals(problem, file.instance_types, solution, budget.amount),
        unused=unused_by_plans(problem, file.instance_types, [solution]),
        edges=range_edges(file, widths_of(solution)),
        second_limit=_second_limit(file, curve, budget.amount, max_nodes),
        packing=tuple(
            PackingWaste(
                gpu_type=swing.gpu_type,
                instance_type=file.instance_types[swing.gpu_type],
                swing=swing,
                price=problem.price_of(swing.gpu_type),
            )
            for swing in swings(problem, solution)
        ),
    )


def _second_limit(
    file: ProblemFile, curve: Curve, budget: float, max_nodes: int | None
) -> SecondLimit | None:
    if max_nodes is None:
        return None
    limits = Limits(nodes=max_nodes, nodes_setting="--max-nodes ", machines=file.instance_types)
    return limits.binding(curve, budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestEffortPlan:
    """The plan of a budget below the least feasible spend: classes in the order in which they are served.

    There is no mean completion time and no bound on it, because the queue grows without limit.
    """

    problem: Problem
    shortfall: Shortfall
    cheapest: Solution

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """One row per class, in the order in which classes are served."""
        answers = {answer.name: answer for answer in self.cheapest.classes}
        classes = {job_class.name: job_class for job_class in self.problem.classes}
        return tuple(
            {
                "class": name,
                "arrivals_per_hour": classes[name].arrivals_per_hour,
                "served_fraction": part,
                "widths": ", then ".join(
                    dict.fromkeys(str(width) for share in answers[name].plans for width in share.widths)
                ),
                "spend_per_job": answers[name].mean_spend,
                "spend_per_hour": part * classes[name].arrivals_per_hour * answers[name].mean_spend,
            }
            for name, part in self.shortfall.served.items()
        )

    def to_document(self) -> dict[str, Any]:
        """Return the answer as JSON, with the keys of a plan that apply."""
        return {
            "status": "best-effort",
            "version": self.cheapest.version,
            "budget_unit": self.shortfall.unit,
            "budget": self.shortfall.budget,
            "mean_jct_hours": None,
            "lower_bound_mean_jct_hours": None,
            "mean_spend": self.shortfall.budget,
            "cheapest_feasible_spend": self.shortfall.least_spend,
            "best_effort": shortfall_document(self.shortfall),
            "class_spend": list(self.rows),
        }


def best_effort_plan(file: ProblemFile, budget: Budget) -> BestEffortPlan:
    """Return the best-effort plan of a budget, which may be below the least feasible spend."""
    frontier = MixedFrontier.of(file.problem)
    return BestEffortPlan(
        problem=file.problem,
        shortfall=shortfall_of(frontier, budget.amount),
        cheapest=frontier.solution_at(frontier.cheapest_feasible_spend),
    )


def with_trace(file: ProblemFile, trace: Trace) -> ProblemFile:
    """Return the file with the trace's rates and mean sizes, without classes that the trace lacks."""
    classes = at_mean_scale(with_rates(file.problem.classes, trace), trace)
    return replace(file, problem=replace(file.problem, classes=classes), classes_without_rates=frozenset())
