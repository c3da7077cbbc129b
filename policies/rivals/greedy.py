"""Greedy marginal gain: give GPUs to the phase that gains most time per dollar, until the budget is used.

Every phase starts at its narrowest width. In each step one phase moves to its next wider width that is
faster: the phase that saves the most weighted hours per unit of budget among the steps that still fit. In
contrast to `boa` there are no hulls and no look-ahead, so a poor next step hides a good one behind it. The
phases of a class with a rescale cost move together. This is the obvious heuristic; Optimus (Peng et al.,
EuroSys 2018) shares a fixed cluster by such steps.

    symbol   here       meaning
    B        gpus       GPUs that the budget pays for on average
    dT       saved      weighted hours per hour that a step saves
    dC       taken      GPUs that a step adds

Cost: O(s log p) for s steps over p phases, and O(jobs) per call.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from policies.answer import Allocation
from policies.errors import InfeasibleBudget
from policies.model import Job, JobClass, Money
from policies.rivals.ladder import WidthLadder, Widths, phase_ladder, whole_job_ladder
from policies.rivals.long_run_averages import planned_within
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site

SLACK = 1e-9
"""Relative slack in the budget, for rounding errors of sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyMarginal:
    """Rent on arrival; every job gets the width of its class and phase from the greedy steps."""

    plans: Mapping[str, Widths]

    @classmethod
    def within(cls, classes: Mapping[str, JobClass], gpu_type: str, *, gpus: float) -> GreedyMarginal:
        """Take greedy steps until none fits in `gpus` held on average.

        Raises:
            InfeasibleBudget: when the narrowest widths already take more.
        """
        ladders = [ladder for job_class in classes.values() for ladder in _ladders(job_class, gpu_type)]
        rungs = _climb(ladders, classes, gpus)
        widths: dict[str, Widths] = dict.fromkeys(classes, ())
        for ladder, rung in zip(ladders, rungs, strict=True):
            widths[ladder.class_name] += ladder.widths[rung]
        return cls(plans=widths)

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job; the nodes to rent follow from the widths."""
        return Allocation(widths={job.id: self.plans[job.class_name][job.phase] for job in jobs})


def _ladders(job_class: JobClass, gpu_type: str) -> Iterator[WidthLadder]:
    """Yield a ladder for each phase, or one for the whole job if changes of width cost a rescale."""
    if job_class.is_coupled:
        yield whole_job_ladder(job_class, gpu_type)
    else:
        for number in range(len(job_class.phases)):
            yield phase_ladder(job_class, number, gpu_type)


def _climb(ladders: Sequence[WidthLadder], classes: Mapping[str, JobClass], gpus: float) -> list[int]:
    """Return the rung of each ladder after the last step that fits."""
    rungs = [0] * len(ladders)
    rates = [classes[ladder.class_name].arrivals_per_hour for ladder in ladders]
    least = math.fsum(rate * float(ladder.gpu_hours[0]) for rate, ladder in zip(rates, ladders, strict=True))
    room = gpus * (1.0 + SLACK) - least
    if room < 0.0:
        raise InfeasibleBudget(
            f"{gpus:.2f} GPUs on average are too few: the narrowest widths take {least:.2f}",
            least_spend=least,
        )
    steps: list[tuple[float, int, int]] = []

    def offer(number: int) -> None:
        """Queue the next step of a ladder; steps without cost come first."""
        ladder, rung = ladders[number], rungs[number]
        after = ladder.next_faster(rung)
        if after is not None:
            weight = classes[ladder.class_name].weight
            saved = weight * float(ladder.hours[rung] - ladder.hours[after])
            taken = float(ladder.gpu_hours[after] - ladder.gpu_hours[rung])
            heapq.heappush(steps, (-saved / taken if taken > 0.0 else -math.inf, number, after))

    for number in range(len(ladders)):
        offer(number)
    while steps:
        _, number, after = heapq.heappop(steps)
        ladder = ladders[number]
        taken = rates[number] * float(ladder.gpu_hours[after] - ladder.gpu_hours[rungs[number]])
        # A ladder whose next step does not fit stops here; cheaper steps of other ladders may still fit.
        if taken <= room:
            room -= taken
            rungs[number] = after
            offer(number)
    return rungs


def build(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build the policy with the widths that greedy steps reach within the budget."""
    return planned_within(site, options, GreedyMarginal.within, floor="the narrowest widths take at least {}")


GREEDY_MARGINAL = PolicyEntry(
    name="greedy-marginal",
    kind="heuristic",
    summary="rent on arrival, widths by greedy steps of most time per dollar",
    build=build,
    is_job_by_job=True,
    options=frozenset({"gpu_type"}),
)
