"""One job and its date: when to wait, how wide to run, on spot or on demand, for the least money.

An exact dynamic programme (`date_programme.py`) over (time left, work left, market, what the job holds) on a
grid whose cell is the work that the fastest width does in one step, so that what can still be met is met to
the cell. A job that misses its date costs `MISS_WEIGHT` times what all of it costs at the widest, so it takes
spot while that is safe and on demand in time. Spot of all widths is there or not, in a Markov chain; what is
taken back loses the step. A start is paid for and does no work. Machines on demand fail too, rarely, which is
why a date is met with a probability and not for sure.

    symbol   here             meaning
    t        steps            time left, in steps of `step_hours`
    x        cells            work left, in steps at the fastest width
    c        configurations   nothing, each width on demand, each width on spot
    s        0 or 1           spot is not there, or is

Advice is a look-up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from policies.model import Width, check_positive

MISS_WEIGHT = 1000.0
"""A missed date counts as so many times the work at the widest on demand."""
STEPS = 240
"""Steps that the time left is cut into."""
FAILURE_HOURS = 1000.0
"""A machine on demand fails once in so long, about."""
NO_WIDTH = 0
"""The configuration that holds nothing."""
TINY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class DateOption:
    """A width: how fast it is as a share of the fastest, and what it costs per hour, whole machines.

    `spot_usd_per_hour` is None where it is not rented on the spot market.
    """

    width: Width
    speed: float
    usd_per_hour: float
    spot_usd_per_hour: float | None = None

    def __post_init__(self) -> None:
        check_positive("speed", self.speed)
        check_positive("usd_per_hour", self.usd_per_hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotMarket:
    """How spot comes and goes: mean hours that it is there, and that it is not."""

    up_hours: float = 4.0
    down_hours: float = 2.0

    def __post_init__(self) -> None:
        check_positive("up_hours", self.up_hours)
        check_positive("down_hours", self.down_hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class DateAdvice:
    """What to hold now (None: nothing), and whether it is to be on demand.

    `usd` is what the rest then costs on average if the date is met, `kept` the probability that it is.
    """

    width: Width | None
    is_firm: bool
    usd: float
    kept: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DatePlan:
    """The best thing to do at every time and work left, up to a horizon.

    The axes are time left, what is held, spot, work left. `best` is the configuration to take, `usd` and
    `kept` are what follows from it.
    """

    rungs: tuple[DateOption, ...]
    step_hours: float
    best: NDArray[np.uint8]
    usd: NDArray[np.float32]
    kept: NDArray[np.float32]
    on_spot: tuple[int, ...] = field(default=())

    def configuration(self, held: Width | None, *, is_spot: bool) -> int:
        """Return the number of what is held: the widest of the widths within it, or nothing."""
        within = (
            (rung.width.gpus, number)
            for number, rung in enumerate(self.rungs)
            if held is not None and rung.width.gpu_type == held.gpu_type and rung.width.gpus <= held.gpus
        )
        _, number = max(within, default=(0, -1))
        spot = 1 + len(self.rungs) + number
        return NO_WIDTH if number < 0 else spot if is_spot and spot in self.on_spot else 1 + number

    def cells(self, hours_left: float, work_hours: float) -> tuple[int, int]:
        """Return time and work left on the grid, each rounded to the safe side."""
        time = min(math.floor(hours_left / self.step_hours + TINY), len(self.best) - 1)
        work = math.ceil(work_hours / self.step_hours - TINY)
        return max(time, 0), min(max(work, 0), self.best.shape[3] - 1)

    def _is_beyond(self, work_hours: float) -> bool:
        """Return whether there is more work than fits before the horizon: no cell is its own."""
        return work_hours > (len(self.best) - 1 + TINY) * self.step_hours

    def advise(
        self,
        hours_left: float,
        work_hours: float,
        *,
        held: Width | None = None,
        is_spot: bool = False,
        is_up: bool = True,
    ) -> DateAdvice:
        """Return what to do now; `work_hours` is the work left in hours at the fastest width."""
        time, work = self.cells(hours_left, work_hours)
        here = (time, self.configuration(held, is_spot=is_spot), int(is_up), work)
        chosen = int(self.best[here])
        rung = None if chosen == NO_WIDTH else self.rungs[(chosen - 1) % len(self.rungs)]
        return DateAdvice(
            width=None if rung is None else rung.width,
            is_firm=rung is not None and chosen not in self.on_spot,
            usd=float(self.usd[here]),
            kept=0.0 if self._is_beyond(work_hours) else float(self.kept[here]),
        )

    def dates(self, work_hours: float, *, least: float) -> list[tuple[float, float]]:
        """Return the hours to each date that is met with a probability, and what the work then costs."""
        if self._is_beyond(work_hours):
            return []
        work = self.cells(0.0, work_hours)[1]
        found = np.flatnonzero(self.kept[:, NO_WIDTH, 1, work] >= least)
        return [(int(t) * self.step_hours, float(self.usd[t, NO_WIDTH, 1, work])) for t in found]
