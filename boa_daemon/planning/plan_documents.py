"""JSON documents of the planner's answers, read by other programs.

The keys are a stable interface: names contain units, and keys are added but never removed.
"""

from __future__ import annotations

from typing import Any

from boa_daemon.planning.curve import BeyondKnee, Curve
from boa_daemon.planning.second_limit import Limits
from policies.errors import InfeasibleBudget
from policies.model import Problem
from policies.optimum.solution import ClassSolution, Solution, Version


def solution_document(solution: Solution, problem: Problem) -> dict[str, Any]:
    """Return the document of ``boa solve``."""
    document: dict[str, Any] = {
        "version": solution.version,
        "status": solution.status,
        "budget_unit": solution.budget_unit,
        "budget": solution.budget,
        "mean_jct_hours": solution.mean_jct_hours,
    }
    if has_weights(problem):
        document["weighted_mean_jct_hours"] = solution.weighted_mean_jct_hours
    return document | {
        "mean_spend": solution.mean_spend,
        "multiplier": solution.multiplier,
        "cheapest_feasible_spend": solution.cheapest_feasible_spend,
        "largest_useful_spend": solution.largest_useful_spend,
        "lower_bound_mean_jct_hours": solution.lower_bound_mean_jct_hours,
        "dual_bound_hours": solution.dual_bound_hours,
        "gap": solution.gap,
        "classes": [_class_document(answer) for answer in solution.classes],
    }


def landmarks(curve: Curve) -> dict[str, Any]:
    """Return knee, floor, and what the money between them buys, of a curve; with weights, both means."""
    knee, end = curve.knee(), curve.largest_useful
    bought = BeyondKnee.of(knee, spend=end, hours=knee.floor_hours)
    beyond = {"spend": bought.spend, "saved_mean_jct_hours": bought.saved_hours}
    if not has_weights(curve.problem):
        return {
            "floor_mean_jct_hours": knee.floor_hours,
            "knee": {
                "budget": knee.budget,
                "mean_jct_hours": knee.hours,
                "flat_budget": knee.flat_budget,
            },
            "beyond_knee": beyond,
        }
    return {
        "floor_mean_jct_hours": curve.mean_jct_at(end),
        "floor_weighted_mean_jct_hours": knee.floor_hours,
        "knee": {
            "budget": knee.budget,
            "mean_jct_hours": curve.mean_jct_at(knee.budget),
            "weighted_mean_jct_hours": knee.hours,
            "flat_budget": knee.flat_budget,
        },
        "beyond_knee": beyond,
    }


def worth_document(problem: Problem, budget: float, limits: Limits | None = None) -> dict[str, Any]:
    """Return what the last part of a budget buys, in the budget's unit, and what of it buys nothing.

    Under a limit beside the budget nothing buys more than what can be spent under it.

    Raises:
        InfeasibleBudget: when the budget cannot run every job.
    """
    curve = Curve.of(problem, "integer-mixed")
    knee, solution = curve.knee(), curve.solution_at(budget)
    bought = BeyondKnee.of(knee, spend=solution.mean_spend, hours=solution.weighted_mean_jct_hours)
    limit = None if limits is None else limits.binding(curve, budget)
    return {
        "knee": {"budget": knee.budget, "mean_jct_hours": knee.hours},
        "largest_useful_spend": curve.largest_useful,
        "beyond_knee": {
            "spend": bought.spend,
            "saved_mean_jct_hours": bought.saved_hours,
            "saved_fraction": bought.saved_fraction,
        },
        "not_spent": max(budget - solution.mean_spend, 0.0),
        "second_limit": None if limit is None else limit.to_document(),
    }


def has_weights(problem: Problem) -> bool:
    """Return whether some class has a weight other than one."""
    return any(job_class.weight != 1.0 for job_class in problem.classes)


def _class_document(answer: ClassSolution) -> dict[str, Any]:
    """Return the widths of one class: whole plans if phases are coupled, else options per phase."""
    document: dict[str, Any] = {
        "name": answer.name,
        "mean_jct_hours": answer.mean_jct_hours,
        "mean_spend_per_job": answer.mean_spend,
    }
    if answer.is_coupled:
        document["plans"] = [
            {
                "job_fraction": plan.job_fraction,
                "phases": [{"gpu_type": step.gpu_type, "gpus": step.gpus} for step in plan.steps],
            }
            for plan in answer.plans
        ]
    else:
        document["phases"] = [
            {
                "options": [
                    {"gpu_type": step.gpu_type, "gpus": step.gpus, "job_fraction": fraction}
                    for fraction, step in options
                ]
            }
            for options in answer.options()
        ]
    return document


def infeasible_document(
    error: InfeasibleBudget, budget: float, problem: Problem, version: Version
) -> dict[str, Any]:
    """Return the document of a budget that cannot run every job, with the least feasible one."""
    return {
        "version": version,
        "status": "infeasible",
        "budget_unit": problem.budget_unit,
        "budget": budget,
        "cheapest_feasible_spend": error.least_spend,
        "message": str(error),
    }
