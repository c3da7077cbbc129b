"""Rent what each job asks for, the moment it arrives: what users of SkyPilot and Karpenter do.

Nobody optimises: each user asks for some width at which the GPUs still work well, and gets it. Pollux's
authors model such users (OSDI 2021, section 5.2, "tuned" jobs): any width whose speed-up is 50 to 80 % of
ideal, all equally likely. Here that is a band around `efficiency`, 0.65 in their case; a crowd that asks for
more aims lower.

    symbol   here         meaning
    e        efficiency   middle of the band of efficiencies that users ask for, 0..1
    u        draw         the job's own draw, uniform on [0, 1): which user submitted it

Cost: O(jobs) per call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from policies.answer import Allocation
from policies.errors import InvalidProblem
from policies.model import Job, Money
from policies.rivals.baselines import Promise, WidthMenu
from policies.rivals.ladder import Widths

TUNED = 0.65
"""The middle of Pollux's band of 0.5 to 0.8."""
HALF_BAND = 0.15
EDGE = 1e-9
"""The edges belong to the band, whatever the last digit says."""
HOLD_SECONDS = 300.0
"""How long a machine is kept for the next job where users keep any: SkyPilot's autostop is 5 minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedWidths:
    """What users ask for: one width for a job's life, from the band of efficiencies around ``efficiency``."""

    menu: WidthMenu
    efficiency: float = TUNED
    _asked: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.efficiency <= 1.0:
            raise InvalidProblem(f"an efficiency is a number from 0 to 1; got {self.efficiency!r}")

    def rungs_of(self, class_name: str) -> tuple[int, ...]:
        """Return the rungs of the class's ladder in the band; where none is, the fastest that is above it."""
        found = self._asked.get(class_name)
        if found is None:
            ladder = self.menu.ladder(class_name)
            inside = np.flatnonzero(
                np.abs(ladder.efficiencies - self.efficiency) <= HALF_BAND + EDGE
            ).tolist()
            found = tuple(inside) or (ladder.fastest_at(self.efficiency),)
            self._asked[class_name] = found
        return found

    def widths_of(self, job: Job) -> Widths:
        """Return the width of each phase that the job's user asked for."""
        rungs = self.rungs_of(job.class_name)
        return self.menu.ladder(job.class_name).widths[rungs[int(job.draw * len(rungs))]]

    def promise(self) -> Promise:
        """Return what the asking comes to in the long run."""
        held = waited = arrivals = 0.0
        for name, job_class in self.menu.classes.items():
            ladder, rungs = self.menu.ladder(name), list(self.rungs_of(name))
            held += job_class.arrivals_per_hour * float(ladder.gpu_hours[rungs].mean())
            waited += job_class.arrivals_per_hour * float(ladder.hours[rungs].mean())
            arrivals += job_class.arrivals_per_hour
        return Promise(mean_jct_hours=waited / arrivals, gpus=held)


@dataclass(frozen=True, slots=True, kw_only=True)
class RentAsAsked:
    """Rent on arrival; every job gets the width that its user asked for."""

    asked: AskedWidths

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job, and leave the nodes to the widths."""
        return Allocation(widths={job.id: self.asked.widths_of(job)[job.phase] for job in jobs})
