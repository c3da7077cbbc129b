"""Why a GPU type is unused: it costs more per unit of work than the used types, is slower, or has no speeds.

The least dollars and the least hours are compared, over all work that runs on the type and on a used one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from policies.model import InstanceType, Problem
from policies.optimum.calendar import CalendarJob
from policies.optimum.solution import Solution

EVEN = 1.005
"""Ratios up to this factor count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedType:
    """An unused type, compared with the used types; ratios are None if no work runs on both."""

    gpu_type: str
    instance_type: str
    times_dearer: float | None
    times_slower: float | None

    @property
    def sentence(self) -> str:
        """The reason in a sentence."""
        dearer, slower = self.times_dearer, self.times_slower
        if dearer is None or slower is None:
            return f"{self.gpu_type} is unused: none of these jobs has a speed on it."
        if dearer > EVEN:
            return f"{self.gpu_type} is unused: it costs {dearer:.1f} times as much per unit of work."
        if slower > EVEN:
            said = f"it costs no more per unit of work, but is {slower:.1f} times slower"
            return f"{self.gpu_type} is unused: {said}."
        return f"{self.gpu_type} is unused: it does the work no cheaper and no faster."

    def to_document(self) -> dict[str, Any]:
        """Return the comparison as JSON."""
        return {
            "gpu_type": self.gpu_type,
            "instance_type": self.instance_type,
            "times_dearer": self.times_dearer,
            "times_slower": self.times_slower,
            "message": self.sentence,
        }


LeastWorkCosts = Mapping[str, tuple[float, float]]
"""By GPU type, the least dollars and the least hours of one piece of work."""


def _unused(
    machines: Mapping[str, InstanceType], used: Collection[str], work: Iterable[tuple[float, LeastWorkCosts]]
) -> tuple[UnusedType, ...]:
    """Return the unused types; `work` has (weight, costs) of each piece of work."""
    pieces = list(work)
    found: list[UnusedType] = []
    if not used:
        return ()
    for kind, machine in machines.items():
        if kind in used:
            continue
        shared = [
            (weight, offer[kind], [offer[other] for other in used if other in offer])
            for weight, offer in pieces
            if kind in offer and any(other in offer for other in used)
        ]
        ratios: list[float | None] = [None, None]
        if shared:
            ratios = [
                sum(weight * here[i] for weight, here, _ in shared)
                / sum(weight * min(one[i] for one in others) for weight, _, others in shared)
                for i in (0, 1)
            ]
        found.append(
            UnusedType(
                gpu_type=kind, instance_type=machine.name, times_dearer=ratios[0], times_slower=ratios[1]
            )
        )
    return tuple(found)


def unused_by_plans(
    problem: Problem, machines: Mapping[str, InstanceType], solutions: Iterable[Solution]
) -> tuple[UnusedType, ...]:
    """Return the types that no plan of a stream uses."""
    used = {
        width.gpu_type
        for solution in solutions
        for answer in solution.classes
        for plan in answer.plans
        for width in plan.widths
    }
    work = []
    for job_class in problem.classes:
        for phase in job_class.phases:
            offer = {}
            for kind, curve in phase.speedups.items():
                widths = curve.whole_widths()
                hours = phase.size_gpu_hours / curve.speed_at(widths)
                usd = float((widths * hours).min()) * problem.price_of(kind)
                offer[kind] = (usd, float(hours.min()))
            work.append((job_class.arrivals_per_hour, offer))
    return _unused(machines, used, work)


def unused_by_calendar(
    machines: Mapping[str, InstanceType], jobs: Iterable[CalendarJob], used: Collection[str]
) -> tuple[UnusedType, ...]:
    """Return the types that a calendar does not use."""
    work = []
    for job in jobs:
        offer: dict[str, tuple[float, float]] = {}
        for option in job.options:
            usd, hours = offer.get(option.gpu_type, (option.usd, option.hours))
            offer[option.gpu_type] = (min(usd, option.usd), min(hours, option.hours))
        work.append((1.0, offer))
    return _unused(machines, used, work)
