"""Why a GPU type is unused: it costs more per unit of work than the used types, is slower, or has no speeds.

The least dollars and the least hours are compared, over all work that runs on the type and on a used one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from policies.model import InstanceType, Problem
from policies.optimum.calendar import CalendarJob
from policies.optimum.solution import Solution

EVEN = 1.005
"""Ratios up to this factor count as equal."""
MOST_FINE = 1.1
"""Ratios below this are written with two digits behind the point."""
MOST_SAID = 4
"""Verdicts that a sentence lists."""


def _times(ratio: float) -> str:
    """Return a ratio as text: two digits behind the point where one would hide the difference."""
    return f"{ratio:.2f}" if ratio < MOST_FINE else f"{ratio:.1f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedFor:
    """What an unused type is to one class of jobs, compared with the used types."""

    name: str
    times_dearer: float
    times_slower: float

    @property
    def verdict(self) -> str:
        """Why this class does not use the type."""
        dearer, slower = self.times_dearer, self.times_slower
        if dearer > EVEN:
            return f"costs {_times(dearer)} times as much per unit of work"
        cheaper = "no more" if dearer >= 2.0 - EVEN else f"{_times(dearer)} times as much"
        if slower > EVEN:
            return f"costs {cheaper} per unit of work, but is {_times(slower)} times slower"
        if dearer < 2.0 - EVEN:
            return f"costs {cheaper} per unit of work at its cheapest, but other widths pay more here"
        return "does the work no cheaper and no faster"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedType:
    """An unused type, compared with the used types; ratios are None if no work runs on both.

    The ratios are those of all work together; `classes` has those of each class, which decide.
    """

    gpu_type: str
    instance_type: str
    times_dearer: float | None
    times_slower: float | None
    classes: tuple[UnusedFor, ...] = ()

    @property
    def sentence(self) -> str:
        """The reason in a sentence; where classes differ, each has its own."""
        if not self.classes:
            return f"{self.gpu_type} is unused: none of these jobs has a speed on it."
        groups: dict[str, list[str]] = {}
        for one in self.classes:
            groups.setdefault(one.verdict, []).append(one.name)
        if len(groups) == 1:
            return f"{self.gpu_type} is unused: it {self.classes[0].verdict}."
        said = [f"for {', '.join(names)} it {verdict}" for verdict, names in groups.items()]
        more = len(said) - MOST_SAID
        if more > 0:
            said = [*said[:MOST_SAID], f"and so on for {more} more"]
        return f"{self.gpu_type} is unused: {'; '.join(said)}."

    def to_document(self) -> dict[str, Any]:
        """Return the comparison as JSON."""
        return {
            "gpu_type": self.gpu_type,
            "instance_type": self.instance_type,
            "times_dearer": self.times_dearer,
            "times_slower": self.times_slower,
            "classes": [
                {"name": one.name, "times_dearer": one.times_dearer, "times_slower": one.times_slower}
                for one in self.classes
            ],
            "message": self.sentence,
        }


LeastWorkCosts = Mapping[str, tuple[float, float]]
"""By GPU type, the least dollars and the least hours of one piece of work."""
Work: TypeAlias = tuple[str, float, LeastWorkCosts]
"""The class, the weight and the costs of a piece of work."""


def _unused(
    machines: Mapping[str, InstanceType], used: Collection[str], work: Iterable[Work]
) -> tuple[UnusedType, ...]:
    """Return the unused types, compared over the work that runs on them and on a used one."""
    pieces = list(work)
    if not used:
        return ()
    found: list[UnusedType] = []
    for kind, machine in machines.items():
        if kind in used:
            continue
        shared = [
            (name, weight, offer[kind], [offer[other] for other in used if other in offer])
            for name, weight, offer in pieces
            if kind in offer and any(other in offer for other in used)
        ]
        names = dict.fromkeys(name for name, *_ in shared)
        ratios = {name: _ratios([one for one in shared if one[0] == name]) for name in names}
        dearer, slower = _ratios(shared) if shared else (None, None)
        found.append(
            UnusedType(
                gpu_type=kind,
                instance_type=machine.name,
                times_dearer=dearer,
                times_slower=slower,
                classes=tuple(
                    UnusedFor(name=name, times_dearer=ratio[0], times_slower=ratio[1])
                    for name, ratio in ratios.items()
                ),
            )
        )
    return tuple(found)


def _ratios(
    shared: Sequence[tuple[str, float, tuple[float, float], Sequence[tuple[float, float]]]],
) -> tuple[float, float]:
    """Return how many times dearer and slower pieces of work are on a type than on the best other one."""
    dearer, slower = (
        sum(weight * here[i] for _, weight, here, _ in shared)
        / sum(weight * min(one[i] for one in others) for _, weight, _, others in shared)
        for i in (0, 1)
    )
    return dearer, slower


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
            work.append((job_class.name, job_class.arrivals_per_hour, offer))
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
        work.append((job.job.class_name, 1.0, offer))
    return _unused(machines, used, work)
