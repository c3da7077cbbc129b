"""The value of each machine's stock to a plan: the plan at the same budget without that machine.

Only for GPUs that several machines have: jobs then use another of them, at its price and speed. One solve per
machine in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from boa_daemon.units import format_hours
from policies.errors import InfeasibleBudget
from policies.links.gpu_kinds import siblings
from policies.model import InstanceType, JobClass, Problem
from policies.optimum.frontier import MixedFrontier
from policies.optimum.solution import Solution


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRemoval:
    """A machine, and the mean JCT of the plan without it; None if the budget cannot run every job then."""

    gpu_type: str
    instance_type: str
    mean_jct_hours: float | None
    planned_hours: float

    def to_document(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "gpu_type": self.gpu_type,
            "instance_type": self.instance_type,
            "mean_jct_hours": self.mean_jct_hours,
        }

    @property
    def sentence(self) -> str:
        """The effect of missing stock in a sentence."""
        if self.mean_jct_hours is None:
            return f"Without {self.instance_type} the budget does not run every job."
        more = self.mean_jct_hours / self.planned_hours - 1.0
        said = (
            f"Without {self.instance_type} the mean JCT is {format_hours(self.mean_jct_hours)} ({more:+.0%})"
        )
        return f"{said}: ask for its quota first." if more > 0.1 else f"{said}."


def machine_removals(
    problem: Problem, machines: Mapping[str, InstanceType], solution: Solution, budget: float
) -> tuple[MachineRemoval, ...]:
    """Return the plan's mean JCT without each machine in use for whose GPU there is another machine."""
    used = {width.gpu_type for answer in solution.classes for plan in answer.plans for width in plan.widths}
    found = [
        MachineRemoval(
            gpu_type=kind,
            instance_type=machines[kind].name,
            mean_jct_hours=_mean_hours(_less(problem, kind), budget),
            planned_hours=solution.mean_jct_hours,
        )
        for kind in siblings(machines)
        if kind in used
    ]
    return tuple(sorted(found, key=lambda one: -(one.mean_jct_hours or float("inf"))))


def _mean_hours(problem: Problem | None, budget: float) -> float | None:
    """Return the mean JCT at a budget; None if it cannot run every job."""
    if problem is None:
        return None
    try:
        return MixedFrontier.of(problem).solution_at(budget).mean_jct_hours
    except InfeasibleBudget:
        return None


def _less(problem: Problem, kind: str) -> Problem | None:
    """Return the problem without a GPU type; None if some phase has no other type."""
    classes: list[JobClass] = []
    for job_class in problem.classes:
        rest: Sequence[dict[str, Any]] = [
            {name: curve for name, curve in phase.speedups.items() if name != kind}
            for phase in job_class.phases
        ]
        if not all(rest):
            return None
        phases = tuple(
            replace(phase, speedups=speedups) for phase, speedups in zip(job_class.phases, rest, strict=True)
        )
        classes.append(replace(job_class, phases=phases))
    return replace(problem, classes=tuple(classes))
