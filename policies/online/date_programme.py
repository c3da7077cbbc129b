"""The dynamic programme of `policies.online.deadlines`, solved backwards from the date.

Each backward step compares, for all amounts of work left at once: going on for a step, waiting a step, and
every start, whose boot takes several steps. At the fastest width the work left stays on the grid; at other
widths it is interpolated. Dollars and the probability of meeting the date are computed side by side.

Cost: O(steps**2 x widths), about a tenth of a second for 240 steps and three widths.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from policies.model import check_positive
from policies.online.deadlines import (
    FAILURE_HOURS,
    MISS_WEIGHT,
    NO_WIDTH,
    STEPS,
    TINY,
    DateOption,
    DatePlan,
    SpotMarket,
)
from policies.speedup import Floats

KEPT = 8
"""Solved programmes in the cache; one with six widths takes a dozen megabytes."""
SAME_USD = 1e-6
"""Waiting is better than starting only if it saves more than this."""
_Indices = NDArray[np.intp]


def date_plan(
    rungs: Sequence[DateOption],
    *,
    horizon_hours: float,
    boot_hours: float,
    market: SpotMarket | None = None,
    failure_hours: float = FAILURE_HOURS,
    steps: int = STEPS,
) -> DatePlan:
    """Return the optimal plan for up to `horizon_hours` left. The last `KEPT` plans are cached.

    Raises:
        InvalidProblem: when `horizon_hours` is not positive.
    """
    fastest = max(rung.speed for rung in rungs)
    check_positive("horizon_hours", horizon_hours)
    if not math.isclose(fastest, 1.0):
        rungs = [_scaled(rung, fastest) for rung in rungs]
    return _solved(
        _ProgrammeInputs(
            rungs=tuple(rungs),
            step_hours=horizon_hours / steps,
            boot_hours=boot_hours,
            market=market or SpotMarket(),
            failure_hours=failure_hours,
            steps=steps,
        )
    )


def _scaled(rung: DateOption, fastest: float) -> DateOption:
    return DateOption(
        width=rung.width,
        speed=rung.speed / fastest,
        usd_per_hour=rung.usd_per_hour,
        spot_usd_per_hour=rung.spot_usd_per_hour,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProgrammeInputs:
    rungs: tuple[DateOption, ...]
    step_hours: float
    boot_hours: float
    market: SpotMarket
    failure_hours: float
    steps: int


@lru_cache(maxsize=KEPT)
def _solved(given: _ProgrammeInputs) -> DatePlan:
    rungs, steps = given.rungs, given.steps
    boot = math.ceil(given.boot_hours / given.step_hours - TINY)
    grid = _Grid.of(given, boot)
    states = len(rungs) * 2 + 1
    miss = MISS_WEIGHT * max(rung.usd_per_hour for rung in rungs) * steps * given.step_hours
    usd = np.zeros((states, 2, steps + 1))
    kept = np.zeros((states, 2, steps + 1))
    kept[:, :, 0] = 1.0
    best = np.zeros((steps + 1, states, 2, steps + 1), dtype=np.uint8)
    all_usd, all_kept = np.zeros(best.shape, dtype=np.float32), np.zeros(best.shape, dtype=np.float32)
    all_kept[0] = kept
    past = deque([(usd, kept)], maxlen=max(boot, 1))
    for time in range(1, steps + 1):
        usd, kept, best[time] = grid.step(past, miss)
        past.append((usd, kept))
        all_usd[time], all_kept[time] = usd, kept
    return DatePlan(
        rungs=rungs,
        step_hours=given.step_hours,
        best=best,
        usd=all_usd,
        kept=all_kept,
        on_spot=tuple(1 + len(rungs) + i for i, r in enumerate(rungs) if r.spot_usd_per_hour is not None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _GridConfiguration:
    """A width on demand or on spot: cost and work of a step, and `safe`, the probability of no loss in it."""

    number: int
    is_spot: bool
    usd: float
    safe: float
    low: _Indices
    part: Floats
    share: Floats

    def after(self, values: Floats) -> Floats:
        """Return the values after the work of a step; the last axis is the work left."""
        below: Floats = values[..., self.low]
        return below + self.part * (values[..., self.low + (self.part > 0.0)] - below)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    runs: tuple[_GridConfiguration, ...]
    boot: int
    keeps: tuple[Floats, Floats]
    """Transition matrices of the spot market (0 not available, 1 available): one step, and one boot."""

    @classmethod
    def of(cls, given: _ProgrammeInputs, boot: int) -> _Grid:
        rungs, hours, steps, market = given.rungs, given.step_hours, given.steps, given.market
        stays, returns = math.exp(-hours / market.up_hours), 1.0 - math.exp(-hours / market.down_hours)
        one = np.array([[1.0 - returns, returns], [1.0 - stays, stays]])
        runs = []
        cells = np.arange(steps + 1)
        for number, rung in enumerate(rungs):
            left = np.maximum(cells - rung.speed, 0.0)
            low = np.floor(left + TINY).astype(np.intp)
            part = np.maximum(left - low, 0.0)
            share = np.minimum(cells / rung.speed, 1.0)
            for spot, price in enumerate((rung.usd_per_hour, rung.spot_usd_per_hour)):
                if price is not None:
                    runs.append(
                        _GridConfiguration(
                            number=1 + number + spot * len(rungs),
                            is_spot=bool(spot),
                            usd=price * hours,
                            safe=stays if spot else math.exp(-hours / given.failure_hours),
                            low=low,
                            part=part,
                            share=share,
                        )
                    )
        return cls(runs=tuple(runs), boot=boot, keeps=(one, np.linalg.matrix_power(one, boot)))

    def step(
        self, past: deque[tuple[Floats, Floats]], miss: float
    ) -> tuple[Floats, Floats, NDArray[np.uint8]]:
        """Return dollars, probability and choice with one more step of time left."""
        (usd, kept), can_boot = past[-1], len(past) >= self.boot
        ahead = [_NextValues(*pair, *self.keeps) for pair in ((usd, kept), past[0])]
        free_usd, free_kept = self.keeps[0] @ usd[NO_WIDTH], self.keeps[0] @ kept[NO_WIDTH]
        free_choice = np.zeros(free_usd.shape, dtype=np.uint8)
        going: dict[int, tuple[Floats, Floats]] = {}
        for run in self.runs:
            going[run.number] = ahead[0].run(run, boot=0)
            start = going[run.number] if self.boot == 0 else ahead[1].run(run, boot=self.boot)
            if not can_boot:
                continue
            # Start now if waiting is not better: the next decision may come late.
            less = np.where(free_choice == NO_WIDTH, -SAME_USD, TINY)
            better = _weighs(*start, miss) < _weighs(free_usd, free_kept, miss) - less
            if run.is_spot:
                better[0] = False
            free_usd, free_kept = np.where(better, start[0], free_usd), np.where(better, start[1], free_kept)
            free_choice[better] = run.number
        shape = (usd.shape[0], *free_usd.shape)
        new_usd, new_kept = np.broadcast_to(free_usd, shape).copy(), np.broadcast_to(free_kept, shape).copy()
        choice = np.broadcast_to(free_choice, shape).copy()
        for run in self.runs:
            run_usd, run_kept = going[run.number]
            stays = _weighs(run_usd, run_kept, miss) <= _weighs(free_usd, free_kept, miss) + TINY
            if run.is_spot:
                stays[0] = False
            new_usd[run.number] = np.where(stays, run_usd, free_usd)
            new_kept[run.number] = np.where(stays, run_kept, free_kept)
            choice[run.number][stays] = run.number
        new_usd[..., 0], new_kept[..., 0], choice[..., 0] = 0.0, 1.0, NO_WIDTH
        return new_usd, new_kept, choice


def _weighs(usd: Floats, kept: Floats, miss: float) -> Floats:
    """Return the objective: dollars plus the penalty times the probability of missing the date."""
    found: Floats = usd + miss * (1.0 - kept)
    return found


@dataclass(frozen=True, slots=True)
class _NextValues:
    """The values after a step or a boot."""

    usd: Floats
    kept: Floats
    one: Floats
    booted: Floats

    def run(self, run: _GridConfiguration, *, boot: int) -> tuple[Floats, Floats]:
        """Return dollars and probability if a step of work, or a boot, comes next; by spot and work left."""
        found = []
        chain, safe = (self.booted, run.safe**boot) if boot else (self.one, run.safe)
        for values in (self.usd, self.kept):
            mine = values[run.number] if boot else run.after(values[run.number])
            if run.is_spot:
                # The machine stays, or it is taken back and the market is down.
                row = safe * mine[1] + (1.0 - safe) * values[NO_WIDTH][0]
                found.append(np.stack([row, row]))
            else:
                found.append(safe * (chain @ mine) + (1.0 - safe) * (chain @ values[NO_WIDTH]))
        cost = run.usd * (boot if boot else run.share)
        return found[0] + cost, found[1]
