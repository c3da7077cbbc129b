"""Pacing beside the fixed plan: its cost in mean JCT, and how close a month's spend is to its budget.

    python benchmarks/pacing.py [--seeds 10] [--jobs 2] [--days 56] [--only NAME] [--no-corners]
    python benchmarks/pacing.py --fluid [--days 56] [--seeds 10]

Each line is a scenario at a budget and a boot time: mean JCT of `boa-paced` over that of the fixed plan `boa`
at equal spend (with a 95 % interval over the seeds), and the error of the first calendar month's spend,
median and worst, in per cent. The fixed plan is given the true rates and sizes and is evaluated at the spend
of the paced run, by interpolation between runs at neighbouring planning budgets; `boa-paced` has the beliefs
of the scenario and the defaults of the daemon. `tail` is the spend of the paced run in the last two days of
arrivals over that of the fixed plan: above one means that leftover budget is spent at the end.

With --fluid the same law runs on the exact frontier without boots and whole nodes, where the best constant
multiplier is known to be optimal; weeks take milliseconds there. Its first column is the predicted loss.
There the weekly rhythm is learnt once a day, as the daemon learns it; `seen before` are loads with four weeks
of history before the first hour.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median, stdev

import numpy as np
from scipy.stats import t as student

from boa_daemon.sim.wiring import SimulationSettings, prepare, site_of
from boa_daemon.sim.world_settings import WrongBeliefs
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.money.ledger import Ledger
from boa_daemon.units import SECONDS_PER_HOUR
from policies.errors import InfeasibleBudget
from policies.model import Budget, Money
from policies.online.foretold import PromisePrice
from policies.online.multiplier_table import MultiplierTable
from policies.online.node_prices import with_boots_at_changes
from policies.online.pacing import Pace, pace_step
from policies.online.rhythm import estimate_rhythm, hour_of_week
from policies.optimum.frontier import MixedFrontier
from policies.optimum.hull import lower_hulls, merge
from policies.optimum.knee import knee_of
from policies.optimum.options import whole_width_options
from policies.registry import Site
from policies.speedup import Floats

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from load_scenarios import NODE, PROBLEM, Scenario, a_trace_of

QUARTER = replace(
    PROBLEM,
    classes=tuple(replace(c, arrivals_per_hour=c.arrivals_per_hour / 4.0) for c in PROBLEM.classes),
)
"""Eight jobs and 7 GPU-hours of work an hour: few enough to simulate a month in seconds."""
MONTH_DAYS = 31
"""Simulated time begins with January 1970."""
TAIL_HOURS = 48.0
SEEN_DAYS = 28
BURSTS = tuple((24.0 * day + 13.0, 24) for day in range(2, 60, 3))


def rhythm(*, days: int, by_day: bool = False, by_week: bool = False) -> tuple[tuple[float, float], ...]:
    """Return a load of mean one: by day 1.6 from 8 to 20 h, else 0.4; by week 1.28 on workdays, else 0.3."""
    load: list[tuple[float, float]] = []
    for day in range(days):
        week = (1.28 if day % 7 < 5 else 0.3) if by_week else 1.0
        hours = ((0.0, 0.4), (8.0, 1.6), (20.0, 0.4)) if by_day else ((0.0, 1.0),)
        load += [(24.0 * day + hour, week * factor) for hour, factor in hours]
    return tuple(load)


def drift(*, days: int, begin: float = 0.75, end: float = 1.25) -> tuple[tuple[float, float], ...]:
    """Return a load that changes a little every day."""
    return tuple((24.0 * day, begin + (end - begin) * (day + 0.5) / days) for day in range(days))


def scenarios(days: int) -> tuple[Scenario, ...]:
    """Return the scenarios for this many days; the mean load is the stated one except in bursts."""
    return (
        Scenario(name="steady"),
        Scenario(name="day and night", load=rhythm(days=days, by_day=True)),
        Scenario(name="week", load=rhythm(days=days, by_week=True)),
        Scenario(name="day, night and week", load=rhythm(days=days, by_day=True, by_week=True)),
        Scenario(name="week, seen before", load=rhythm(days=days, by_week=True), days_before=SEEN_DAYS),
        Scenario(
            name="day, night and week, seen before",
            load=rhythm(days=days, by_day=True, by_week=True),
            days_before=SEEN_DAYS,
        ),
        Scenario(
            name="bursts",
            load=((0.0, 1.0 - 1.0 / 24.0),),
            bursts=tuple(b for b in BURSTS if b[0] < 24 * days),
        ),
        Scenario(name="drift", load=drift(days=days)),
        Scenario(name="rates believed twice", rate_belief=2.0),
        Scenario(name="rates believed half", rate_belief=0.5),
        Scenario(name="sizes believed twice", size_belief=2.0),
        Scenario(name="sizes believed half", size_belief=0.5),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Scenarios that share a trace, a budget (a multiple of the load), a boot time and a seed."""

    scenarios: tuple[Scenario, ...]
    budget: str
    boot_seconds: float
    days: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The figures of a pair of runs; `month_error` is None for runs of less than a month."""

    name: str
    budget: str
    boot_seconds: float
    jct_ratio: float
    month_error: float | None
    tail_ratio: float


def budget_of(word: str, settings: SimulationSettings) -> float:
    """Return the dollars per hour of `knee`, or of a multiple of the arriving work."""
    if word == "knee":
        frontier = MixedFrontier.of(site_of(settings).problem)
        budgets = np.linspace(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, 400)
        return knee_of(budgets, frontier.mean_jct_at(budgets)).budget
    load = sum(c.arrivals_per_hour * c.size_gpu_hours for c in settings.problem.classes)
    return float(word) * load


def run_of(settings: SimulationSettings) -> tuple[float, float, Floats, Floats]:
    """Return mean JCT in hours, dollars per hour, and hours and dollars committed at each tick."""
    hours, dollars = list[float](), list[float]()

    def look(decision: Decision) -> None:
        hours.append(decision.state.now / SECONDS_PER_HOUR)
        dollars.append(Ledger.of(decision.state).committed_usd)

    result = prepare(settings).finish(look)
    return result.mean_jct_hours, result.mean_usd_per_hour, np.array(hours), np.array(dollars)


class FixedPlan:
    """Runs of the fixed plan on one trace, made on demand."""

    def __init__(self, settings: SimulationSettings, tail: tuple[float, float]) -> None:
        self._settings, self._tail = settings, tail
        self._runs: dict[float, tuple[float, float]] = {}

    def at(self, spend: float) -> tuple[float, float]:
        """Return (log of mean JCT, dollars in the tail) at a spend, interpolated between two runs."""
        planned, factor = spend, 1.0
        for _ in range(6):
            below = [found for found in self._runs if found <= spend]
            above = [found for found in self._runs if found >= spend]
            if below and above and min(above) <= 1.06 * max(below):
                break
            try:
                found = self._run(planned)
            except InfeasibleBudget as error:
                planned = max(planned, error.least_spend) * 1.01
                continue
            factor *= spend / found
            planned *= spend / found * (1.015 if found < spend else 0.985)
        spends = sorted(self._runs)
        values = [self._runs[found] for found in spends]
        return (
            float(np.interp(spend, spends, [value[0] for value in values])),
            float(np.interp(spend, spends, [value[1] for value in values])),
        )

    def _run(self, planned: float) -> float:
        """Run a plan; return its spend per hour."""
        jct, spend, hours, dollars = run_of(replace(self._settings, planning_budget=Budget(amount=planned)))
        begin, end = np.interp(self._tail, hours, dollars)
        self._runs[spend] = (math.log(jct), float(end - begin))
        return spend


def pairs_of(case: Case) -> list[Found]:
    """Run the scenarios of a case, and the fixed plan at the spend of each of them."""
    hours = 24.0 * case.days
    trace = a_trace_of(case.scenarios[0], QUARTER.classes, hours=hours, seed=case.seed)
    settings = SimulationSettings(
        trace=trace,
        problem=QUARTER,
        instance_types={"gpu": NODE},
        budget=Budget(amount=1.0),
        seed=case.seed,
        boot_seconds=case.boot_seconds,
    )
    budget = budget_of(case.budget, settings)
    settings = replace(settings, budget=Budget(amount=budget))
    tail = (hours - TAIL_HOURS, hours)
    fixed = FixedPlan(settings, tail)
    found = []
    for scenario in case.scenarios:
        beliefs = WrongBeliefs(rates={"": scenario.rate_belief}, sizes={"": scenario.size_belief})
        world = replace(settings.world, beliefs=beliefs)
        jct, spend, at, dollars = run_of(replace(settings, policy="boa-paced", world=world))
        log_jct, fixed_tail = fixed.at(spend)
        month = 24.0 * MONTH_DAYS
        spent, begin, end = np.interp([month, *tail], at, dollars)
        found.append(
            Found(
                name=scenario.name,
                budget=case.budget,
                boot_seconds=case.boot_seconds,
                jct_ratio=jct / math.exp(log_jct),
                month_error=float(spent) / (budget * month) - 1.0 if hours >= month else None,
                tail_ratio=float(end - begin) / fixed_tail,
            )
        )
    return found


def cases(days: int, seeds: Sequence[int], only: str, *, corners: bool) -> Iterator[Case]:
    """Yield the cases: all scenarios at 1.5 times the load; two of them with other budgets and boot times."""
    others = [("knee", 180.0), ("2", 180.0), ("1.5", 0.0), ("1.5", 420.0)]
    for number, (budget, boot) in enumerate([("1.5", 180.0), *(others if corners else [])]):
        by_trace: dict[object, list[Scenario]] = {}
        for scenario in scenarios(days)[: None if number == 0 else 2]:
            if only in scenario.name and not scenario.days_before:
                by_trace.setdefault((scenario.load, scenario.bursts), []).append(scenario)
        for alike in by_trace.values():
            for seed in seeds:
                yield Case(scenarios=tuple(alike), budget=budget, boot_seconds=boot, days=days, seed=seed)


def interval(values: Sequence[float]) -> str:
    """Return the mean and, for several values, a 95 % interval."""
    if len(values) < 2:
        return f"{values[0]:.3f}              "
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return f"{fmean(values):.3f} +- {half:.3f}     "


def table(founds: Sequence[Found]) -> None:
    """Print a line for each scenario, budget and boot time."""
    print(f"{'scenario':24s} {'budget':>7s} {'boot':>5s}   JCT over fixed     month off by, %   tail")
    print(f"{'':24s} {'x load':>7s} {'s':>5s}   plan, same money   median   worst    mean")
    lines: dict[tuple[str, float, str], list[Found]] = {}
    for found in founds:
        lines.setdefault((found.budget, found.boot_seconds, found.name), []).append(found)
    for (budget, boot, name), group in lines.items():
        errors = [100.0 * found.month_error for found in group if found.month_error is not None]
        said = (
            f"{median(map(abs, errors)):6.1f}  {max(errors, key=abs):+6.1f}" if errors else "       -       -"
        )
        ratios = interval([found.jct_ratio for found in group])
        tail = fmean(found.tail_ratio for found in group)
        print(f"{name:24s} {budget:>7s} {boot:5.0f}   {ratios} {said}   {tail:.2f}", flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fluid:
    """The exact frontier without boots and whole nodes: cost and JCT of a unit of load at each level."""

    multipliers: MultiplierTable
    cost: Floats  # (classes, levels)
    hours: Floats
    frontier: MixedFrontier

    @classmethod
    def of(cls, site: Site) -> Fluid:
        """Make the curves of a site."""
        problem = with_boots_at_changes(site.problem, site.boot_hours)
        multipliers, options = MultiplierTable.of(problem), whole_width_options(problem)
        hulls = lower_hulls(
            options.spend,
            options.weights[options.group] * options.hours,
            options.group,
            groups=len(options.owner),
        )
        widest = np.zeros(len(problem.classes))
        np.add.at(widest, options.owner, hulls.time[hulls.starts[:-1]])
        each = np.eye(len(problem.classes))
        slopes, saved = merge(hulls).slope, np.zeros((len(widest), len(multipliers.multipliers)))
        for edge, owner in enumerate(multipliers.edge_class.tolist()):
            saved[owner, edge + 1] = multipliers.edge_cost[edge] * slopes[edge]
        return cls(
            multipliers=multipliers,
            cost=np.array([multipliers.costs(one) for one in each]),
            hours=widest[:, None] - np.cumsum(saved, axis=1),
            frontier=MixedFrontier.of(problem),
        )

    def run(self, scenario: Scenario, *, budget: float, hours: int, seed: int) -> tuple[float, float, float]:
        """Return JCT over that of the best constant multiplier, the month's error, and the predicted loss."""
        table = self.multipliers
        table = replace(table, rates=table.rates * scenario.rate_belief)
        pace = Pace(
            budget=budget,
            grain_hours=table.grain_hours(budget),
            price=PromisePrice(table=table, frontier=self.frontier),
        )
        rng = np.random.default_rng(seed)
        begins = np.array([begin for begin, _ in scenario.load])
        factors = np.array([factor for _, factor in scenario.load])
        load = factors[np.searchsorted(begins, np.arange(hours), side="right") - 1]
        burst = np.zeros(hours)
        for hour, count in scenario.bursts:
            burst[int(hour)] += count / len(self.cost)
        jobs = rng.poisson(self.multipliers.rates[:, None] * load) + burst
        work = np.where(jobs > 0, rng.gamma(np.maximum(jobs, 1e-9)), 0.0)
        spent, waited, month_error, memory = 0.0, 0.0, math.nan, tuple[float, ...]()
        month = 24 * MONTH_DAYS
        history = rng.poisson(self.multipliers.rates[:, None] * np.resize(load, 24 * scenario.days_before))
        came = np.concatenate([history, jobs], axis=1).T @ self.cost[:, 0]
        for hour in range(hours):
            if hour % 24 == 0:  # Like the daemon, learn once a day from the past load.
                until = history.shape[1] + hour
                pace = replace(pace, rhythm=estimate_rhythm(came[:until], first_hour=-history.shape[1]))
            if hour == month:
                month_error = spent / (budget * month) - 1.0
            money = Money(
                spent=spent,
                elapsed_hours=float(hour),
                period_elapsed_hours=float(hour % month),
                period_left_hours=float(month - hour % month),
                memory=memory,
                memory_age_hours=1.0 if memory else 0.0,
                hour_of_week=hour_of_week(hour * SECONDS_PER_HOUR),
            )
            step = pace_step(pace, table, np.zeros(len(self.cost)), money)
            edge, share = step.position.edge, step.position.share
            after = min(edge + 1, self.cost.shape[1] - 1)
            mix = np.array([1.0 - share, share])
            spent += float(work[:, hour] @ self.cost[:, [edge, after]] @ mix)
            waited += float(work[:, hour] @ self.hours[:, [edge, after]] @ mix)
            memory = step.memory
        if hours == month:
            month_error = spent / (budget * month) - 1.0
        done = work.sum(axis=1)
        best = float(np.interp(spent, done @ self.cost, done @ self.hours))
        return waited / best, month_error, math.nan if (loss := pace.loss()) is None else loss


def fluid(days: int, seeds: Sequence[int], only: str) -> None:
    """Print the results of the law on the exact frontier."""
    print(f"{'scenario':32s} {'budget':>7s}   foretold   JCT over best      month off by, %")
    print(f"{'':32s} {'x load':>7s}   loss, %    constant           median   worst")
    settings = SimulationSettings(
        trace=a_trace_of(Scenario(name=""), QUARTER.classes, hours=24.0, seed=0),
        problem=QUARTER,
        instance_types={"gpu": NODE},
        budget=Budget(amount=1.0),
    )
    curves = Fluid.of(site_of(settings))
    for word in ("knee", "1.5", "2"):
        budget = budget_of(word, settings)
        for scenario in scenarios(days):
            if only not in scenario.name or scenario.size_belief != 1.0:
                continue
            found = [curves.run(scenario, budget=budget, hours=24 * days, seed=seed) for seed in seeds]
            errors = [100.0 * error for _, error, _ in found if not math.isnan(error)]
            months = (
                f"{median(map(abs, errors)):6.1f}  {max(errors, key=abs):+6.1f}"
                if errors
                else "     -       -"
            )
            print(
                f"{scenario.name:32s} {word:>7s}   {100.0 * found[0][2]:6.2f}     "
                f"{interval([one[0] for one in found])}{months}",
                flush=True,
            )


def draw(path: Path) -> None:
    """Draw belief and money ahead over five weeks of a daily and weekly load that is stated as half."""
    import matplotlib as mpl  # noqa: PLC0415 - only --plot needs it

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - only --plot needs it

    days, belief = MONTH_DAYS + 7, 0.5
    scenario = Scenario(name="", load=rhythm(days=days, by_day=True, by_week=True), rate_belief=belief)
    settings = SimulationSettings(
        trace=a_trace_of(scenario, QUARTER.classes, hours=24.0 * days, seed=1),
        problem=QUARTER,
        instance_types={"gpu": NODE},
        budget=Budget(amount=1.5 * 7.0),
        policy="boa-paced",
        seed=1,
    )
    settings = replace(settings, world=replace(settings.world, beliefs=WrongBeliefs(rates={"": belief})))
    run = prepare(settings)
    rows: list[tuple[float, float, float]] = []

    def look(decision: Decision) -> None:
        memory = decision.plan.memory
        if memory is not None:
            hours = decision.state.now / SECONDS_PER_HOUR
            rows.append((hours, Ledger.of(decision.state).committed_usd, memory[-1] * belief))

    run.finish(look)
    hours, spent, load = np.array(rows).T
    month, budget = 24.0 * MONTH_DAYS, settings.budget.amount
    figure, axes = plt.subplots(2, 1, figsize=(8.0, 5.5), sharex=True, layout="constrained")
    axes[0].plot(hours / 24.0, load, color="#1769aa", lw=1.2)
    axes[0].axhline(1.0, color="#1f2933", lw=1.0, ls="--")
    axes[0].set_ylabel("load believed\nover true mean load")
    axes[0].set_title("Rates stated half of the truth, days and nights, weekends", loc="left", fontsize=10)
    ahead = 100.0 * (spent - budget * hours) / (budget * month)
    axes[1].plot(hours / 24.0, ahead, color="#d9480f", lw=1.2, label="spent less accrued")
    axes[1].axhspan(-2.0, 2.0, color="#2f9e44", alpha=0.15, label="2 % of a month's money")
    for axis in axes:
        axis.axvline(MONTH_DAYS, color="#1f2933", lw=0.8)
    axes[1].set_ylabel("% of a month's money")
    axes[1].set_xlabel("days (the line ends the calendar month)")
    axes[1].legend(frameon=False, loc="upper right")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print the tables, or draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument(
        "--days", type=int, default=MONTH_DAYS, help="days of arrivals: 14 to 56; 31 by default"
    )
    parser.add_argument("--no-corners", action="store_true", help="1.5 times the load and 180 s only")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--fluid", action="store_true", help="the law on the exact frontier")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    seeds = range(1, arguments.seeds + 1)
    if arguments.plot is not None:
        draw(arguments.plot)
    elif arguments.fluid:
        fluid(arguments.days, seeds, arguments.only)
    else:
        todo = list(cases(arguments.days, seeds, arguments.only, corners=not arguments.no_corners))
        founds: list[Found] = []
        with ProcessPoolExecutor(arguments.jobs) as pool:
            for done, group in enumerate(pool.map(pairs_of, todo), 1):
                print(f"{done} of {len(todo)}: {group}", file=sys.stderr, flush=True)
                founds += group
        table(founds)


if __name__ == "__main__":
    main()
