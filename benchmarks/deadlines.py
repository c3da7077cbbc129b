"""Deadlines kept and their cost: the dynamic programme beside Uniform Progress, greedy and on demand.

    python benchmarks/deadlines.py [--jobs 10000] [--tick-jobs 1000]

Jobs have 48 hours of work on one GPU. Spot costs 0.3 of the price, each start loses six minutes, machines on
demand fail once in 1,000 hours, and widths 2 and 4 are 95 and 85 % efficient. Spot comes and goes as a Markov
chain. The rivals use one GPU, as published: Uniform Progress (Can't Be Late, NSDI 2024) rents on demand when
it is behind the straight line to the deadline, until it is ahead again; greedy rents on demand only when
nothing else is left. All three keep a reserve of two starts. Below each line is the cost of hindsight, which
knows when spot will be there (a bound that no policy beats), and the largest possible saving over the best
rival. `x 2` and `/ 2` are markets whose rates are twice and half of those that the programme believes. Costs
are dollars per job at one dollar per GPU-hour on demand.

The second part asks the daemon's `decide()`, with all stages, at every step, under a policy that gives one
GPU. Its jobs are shorter, because a tick takes a millisecond. There spot goes twice as often and stays away
twice as long under `x 2`, and the other way round under `/ 2`. An interruption loses the step, as after a
warning in which a checkpoint was written; a start takes as long as the tick believes. `it states` is what the
tick says before it begins, averaged over spot being there or not. Last are the saving over the best rival,
and the largest possible saving.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.facts.offers import Cooldown, Offer
from boa_daemon.tick.facts.state import DateNote, Due, JobTerms
from policies.answer import Allocation
from policies.model import Job, Money, Width
from policies.online.date_programme import date_plan
from policies.online.deadlines import FAILURE_HOURS, NO_WIDTH, DateOption, DatePlan, SpotMarket
from policies.placement.first_fit import FirstFit

WORK_HOURS, BOOT_HOURS, STEP_HOURS, SPOT = 48.0, 0.1, 0.1, 0.3
EFFICIENCY = {1: 1.0, 2: 0.95, 4: 0.85}
CASES = ((4.0, 2.0, 52.0), (4.0, 2.0, 70.0), (2.0, 4.0, 52.0), (8.0, 1.0, 60.0))
"""Mean hours with spot, mean hours without spot, hours to the deadline."""
TICK_CASES = ((6.0, 7.0), (6.0, 10.0), (16.0, 6.0))
"""Hours of work on one GPU, hours to the deadline, for jobs that the tick decides."""
Numbers = NDArray[np.float64]
Choices = NDArray[np.intp]
Chooser = Callable[[int, Numbers, Choices, NDArray[np.bool_]], Choices]
"""(steps left, work left, configuration held, whether spot is there) -> configuration to hold."""


def rungs(*gpus: int) -> list[DateOption]:
    """Return widths of one GPU type; speeds are in GPUs of full efficiency."""
    return [
        DateOption(
            width=Width("gpu", n),
            speed=n * EFFICIENCY[n],
            usd_per_hour=float(n),
            spot_usd_per_hour=SPOT * n,
        )
        for n in gpus
    ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Mean dollars of a job, and the share of jobs that met their deadline."""

    usd: float
    kept: float


def simulate(
    widths: list[DateOption],
    market: SpotMarket,
    date: float,
    choose: Chooser,
    *,
    jobs: int,
    seed: int = 1,
    work_hours: float = WORK_HOURS,
    step_hours: float = STEP_HOURS,
) -> Outcome:
    """Run jobs step by step to their end or deadline; all start with spot there or not, at random."""
    rng = np.random.default_rng(seed)
    up_share = market.up_hours / (market.up_hours + market.down_hours)
    up = rng.random(jobs) < up_share
    left = np.full(jobs, work_hours)
    held, boots = np.zeros(jobs, dtype=np.intp), np.zeros(jobs, dtype=np.intp)
    usd = np.zeros(jobs)
    speed = np.array([0.0, *(r.speed for r in widths), *(r.speed for r in widths)]) * step_hours
    prices = [rung.usd_per_hour for rung in widths]
    price = np.array([0.0, *prices, *(SPOT * usd for usd in prices)]) * step_hours
    first_spot = 1 + len(widths)
    stays, returns = np.exp(-step_hours / market.up_hours), 1.0 - np.exp(-step_hours / market.down_hours)
    fails, boot = 1.0 - np.exp(-step_hours / FAILURE_HOURS), round(BOOT_HOURS / step_hours)
    for steps_left in range(round(date / step_hours), 0, -1):
        wanted = np.where(boots > 0, held, choose(steps_left, left, held, up))
        wanted[(wanted >= first_spot) & ~up] = NO_WIDTH
        boots = np.where(wanted != held, boot, boots)
        held = np.where(left > 0.0, wanted, NO_WIDTH)
        works = boots == 0
        done = np.where(works, speed[held], 0.0)
        usd += price[held] * np.where(works & (done > left), left / np.where(done > 0.0, done, 1.0), 1.0)
        next_up = np.where(up, rng.random(jobs) < stays, rng.random(jobs) < returns)
        is_lost = np.where(held >= first_spot, ~next_up, rng.random(jobs) < fails) & (held != NO_WIDTH)
        left = np.where(is_lost & (left > done), left, np.maximum(left - done, 0.0))
        boots = np.maximum(boots - 1, 0)
        held, boots, up = np.where(is_lost, NO_WIDTH, held), np.where(is_lost, 0, boots), next_up
    return Outcome(usd=float(usd.mean()), kept=float(np.mean(left <= 1e-9)))


def by_plan(plan: DatePlan, widths: list[DateOption], *, step_hours: float = STEP_HOURS) -> Chooser:
    """Return the programme's choice, looked up for all jobs at once."""
    fastest = max(rung.speed for rung in widths)

    def choose(steps_left: int, left: Numbers, held: Choices, up: NDArray[np.bool_]) -> Choices:
        time, _ = plan.cells(steps_left * step_hours, 0.0)
        cells = np.ceil(left / fastest / plan.step_hours - 1e-9).astype(int)
        found = plan.best[time, held, up.astype(int), np.clip(cells, 0, plan.best.shape[3] - 1)]
        return found.astype(np.intp)

    return choose


class OneGpu:
    """A policy that gives every job one GPU."""

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return one GPU for each job."""
        return Allocation(widths={job.id: Width("gpu", 1) for job in jobs})


class Tick:
    """The daemon's choice: `decide()` on a state of one job with a deadline and single GPUs to rent."""

    def __init__(self, widths: list[DateOption], *, step_hours: float = STEP_HOURS) -> None:
        self.widths, self.step_hours, self.now = widths, step_hours, 10_000_000.0
        machine = an_instance_type(gpus=1)
        self.spot = Offer(instance_type=machine.name, zone="a", market="spot", usd_per_hour=SPOT)
        demand = Offer(instance_type=machine.name, zone="a", market="on-demand", usd_per_hour=1.0)
        self.offers = (self.spot, demand)
        self.rules = rules(instance_types={"gpu": machine}, caps=Caps(tick_seconds=3600.0 * step_hours))
        self.known: dict[tuple[int, float, int, bool], tuple[int, DateNote | None]] = {}

    def __call__(self, steps_left: int, left: Numbers, held: Choices, up: NDArray[np.bool_]) -> Choices:
        """Return the configurations; each state is decided once."""
        found = np.zeros(len(left), dtype=np.intp)
        for number in np.flatnonzero(left > 1e-9):
            found[number] = self.decided(
                steps_left, float(left[number]), int(held[number]), bool(up[number])
            )[0]
        return found

    def decided(self, steps_left: int, left: float, held: int, is_up: bool) -> tuple[int, DateNote | None]:
        """Return the configuration that a tick chooses, and its statement about the deadline."""
        key = (steps_left, round(left, 6), held, is_up)
        if key not in self.known:
            self.known[key] = self._decided(self.step_hours * steps_left, left, held, is_up=is_up)
        return self.known[key]

    def _decided(
        self, hours_left: float, left: float, held: int, *, is_up: bool
    ) -> tuple[int, DateNote | None]:
        """Run the tick."""
        gpus = [rung.width.gpus for rung in self.widths]
        holds = 0 if held == NO_WIDTH else gpus[(held - 1) % len(gpus)]
        market = "spot" if held > len(gpus) else "on-demand"
        hours = tuple((rung.width, left / rung.speed) for rung in self.widths)
        nodes = [replace(a_node(f"n{number}", gpus=1), market=market) for number in range(holds)]
        slots = tuple(slot for number in range(holds) for slot in some_slots(f"n{number}", 0))
        state = a_state(a_job("a"), nodes=nodes, held={"a": slots} if slots else {}, now=self.now)
        terms = JobTerms(due=Due(at=self.now + 3600.0 * hours_left, hours=hours))
        state = replace(
            state,
            jobs={"a": replace(state.jobs["a"], terms=terms)},
            offers=self.offers,
            cooldowns={} if is_up else {self.spot.key: Cooldown(until=self.now + 600.0)},
        )
        found = decide(state, allocator=OneGpu(), placer=FirstFit(), rules=self.rules)
        wanted, note = found.plan.jobs.widths.get("a"), found.plan.jobs.dates.get("a")
        if wanted is None:
            return NO_WIDTH, note
        orders = [one.offer for one in found.actions if isinstance(one, LaunchNodes)]
        if wanted.gpus == holds and not orders:
            return held, note
        is_spot = (
            all(one is not None and one.market == "spot" for one in orders) if orders else market == "spot"
        )
        return 1 + gpus.index(wanted.gpus) + (len(gpus) if is_spot else 0), note


def uniform_progress(date: float, work_hours: float = WORK_HOURS) -> Chooser:
    """Return Uniform Progress at one GPU."""
    return _rival(date, work_hours, keeps_pace=True)


def greedy(date: float, work_hours: float = WORK_HOURS) -> Chooser:
    """Return the choice of spot while there is time, and of on demand after that."""
    return _rival(date, work_hours, keeps_pace=False)


def _rival(date: float, work_hours: float, *, keeps_pace: bool) -> Chooser:
    """Return a rival; configuration 1 is on demand, 2 is spot."""

    def choose(steps_left: int, left: Numbers, held: Choices, up: NDArray[np.bool_]) -> Choices:
        hours = steps_left * STEP_HOURS
        is_last = hours - left <= 2.0 * BOOT_HOURS + STEP_HOURS + 1e-9
        otherwise = np.where(up, 2, NO_WIDTH)
        if keeps_pace:
            ahead = (work_hours - left) - (date - hours) * work_hours / date
            on_demand = (ahead < 0.0) | ((held == 1) & (ahead < 2.0 * BOOT_HOURS))
            otherwise = np.where(up & (held != 1), 2, np.where(on_demand, 1, otherwise))
        return np.where(is_last & (held != 2), 1, otherwise)

    return choose


def hindsight(
    widths: list[DateOption],
    market: SpotMarket,
    date: float,
    *,
    jobs: int,
    seed: int = 1,
    work_hours: float = WORK_HOURS,
) -> float:
    """Return a lower bound on the mean dollars of any policy on the draws of `simulate`.

    Spot works in a step only if it is there before the step, in which it starts, and after the step, or the
    step's work is lost; one more step may end the job. Starts, and failures of machines on demand, are free
    here. The hours of spot are filled first at the narrowest width, then widened, and the rest is done on
    demand.
    """
    rng = np.random.default_rng(seed)
    up = rng.random(jobs) < market.up_hours / (market.up_hours + market.down_hours)
    before, steps, useful = np.zeros(jobs, dtype=bool), round(date / STEP_HOURS), np.ones(jobs)
    stays, returns = np.exp(-STEP_HOURS / market.up_hours), 1.0 - np.exp(-STEP_HOURS / market.down_hours)
    for _ in range(steps):
        next_up = np.where(up, rng.random(jobs) < stays, rng.random(jobs) < returns)
        rng.random(jobs)  # `simulate` makes the same draw, for failures.
        useful += before & up & next_up
        before, up = up, next_up
    spot = useful * STEP_HOURS
    left, usd = np.full(jobs, work_hours), np.zeros(jobs)
    for hours, part in ((spot, SPOT), (date - spot, 1.0)):
        speed = price = 0.0
        for rung in widths:
            # Work costs more at each wider step, and less on spot than on demand.
            more = np.minimum(left, np.maximum(hours, 0.0) * (rung.speed - speed))
            usd += more * part * (rung.usd_per_hour - price) / (rung.speed - speed)
            left -= more
            speed, price = rung.speed, rung.usd_per_hour
    return float(usd.mean())


def on_demand(_steps: int, _left: Numbers, held: Choices, _up: NDArray[np.bool_]) -> Choices:
    """Return one GPU on demand from the start."""
    return np.ones_like(held)


def main() -> None:
    """Print a line for each market, deadline and belief."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--tick-jobs", type=int, default=1000)
    asked = parser.parse_args()
    jobs = asked.jobs
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
    through_the_tick(asked.tick_jobs)
    print(f"{perf_counter() - began:.1f} s")


def stated(tick: Tick, work: float, date: float) -> tuple[float, float]:
    """Return the dollars and the probability that the tick states, averaged over spot being there or not."""
    believed = SpotMarket()
    share = believed.up_hours / (believed.up_hours + believed.down_hours)
    usd = kept = 0.0
    for is_up, part in ((True, share), (False, 1.0 - share)):
        _, note = tick.decided(round(date / tick.step_hours), work, NO_WIDTH, is_up=is_up)
        assert note is not None
        usd, kept = usd + part * note.usd, kept + part * note.kept
    return usd, kept


def through_the_tick(jobs: int) -> None:
    """Print cost and deadlines kept of the daemon's tick; the rivals cannot do 16 hours of work in 6."""
    believed, one, many = SpotMarket(), rungs(1), rungs(1, 2, 4)
    names = ("on demand", "greedy", "uniform progress", "programme, 1 2 4", "through the tick", "it states")
    print(f"\n{'through the tick':26}" + "".join(f"{name:>24}" for name in names) + "   saved, at most")
    for work, date in TICK_CASES:
        plan = date_plan(
            many, horizon_hours=date, boot_hours=BOOT_HOURS, market=believed, steps=round(date / STEP_HOURS)
        )
        tick = Tick(many)
        usd, kept = stated(tick, work, date)
        for label, factor in (("", 1.0), (" x 2", 0.5), (" / 2", 2.0)):
            market = SpotMarket(up_hours=believed.up_hours * factor, down_hours=believed.down_hours / factor)
            choosers = [
                (one, on_demand),
                (one, greedy(date, work)),
                (one, uniform_progress(date, work)),
                (many, by_plan(plan, many)),
                (many, tick),
            ]
            found = [simulate(w, market, date, c, jobs=jobs, work_hours=work) for w, c in choosers]
            cells = "".join(f"{o.usd:14.2f} {o.kept:8.2%} " for o in (*found, Outcome(usd=usd, kept=kept)))
            saved = ""
            if work < date:
                best = min(o.usd for o in found[:3])
                least = hindsight(many, market, date, jobs=jobs, work_hours=work)
                saved = f"{1.0 - found[-1].usd / best:6.0%}{1.0 - least / best:6.0%}"
            print(f"{work:g} h in {date:g} h{label:6}".ljust(26) + cells + saved, flush=True)


if __name__ == "__main__":
    main()
