"""Dates kept and what that costs: the programme beside Uniform Progress, greedy and on demand.

    python benchmarks/deadlines.py [--jobs 10000]

48 hours of work at one GPU, spot at 0.3 of the price, six minutes lost at every start, machines on demand
that fail once in 1,000 hours; widths 2 and 4 are 95 and 85 % efficient. Spot comes and goes in Markov
markets. The rivals run one GPU, as published: Uniform Progress (Can't Be Late, NSDI 2024) rents on demand
when behind the straight line to the date until it is ahead again, greedy only when nothing else is left. All
three keep two starts in hand. Under each line stands what hindsight would have paid that knows when spot
will be there, a bound that no policy beats, and the most that could be saved of the best rival. `x 2` and
`/ 2` are markets whose rates are twice and half of what the programme believes. Costs are dollars per job of
one dollar per GPU-hour on demand.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from policies.model import Width
from policies.online.date_programme import date_plan
from policies.online.deadlines import FAILURE_HOURS, NOTHING, DatePlan, Rung, SpotMarket

WORK_HOURS, BOOT_HOURS, STEP_HOURS, SPOT = 48.0, 0.1, 0.1, 0.3
EFFICIENCY = {1: 1.0, 2: 0.95, 4: 0.85}
CASES = ((4.0, 2.0, 52.0), (4.0, 2.0, 70.0), (2.0, 4.0, 52.0), (8.0, 1.0, 60.0))
"""Hours that spot is there, hours that it is not, hours to the date."""
Numbers = NDArray[np.float64]
Choices = NDArray[np.intp]
Chooser = Callable[[int, Numbers, Choices, NDArray[np.bool_]], Choices]
"""(steps left, work left, configuration held, whether spot is there) -> configuration to hold."""


def rungs(*gpus: int) -> list[Rung]:
    """Return widths of one GPU type; speeds are in GPUs of full efficiency."""
    return [
        Rung(
            width=Width("gpu", n),
            speed=n * EFFICIENCY[n],
            usd_per_hour=float(n),
            spot_usd_per_hour=SPOT * n,
        )
        for n in gpus
    ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Mean dollars of a job, and the share of jobs that kept their date."""

    usd: float
    kept: float


def simulate(
    widths: list[Rung],
    market: SpotMarket,
    date: float,
    choose: Chooser,
    *,
    jobs: int,
    seed: int = 1,
    work_hours: float = WORK_HOURS,
) -> Outcome:
    """Run jobs to their end or date, in steps of six minutes; all start with spot there or not, at random."""
    rng = np.random.default_rng(seed)
    up_share = market.up_hours / (market.up_hours + market.down_hours)
    up = rng.random(jobs) < up_share
    left = np.full(jobs, work_hours)
    held, boots = np.zeros(jobs, dtype=np.intp), np.zeros(jobs, dtype=np.intp)
    usd = np.zeros(jobs)
    speed = np.array([0.0, *(r.speed for r in widths), *(r.speed for r in widths)]) * STEP_HOURS
    prices = [rung.usd_per_hour for rung in widths]
    price = np.array([0.0, *prices, *(SPOT * usd for usd in prices)]) * STEP_HOURS
    first_spot = 1 + len(widths)
    stays, returns = np.exp(-STEP_HOURS / market.up_hours), 1.0 - np.exp(-STEP_HOURS / market.down_hours)
    fails, boot = 1.0 - np.exp(-STEP_HOURS / FAILURE_HOURS), round(BOOT_HOURS / STEP_HOURS)
    for steps_left in range(round(date / STEP_HOURS), 0, -1):
        wanted = np.where(boots > 0, held, choose(steps_left, left, held, up))
        wanted[(wanted >= first_spot) & ~up] = NOTHING
        boots = np.where(wanted != held, boot, boots)
        held = np.where(left > 0.0, wanted, NOTHING)
        works = boots == 0
        done = np.where(works, speed[held], 0.0)
        usd += price[held] * np.where(works & (done > left), left / np.where(done > 0.0, done, 1.0), 1.0)
        next_up = np.where(up, rng.random(jobs) < stays, rng.random(jobs) < returns)
        is_lost = np.where(held >= first_spot, ~next_up, rng.random(jobs) < fails) & (held != NOTHING)
        left = np.where(is_lost & (left > done), left, np.maximum(left - done, 0.0))
        boots = np.maximum(boots - 1, 0)
        held, boots, up = np.where(is_lost, NOTHING, held), np.where(is_lost, 0, boots), next_up
    return Outcome(usd=float(usd.mean()), kept=float(np.mean(left <= 1e-9)))


def by_plan(plan: DatePlan, widths: list[Rung]) -> Chooser:
    """Return the programme's choice, looked up for all jobs at once."""
    fastest = max(rung.speed for rung in widths)

    def choose(steps_left: int, left: Numbers, held: Choices, up: NDArray[np.bool_]) -> Choices:
        time, _ = plan.cells(steps_left * STEP_HOURS, 0.0)
        cells = np.ceil(left / fastest / plan.step_hours - 1e-9).astype(int)
        found = plan.best[time, held, up.astype(int), np.clip(cells, 0, plan.best.shape[3] - 1)]
        return found.astype(np.intp)

    return choose


def uniform_progress(date: float) -> Chooser:
    """Return Uniform Progress at one GPU."""
    return _rival(date, keeps_pace=True)


def greedy(date: float) -> Chooser:
    """Return spot while there is time, on demand when there is none left."""
    return _rival(date, keeps_pace=False)


def _rival(date: float, *, keeps_pace: bool) -> Chooser:
    """Return a rival: 1 is on demand, 2 is spot."""

    def choose(steps_left: int, left: Numbers, held: Choices, up: NDArray[np.bool_]) -> Choices:
        hours = steps_left * STEP_HOURS
        is_last = hours - left <= 2.0 * BOOT_HOURS + STEP_HOURS + 1e-9
        otherwise = np.where(up, 2, NOTHING)
        if keeps_pace:
            ahead = (WORK_HOURS - left) - (date - hours) * WORK_HOURS / date
            on_demand = (ahead < 0.0) | ((held == 1) & (ahead < 2.0 * BOOT_HOURS))
            otherwise = np.where(up & (held != 1), 2, np.where(on_demand, 1, otherwise))
        return np.where(is_last & (held != 2), 1, otherwise)

    return choose


def hindsight(
    widths: list[Rung],
    market: SpotMarket,
    date: float,
    *,
    jobs: int,
    seed: int = 1,
    work_hours: float = WORK_HOURS,
) -> float:
    """Return mean dollars below which no policy comes on the draws of `simulate`, whatever it foresees.

    Spot does work in a step only if it is there before, in which it starts, and after, or what the step did
    is lost; one step more may end the job. Starts and failures of machines on demand are free here.
    So many hours of spot are filled at the narrowest width, then widened, then filled up on demand.
    """
    rng = np.random.default_rng(seed)
    up = rng.random(jobs) < market.up_hours / (market.up_hours + market.down_hours)
    before, steps, useful = np.zeros(jobs, dtype=bool), round(date / STEP_HOURS), np.ones(jobs)
    stays, returns = np.exp(-STEP_HOURS / market.up_hours), 1.0 - np.exp(-STEP_HOURS / market.down_hours)
    for _ in range(steps):
        next_up = np.where(up, rng.random(jobs) < stays, rng.random(jobs) < returns)
        rng.random(jobs)  # `simulate` draws what fails
        useful += before & up & next_up
        before, up = up, next_up
    spot = useful * STEP_HOURS
    left, usd = np.full(jobs, work_hours), np.zeros(jobs)
    for hours, part in ((spot, SPOT), (date - spot, 1.0)):
        speed = price = 0.0
        for rung in widths:
            # The price of work rises with each step to a wider one, and is less on spot than on demand.
            more = np.minimum(left, np.maximum(hours, 0.0) * (rung.speed - speed))
            usd += more * part * (rung.usd_per_hour - price) / (rung.speed - speed)
            left -= more
            speed, price = rung.speed, rung.usd_per_hour
    return float(usd.mean())


def on_demand(_steps: int, _left: Numbers, held: Choices, _up: NDArray[np.bool_]) -> Choices:
    """Return one GPU on demand from the beginning."""
    return np.ones_like(held)


def main() -> None:
    """Print a line for each market, date and belief."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    jobs = parser.parse_args().jobs
    began = perf_counter()
    names = ("on demand", "greedy", "uniform progress", "programme, 1 GPU", "programme, 1 2 4")
    print(f"{'market':26}" + "".join(f"{name:>24}" for name in names) + "   saved of the best rival")
    for up, down, date in CASES:
        for label, factor in (("", 1.0), (" x 2", 0.5), (" / 2", 2.0)):
            market = SpotMarket(up_hours=up * factor, down_hours=down * factor)
            believed = SpotMarket(up_hours=up, down_hours=down)
            one, many = rungs(1), rungs(1, 2, 4)
            plans = [
                date_plan(w, horizon_hours=date, boot_hours=BOOT_HOURS, market=believed, steps=520)
                for w in (one, many)
            ]
            choosers = [
                (one, on_demand),
                (one, greedy(date)),
                (one, uniform_progress(date)),
                (one, by_plan(plans[0], one)),
                (many, by_plan(plans[1], many)),
            ]
            found = [simulate(w, market, date, c, jobs=jobs) for w, c in choosers]
            cells = "".join(f"{o.usd:14.2f} {o.kept:8.2%} " for o in found)
            best = min(o.usd for o in found[:3])
            saved = "".join(f"{1.0 - o.usd / best:6.0%}" for o in found[3:])
            print(f"{up:g}/{down:g} h, {date:g} h{label:6}".ljust(26) + cells + saved, flush=True)
            bounds = [hindsight(w, market, date, jobs=jobs) for w in (one, many)]
            line = "".join(f"{usd:14.2f} {'':8} " for usd in bounds)
            most = "".join(f"{1.0 - usd / best:6.0%}" for usd in bounds)
            print("  hindsight".ljust(26) + " " * 72 + line + most, flush=True)
    print(f"{perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
