"""Planned widths at the edge of the measured range or beyond it, where a new measurement may change the plan.

A width is at the edge if it is the widest, the narrowest or the only one in the class file's table. A width
is extrapolated if the file says so (`extrapolate_to`). The edge of a formula is its `max_gpus`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from boa_daemon.inputs.problem_file import ProblemFile
from policies.kinds import kind_of
from policies.model import JobClass
from policies.optimum.solution import Solution
from policies.speedup import Table

EdgeKind: TypeAlias = Literal["extrapolated", "widest", "narrowest", "only"]
PlannedWidth: TypeAlias = tuple[str, str, int]
"""A class, a GPU type and a width that a plan gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeEdge:
    """A planned width at the edge of the measured range, or beyond it."""

    class_name: str
    gpu_type: str
    gpus: int
    kind: EdgeKind

    @property
    def sentence(self) -> str:
        """The finding in a sentence, with what to do."""
        here = f"{self.class_name} is planned on {self.gpus} x {self.gpu_type}"
        if self.kind == "extrapolated":
            return f"{here}, which is extrapolated: measure it before you rely on it."
        if self.kind == "widest":
            return f"{here}, the widest that its file has: a wider one may be faster."
        if self.kind == "narrowest":
            return f"{here}, the narrowest that its file has: a narrower one may cost less."
        return f"{here}, the only width that its file has for that type."

    def to_document(self) -> dict[str, Any]:
        """Return the finding as JSON."""
        return {
            "class_name": self.class_name,
            "gpu_type": self.gpu_type,
            "gpus": self.gpus,
            "kind": self.kind,
            "message": self.sentence,
        }


def range_edges(file: ProblemFile, used: Iterable[PlannedWidth]) -> tuple[RangeEdge, ...]:
    """Return the planned widths at or beyond the edge of the measured range, without duplicates."""
    classes = {job_class.name: job_class for job_class in file.problem.classes}
    found = []
    for name, kind, gpus in sorted(set(used)):
        if kind_of(kind).is_spot:
            continue
        where = _kind(classes[name], kind, gpus, file.extrapolated)
        if where is not None:
            found.append(RangeEdge(class_name=name, gpu_type=kind, gpus=gpus, kind=where))
    return tuple(found)


def _kind(
    job_class: JobClass, kind: str, gpus: int, extrapolated: Mapping[tuple[str, str], frozenset[int]]
) -> EdgeKind | None:
    """Return the kind of edge that a width is at; None if it is between known widths."""
    if gpus in extrapolated.get((job_class.name, kind), ()):
        return "extrapolated"
    curves = [phase.speedups[kind] for phase in job_class.phases if kind in phase.speedups]
    widest = min((curve.max_gpus for curve in curves), default=0)
    narrowest = max((curve.min_gpus for curve in curves), default=0)
    is_table = all(isinstance(curve, Table) for curve in curves)
    if widest == narrowest == gpus:
        return "only" if is_table and gpus > 0 else None
    if gpus == widest:
        return "widest"
    return "narrowest" if is_table and gpus == narrowest > 1 else None


def widths_of(solution: Solution) -> set[PlannedWidth]:
    """Return the widths in a plan of a stream."""
    return {
        (answer.name, width.gpu_type, int(width.gpus))
        for answer in solution.classes
        for plan in answer.plans
        for width in plan.widths
    }
