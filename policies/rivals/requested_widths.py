"""Rent what each job asks for when it arrives, as users of SkyPilot and Karpenter do.

There is no optimisation: each user asks for a width at which the GPUs are still used well, and gets it.
Pollux's authors model such users (OSDI 2021, section 5.2, "tuned" jobs): any width whose speed-up is 50 to 80
% of ideal, all equally likely. Here that is a band around `efficiency`, which is 0.65 in their case; users
who want more GPUs accept a lower efficiency.

    symbol   here         meaning
    e        efficiency   middle of the band of efficiencies that users ask for, 0..1
    u        draw         the job's own draw, uniform on [0, 1): which user submitted it

Cost: O(jobs) per call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from policies.answer import Allocation
from policies.errors import InvalidProblem
from policies.model import Job, Money
from policies.rivals.ladder import WidthLadder, Widths
from policies.rivals.long_run_averages import LongRunAverages, fastest_affordable
from policies.rivals.width_menu import WidthMenu, menu_of
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site

TUNED_EFFICIENCY = 0.65
"""The middle of Pollux's band of 0.5 to 0.8."""
HALF_BAND = 0.15
EDGE = 1e-9
"""Tolerance that includes the edges in the band in spite of rounding."""
HOLD_SECONDS = 300.0
"""How long an idle machine is kept for the next job by `asked-hold`: SkyPilot's autostop is 5 minutes."""


@dataclass(frozen=True, kw_only=True)
class RequestedWidths:
    """The widths that users ask for: one for a job's life, in the efficiency band around ``efficiency``."""

    menu: WidthMenu
    efficiency: float = TUNED_EFFICIENCY

    def __post_init__(self) -> None:
        if not 0.0 <= self.efficiency <= 1.0:
            raise InvalidProblem(f"an efficiency is a number from 0 to 1; got {self.efficiency!r}")

    @cached_property
    def rungs(self) -> Mapping[str, tuple[int, ...]]:
        """The rungs of each class's ladder in the band; if none, the fastest with a higher efficiency."""
        return {name: self._rungs_of(ladder) for name, ladder in self.menu.ladders.items()}

    def _rungs_of(self, ladder: WidthLadder) -> tuple[int, ...]:
        inside = np.flatnonzero(np.abs(ladder.efficiencies - self.efficiency) <= HALF_BAND + EDGE)
        return tuple(inside.tolist()) or (ladder.fastest_at(self.efficiency),)

    def widths_of(self, job: Job) -> Widths:
        """Return the width of each phase that the job's user asked for."""
        rungs = self.rungs[job.class_name]
        return self.menu.ladders[job.class_name].widths[rungs[int(job.draw * len(rungs))]]

    def promise(self) -> LongRunAverages:
        """Return the long-run averages of the requested widths."""
        held = waited = arrivals = 0.0
        for name, job_class in self.menu.classes.items():
            ladder, rungs = self.menu.ladders[name], list(self.rungs[name])
            held += job_class.arrivals_per_hour * float(ladder.gpu_hours[rungs].mean())
            waited += job_class.arrivals_per_hour * float(ladder.hours[rungs].mean())
            arrivals += job_class.arrivals_per_hour
        return LongRunAverages(mean_jct_hours=waited / arrivals, gpus=held)


@dataclass(frozen=True, slots=True, kw_only=True)
class RentAsRequested:
    """Rent on arrival; every job gets the width that its user asked for."""

    asked: RequestedWidths

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job; the nodes to rent follow from the widths."""
        return Allocation(widths={job.id: self.asked.widths_of(job)[job.phase] for job in jobs})


def build(site: Site, options: PolicyOptions, *, hold_seconds: float) -> BuiltPolicy:
    """Build rent-as-asked with the given efficiency, or with the best that the budget pays for.

    Raises:
        InfeasibleBudget: when no efficiency is given and the budget pays for none.
    """
    menu = menu_of(site, options)
    given = options.efficiency
    crowds = {
        e: RequestedWidths(menu=menu, efficiency=e) for e in (menu.thresholds if given is None else [given])
    }
    promises = {e: crowd.promise() for e, crowd in crowds.items()}
    best = fastest_affordable(promises, site, menu, what="what users ask for", given=given)
    return BuiltPolicy(
        allocator=RentAsRequested(asked=crowds[best]),
        idle_hold_seconds=hold_seconds,
        planned_mean_jct_hours=promises[best].mean_jct_hours,
        planned_spend=promises[best].gpus * site.problem.price_of(menu.gpu_type),
    )


ASKED = PolicyEntry(
    name="asked",
    kind="rule",
    summary="rent on arrival what each user asks for, and let go of nodes at once",
    build=partial(build, hold_seconds=0.0),
    is_job_by_job=True,
    options=frozenset({"gpu_type", "efficiency"}),
)

ASKED_HOLD = PolicyEntry(
    name="asked-hold",
    kind="rule",
    summary="rent on arrival what each user asks for, and keep idle nodes for five minutes",
    build=partial(build, hold_seconds=HOLD_SECONDS),
    is_job_by_job=True,
    options=frozenset({"gpu_type", "efficiency"}),
)
