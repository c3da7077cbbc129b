"""What a budget owner asks of a plan: who gets what, what the next dollar buys, how wide the cluster swings.

All figures are computed from the optimum; none needs an account or a network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.curve import Curve
from boa_daemon.planning.machine_removal import MachineRemoval, machine_removals
from boa_daemon.planning.measured_range import RangeEdge, range_edges, widths_of
from boa_daemon.planning.plan_documents import landmarks, solution_document
from boa_daemon.planning.unused_types import UnusedType, unused_by_plans
from boa_daemon.tick.shortfall import shortfall_document
from boa_daemon.traces.rates import at_mean_scale, with_rates
from boa_daemon.traces.reader import Trace
from policies.model import Budget, InstanceType, Problem
from policies.online.best_effort import Shortfall, shortfall_of
from policies.optimum.frontier import MixedFrontier
from policies.optimum.knee import Knee
from policies.optimum.solution import ProblemTooLarge, Solution, Version
from policies.optimum.swing import Swing, swings

QUOTA_SHARE = 0.99
"""Share of the time that the quota to ask for must be enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingWaste:
    """Part of the spend that whole instances waste on one GPU type, in the budget's unit.

    At least `shared` (jobs packed onto the fewest nodes at every moment), at most `unshared` (no two jobs on
    a node). Planning prices per GPU-hour already count only the GPUs that jobs hold.
    """

    gpu_type: str
    instance_type: InstanceType
    swing: Swing
    price: float

    @property
    def shared(self) -> float:
        """Waste if every node were always as full as can be."""
        return self.price * self.swing.shared_waste_gpus(self.instance_type.gpus)

    @property
    def unshared(self) -> float:
        """Waste if no two jobs ever shared a node."""
        return self.price * self.swing.unshared_waste_gpus(self.instance_type.gpus)

    @property
    def quota_gpus(self) -> int:
        """GPUs that are enough for `QUOTA_SHARE` of the time."""
        return self.swing.quantile(QUOTA_SHARE)

    @property
    def quota_nodes(self) -> int:
        """Whole instances that hold `quota_gpus`."""
        return -(-self.quota_gpus // self.instance_type.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPlan:
    """The optimum at a budget, with what surrounds it on the curve."""

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

    @property
    def not_spent(self) -> float:
        """What the plan leaves of the budget, in its unit."""
        return max(0.0, self.budget.amount - self.solution.mean_spend)

    @property
    def waste(self) -> tuple[float, float]:
        """Least and most part of the planned spend that packing may waste, as fractions of it."""
        least = sum(p.shared for p in self.packing) / self.solution.mean_spend
        most = sum(p.unshared for p in self.packing) / self.solution.mean_spend
        return min(least, most), max(least, most)

    def to_document(self) -> dict[str, Any]:
        """Return the plan as JSON: what ``boa solve`` answers, and what a budget owner asks besides."""
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
            **({"without_machine": [one.to_document() for one in self.without]} if self.without else {}),
        }


def budget_plan(file: ProblemFile, budget: Budget, version: Version) -> BudgetPlan:
    """Return the plan for a stream of jobs; the best found where the proof of a pure one is too long.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BestEffortPlan:
    """What a budget below the least feasible spend does: classes in the order in which they are served.

    No mean completion time and no bound on it: in the long run the queue grows without end.
    """

    problem: Problem
    shortfall: Shortfall
    cheapest: Solution

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """One row per class, the first to be served first."""
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
        """Return the answer as JSON, with the keys of a plan where they mean something."""
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
    """Return what a budget does that may be below the least feasible spend."""
    frontier = MixedFrontier.of(file.problem)
    return BestEffortPlan(
        problem=file.problem,
        shortfall=shortfall_of(frontier, budget.amount),
        cheapest=frontier.solution_at(frontier.cheapest_feasible_spend),
    )


def with_trace(file: ProblemFile, trace: Trace) -> ProblemFile:
    """Return the file with rates and mean sizes as the trace has them; classes that it lacks are left out."""
    classes = at_mean_scale(with_rates(file.problem.classes, trace), trace)
    return replace(file, problem=replace(file.problem, classes=classes), classes_without_rates=frozenset())
