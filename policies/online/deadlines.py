"""The cheapest way to meet the date of one job: when to wait, how wide to run, on spot or on demand.

An exact dynamic programme (`date_programme.py`) over (time left, work left, market, what the job holds). A
grid cell is the work that the fastest width does in one step, so rounding loses no date that can still be
met. Missing the date counts as `MISS_WEIGHT` times the price of the whole horizon at the dearest width, so
the job uses spot while that is safe and changes to on demand in time. Spot is available for all widths or for
none, as a Markov chain; when a spot machine is taken back, the work of that step is lost. A boot is paid for
and does no work. Machines on demand fail too, rarely, so a date is met with a probability below 1.

    symbol   here             meaning
    t        steps            time left, in steps of `step_hours`
    x        cells            work left, in steps at the fastest width
    c        configurations   nothing, each width on demand, each width on spot
    s        0 or 1           spot is not available, or is

Cost of an advice: one look-up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from policies.model import Width, check_positive

MISS_WEIGHT = 1000.0
"""A missed date counts as this many times the horizon's hours at the dearest on-demand price."""
STEPS = 240
"""Time steps of the horizon."""
FAILURE_HOURS = 1000.0
"""Mean hours between failures of a machine on demand."""
NO_WIDTH = 0
"""The configuration without machines."""
TINY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class DateOption:
    """A width: its speed as a share of the fastest, and the price per hour of its whole machines.

    `spot_usd_per_hour` is None for a width that is not rented on the spot market.
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
    """The spot market: mean hours for which capacity is available, and mean hours for which it is not."""

    up_hours: float = 4.0
    down_hours: float = 2.0

    def __post_init__(self) -> None:
        check_positive("up_hours", self.up_hours)
        check_positive("down_hours", self.down_hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class DateAdvice:
    """The width to hold now (None: no machines); `is_firm` means on demand.

    `usd` is the expected cost of the rest, `kept` the probability that the date is met.
    """

    width: Width | None
    is_firm: bool
    usd: float
    kept: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DatePlan:
    """The optimal choice for every time left and work left, up to a horizon.

    The axes are time left, configuration held, spot, work left. `best` is the configuration to take, `usd`
    and `kept` are the resulting expected cost and probability of meeting the date. `on_spot` are the
    configurations on spot.
    """

    rungs: tuple[DateOption, ...]
    step_hours: float
    best: NDArray[np.uint8]
    usd: NDArray[np.float32]
    kept: NDArray[np.float32]
    on_spot: tuple[int, ...] = field(default=())

    def configuration(self, held: Width | None, *, is_spot: bool) -> int:
        """Return the configuration that stands for the GPUs held: the widest that fits in them, or none."""
        within = (
            (rung.width.gpus, number)
            for number, rung in enumerate(self.rungs)
            if held is not None and rung.width.gpu_type == held.gpu_type and rung.width.gpus <= held.gpus
        )
        _, number = max(within, default=(0, -1))
        spot = 1 + len(self.rungs) + number
        return NO_WIDTH if number < 0 else spot if is_spot and spot in self.on_spot else 1 + number

    def cells(self, hours_left: float, work_hours: float) -> tuple[int, int]:
        """Return the grid indices of time left (rounded down) and work left (rounded up)."""
        time = min(math.floor(hours_left / self.step_hours + TINY), len(self.best) - 1)
        work = math.ceil(work_hours / self.step_hours - TINY)
        return max(time, 0), min(max(work, 0), self.best.shape[3] - 1)

    def _is_beyond(self, work_hours: float) -> bool:
        """Return whether the work left exceeds the grid, so that no date within the horizon can be met."""
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
        """Return the width to hold now; `work_hours` is the work left in hours at the fastest width.

        `held` and `is_spot` are the current machines; `is_up` tells whether spot is available.
        """
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
        """Return (hours until the date, USD) of each date that is met with probability `least` or more."""
        if self._is_beyond(work_hours):
            return []
        work = self.cells(0.0, work_hours)[1]
        found = np.flatnonzero(self.kept[:, NO_WIDTH, 1, work] >= least)
        return [(int(t) * self.step_hours, float(self.usd[t, NO_WIDTH, 1, work])) for t in found]
