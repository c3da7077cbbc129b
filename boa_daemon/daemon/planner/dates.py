"""Due dates of jobs: whether a date in a job file can be met, and at what cost.

A date is checked against the nodes that the dates of other jobs leave free, so jobs submitted later do not
invalidate the answer. The remaining work is uncertain; every probability is over the sizes that are believed
of the job's class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, inf
from typing import Any, Literal, TypeAlias

from boa_daemon.inputs.job_file import due_at
from boa_daemon.learning.beliefs import RemainingWork, phase_at
from boa_daemon.store.records import JobRecord
from boa_daemon.tick.facts.offers import most_usd_per_hour
from boa_daemon.tick.facts.state import ClusterState, Due, JobState, Rules
from boa_daemon.tick.room.deadline_advice import (
    LEAST_PROBABILITY,
    LEAST_SIZE_PROBABILITY,
    PLANNED_PROBABILITY,
    advice_of,
    programme,
)
from boa_daemon.units import SECONDS_PER_HOUR, format_instant
from policies.kinds import kind_of
from policies.model import JobClass, Width
from policies.money_text import in_dollars
from policies.online.work_left import work_left_at

SIZE_LEVELS = (
    (0.1, 0.2), (0.3, 0.2), (0.5, 0.2), (0.7, 0.2), (0.85, 0.1), (0.925, 0.05), (0.97, 0.04), (0.995, 0.0095),
    (0.9999, 0.0005),
)  # fmt: skip
"""Sizes to check a date for: the quantile of each size, and the probability that it stands for."""
SURE = 0.999
"""Probability from which a date counts as sure."""
FAR = 8.0
"""Search limit for the cheapest date, in multiples of the fastest completion."""
NEARLY = 1.01
"""A date counts as the cheapest if it costs at most this many times the least cost."""
Verdict: TypeAlias = Literal["sure", "likely", "infeasible"]


def hours_at(job_class: JobClass, left: float, size: float) -> dict[Width, float]:
    """Return the hours of work left at each width that all remaining phases allow.

    Widths are on demand; the market does not change the hours.
    """
    phase, _ = phase_at(job_class, left, size)
    widths: list[set[Width]] = [
        {
            Width(kind, int(gpus))
            for kind, curve in one.speedups.items()
            if not kind_of(kind).is_spot
            for gpus in curve.whole_widths()
        }
        for one in job_class.phases[phase:]
    ]
    shared = sorted(set.intersection(*widths))
    return {width: hours_on(job_class, left, size, width) for width in shared}


def hours_on(job_class: JobClass, left: float, size: float, width: Width) -> float:
    """Return the hours of work left at a width; infinite when a remaining phase does not allow the width."""
    phase, scale = phase_at(job_class, left, size)
    hours = 0.0
    for one in reversed(job_class.phases[phase:]):
        work = min(one.size_gpu_hours * scale, left) if one is not job_class.phases[phase] else left
        left -= work
        curve = one.speedups.get(width.gpu_type)
        if curve is None or not curve.min_gpus <= width.gpus <= curve.max_gpus:
            return inf
        hours += work / float(curve.speed_at(width.gpus))
    return hours


def due_of(job: JobRecord, job_class: JobClass, rest: RemainingWork, *, spread: float) -> Due | None:
    """Return the due date of a job; None when its file has none."""
    at = due_at(job.content, arrived_at=job.arrived_at)
    if at is None:
        return None
    whole = rest.scale * job_class.size_gpu_hours
    believed = job_class.size_gpu_hours * float(job.content.get("scale", 1.0))
    levels = [level for level, _ in SIZE_LEVELS]
    sizes = work_left_at(believed, whole - rest.left, spread=spread, levels=levels)
    return Due(
        at=at,
        hours=tuple(hours_at(job_class, rest.left, whole).items()),
        sizes=tuple((size / rest.left, part) for size, (_, part) in zip(sizes, SIZE_LEVELS, strict=True)),
        startup_hours=job_class.startup_hours,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DateAnswer:
    """Whether a date can be met, with what probability, and for how many dollars.

    When it cannot be met: `earliest` is the first date that is sure, `cheapest` the first of those that cost
    least, each with its dollars. `kept` is the probability.
    """

    verdict: Verdict
    at: float
    kept: float
    usd: float | None
    earliest: tuple[float, float] | None = None
    cheapest: tuple[float, float] | None = None

    @property
    def sentence(self) -> str:
        """The answer for people."""
        due = format_instant(self.at)
        if self.verdict == "sure":
            return f"will end by {due}, for about {in_dollars(self.usd)}"
        if self.verdict == "likely":
            return f"ends by {due} with a probability of {self.kept:.0%}, for about {in_dollars(self.usd)}"
        said = f"cannot be relied on to end by {due} (probability {self.kept:.0%})"
        if self.earliest is not None:
            said += (
                f"; by {format_instant(self.earliest[0])} it would, for about {in_dollars(self.earliest[1])}"
            )
        if self.cheapest is not None and self.cheapest != self.earliest:
            said += f", and by {format_instant(self.cheapest[0])} for {in_dollars(self.cheapest[1])}"
        return f"{said}. {self.what_is_done}"

    @property
    def is_tried(self) -> bool:
        """Whether the daemon spends money on the date."""
        return self.kept >= LEAST_PROBABILITY

    @property
    def what_is_done(self) -> str:
        """What the daemon does about a date that is unlikely to be met."""
        if self.is_tried:
            return "The job is accepted, and the date is tried while its probability is at least 10 %"
        return (
            "The job is accepted, and runs as cheaply as if it had no date, because the date is too unlikely"
        )

    @property
    def document(self) -> dict[str, Any]:
        """The answer for programs."""

        def one(date: tuple[float, float] | None) -> dict[str, float] | None:
            return None if date is None else {"at": date[0], "usd": date[1]}

        return {
            "verdict": self.verdict,
            "at": self.at,
            "probability": self.kept,
            "is_tried": self.is_tried,
            "usd": self.usd,
            "earliest": one(self.earliest),
            "cheapest": one(self.cheapest),
            "text": self.sentence,
        }


def date_answer(
    state: ClusterState, rules: Rules, job: JobState, others: Mapping[str, JobState], *, boot_hours: float
) -> DateAnswer | None:
    """Return whether a job's date can be met along with those of `others`; None when it has no date."""
    due = job.terms.due
    if due is None:
        return None
    room = _room(state, rules, others, boot_hours)
    hours = tuple((width, took) for width, took in due.hours if width.gpus <= room.get(width.gpu_type, 0.0))
    due = replace(due, hours=hours)
    if not hours:
        return DateAnswer(verdict="infeasible", at=due.at, kept=0.0, usd=None)
    if due.at > state.now:
        advice = advice_of(state, rules, job, due, boot_hours=boot_hours)
        if advice.kept >= PLANNED_PROBABILITY:
            verdict: Verdict = "sure" if advice.kept >= SURE else "likely"
            return DateAnswer(verdict=verdict, at=due.at, kept=advice.kept, usd=advice.usd)
        kept = advice.kept
    else:
        kept = 0.0
    earliest, cheapest = _other_dates(state, rules, due, boot_hours)
    return DateAnswer(
        verdict="infeasible", at=due.at, kept=kept, usd=None, earliest=earliest, cheapest=cheapest
    )


def _other_dates(
    state: ClusterState, rules: Rules, due: Due, boot_hours: float
) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """Return the earliest sure date at the largest size, and the cheapest date, each with dollars."""
    largest = _large(due) * min(took for _, took in due.hours)
    reach = FAR * (largest + boot_hours + due.startup_hours)
    plan, _ = programme(state, rules, due, hours=reach, boot_hours=boot_hours)
    dates = plan.dates(largest, least=SURE)
    if not dates:
        return None, None
    least = min(usd for _, usd in dates)
    cheapest = next(date for date in dates if date[1] <= NEARLY * least)
    return (
        (state.now + SECONDS_PER_HOUR * dates[0][0], dates[0][1]),
        (state.now + SECONDS_PER_HOUR * cheapest[0], cheapest[1]),
    )


def _room(
    state: ClusterState, rules: Rules, others: Mapping[str, JobState], boot_hours: float
) -> dict[str, float]:
    """Return the GPUs of each type that the caps allow, minus the least that the dates of others need."""
    taken = [_least(state, job.terms.due, boot_hours) for job in others.values() if job.terms.due is not None]
    nodes = rules.max_nodes if rules.max_nodes is not None else inf
    usd = inf if rules.caps is None or rules.caps.usd_per_hour is None else rules.caps.usd_per_hour
    for width in taken:
        if width is not None:
            machine = rules.instance_types[width.gpu_type]
            count = ceil(width.gpus / machine.whole_gpus)
            nodes, usd = nodes - count, usd - count * most_usd_per_hour(machine, state.offers)
    found = {}
    for kind, machine in rules.instance_types.items():
        by_money = usd / most_usd_per_hour(machine, state.offers)
        most = min(nodes, by_money)
        found[kind] = inf if most == inf else max(floor(most), 0) * machine.whole_gpus
    return found


def _large(due: Due) -> float:
    """Return the largest size factor on the hours, ignoring the rarest sizes."""
    return max(
        (size for size, weight in due.sizes if weight >= LEAST_SIZE_PROBABILITY), default=due.sizes[-1][0]
    )


def _least(state: ClusterState, due: Due, boot_hours: float) -> Width | None:
    """Return the narrowest width that still meets a date; None when none does."""
    left = (due.at - state.now) / SECONDS_PER_HOUR - boot_hours - due.startup_hours
    fits = [width for width, took in due.hours if took * _large(due) <= left]
    return min(fits, key=lambda width: width.gpus, default=None)
