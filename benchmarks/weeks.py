"""Real weeks: the default policy beside its own fixed plan for the same money, told the truth and learning.

    boa trace import elasticflow/cluster10.csv --from itp --profiles elasticflow --to-hours 840 --out DIR
    python benchmarks/weeks.py DIR [DIR ...] [--factors 1.5 2] [--learn] [--set tolerance=0.05]
    python benchmarks/weeks.py --generated [--seeds 10]

Each line is a trace at a budget, a multiple of the least that runs its jobs. `boa-paced` and `boa` run on the
same command line first: `dearer` is the spend of the former over that of the latter per hour of arrivals.
Then the fixed plan is tuned, through the budget that it plans for, to the money that `boa-paced` spent
(within 0.5 %, or interpolated between two runs on both sides of it): `JCT` and `p95` are those of `boa-paced`
over the tuned plan's. `periods` is the reference where the load grows: each calendar month planned by its own
rates for its own money, so that months stay even, tuned to the same money in all; it is made with --periods
for traces of more than a month. `months` is the spend of each whole calendar month over its money.
`foretold` is the loss that was shown before.

With --generated the loads are those of `tests/load_scenarios.py` with jobs of three grains, from as large as
there to sixteen times as large, so that a month brings few of them; steady, with days and weeks, with bursts,
and with growth.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import PreparedRun, SimulationSettings, prepare, settings_for, site_of
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.limits import month_of
from boa_daemon.tick.money.ledger import Ledger
from boa_daemon.traces.reader import Trace, TraceJob, read_trace
from boa_daemon.units import SECONDS_PER_HOUR
from policies.answer import Allocation
from policies.errors import InfeasibleBudget
from policies.model import Budget, Job, Money
from policies.online.node_prices import with_boots_at_changes
from policies.optimum.frontier import MixedFrontier
from policies.protocols import Allocator
from policies.registry import find_policy, parse_options
from policies.speedup import Floats

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from load_scenarios import NODE, PROBLEM, Scenario, a_trace_of

EQUAL = 0.005
TRIES = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run: its figures, and the dollars committed at each tick."""

    result: Simulation
    hours: Floats
    dollars: Floats

    @property
    def months(self) -> list[float]:
        """The spend of each whole calendar month of arrivals over its money."""
        found, begin = [], 0.0
        budget = self.result.budget_usd_per_hour
        while True:
            month = month_of(begin * SECONDS_PER_HOUR)
            end = month.ends_at / SECONDS_PER_HOUR
            if end > self.result.arrival_window_hours:
                return found
            paid = np.interp([begin, end], self.hours, self.dollars)
            found.append(float(paid[1] - paid[0]) / (budget * (end - begin)))
            begin = end


def run_of(settings: SimulationSettings) -> Run:
    """Run one simulation, and keep its spending."""
    return finished(prepare(settings))


def finished(run: PreparedRun) -> Run:
    """Finish a run, and keep its spending."""
    hours, dollars = list[float](), list[float]()

    def look(decision: Decision) -> None:
        hours.append(decision.state.now / SECONDS_PER_HOUR)
        dollars.append(Ledger.of(decision.state).committed_usd)

    return Run(result=run.finish(look), hours=np.array(hours), dollars=np.array(dollars))


@dataclass(frozen=True, slots=True, kw_only=True)
class ByPeriod:
    """One fixed plan for each calendar month."""

    plans: Sequence[Allocator]

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the answer of the plan of this month."""
        return self.plans[min(number_of(now), len(self.plans) - 1)].allocate(jobs, now=now, money=money)


def number_of(now: float) -> int:
    """Return the number of months before an instant of simulated time."""
    number, at = 0, month_of(0.0).ends_at
    while at <= now:
        number, at = number + 1, month_of(at).ends_at
    return number


def months_of(trace: Trace) -> list[Trace]:
    """Return the jobs of each calendar month."""
    found: dict[int, list[TraceJob]] = {}
    for job in trace.jobs:
        found.setdefault(number_of(job.arrived_at_seconds), []).append(job)
    return [Trace(tuple(found[number])) for number in sorted(found)]


def run_by_period(settings: SimulationSettings) -> Run:
    """Run the fixed plan of each month by its own rates and sizes, at the planning budget in each of them."""
    budget = settings.planning_budget or settings.budget
    plans, begin = [], 0.0
    for part in months_of(settings.trace):
        end = month_of(part.jobs[0].arrived_at_seconds).ends_at / SECONDS_PER_HOUR
        hours = min(end, settings.trace.jobs[-1].arrived_at_seconds / SECONDS_PER_HOUR) - begin
        counts: dict[str, list[float]] = {}
        for job in part.jobs:
            counts.setdefault(job.class_name, []).append(job.scale)
        classes = tuple(
            replace(
                c,
                arrivals_per_hour=max(sum(counts.get(c.name, ())), 1e-3) / hours,
            )
            for c in settings.problem.classes
        )
        one = replace(
            settings, problem=replace(settings.problem, classes=classes), sized_by_trace=frozenset()
        )
        site = site_of(one)
        least = least_of(one)
        amount = max(budget.amount, 1.0001 * least)
        plans.append(
            find_policy("boa").build(replace(site, budget=Budget(amount=amount)), settings.options).allocator
        )
        begin = end
    run = prepare(settings)
    return finished(replace(run, controller=replace(run.controller, allocator=ByPeriod(plans=plans))))


def least_of(settings: SimulationSettings) -> float:
    """Return the least dollars per hour that run every job."""
    site = site_of(settings)
    return MixedFrontier.of(with_boots_at_changes(site.problem, site.boot_hours)).cheapest_feasible_spend


def at_spend(
    settings: SimulationSettings, spend: float, first: Run | None = None, *, by_period: bool = False
) -> tuple[float, float]:
    """Return mean JCT and p95 of the fixed plan at a spend per hour of arrivals, in hours."""
    found: dict[float, Run] = {}
    plans: dict[float, float] = {}
    make = run_by_period if by_period else run_of
    planned = settings.budget.amount
    for number in range(TRIES):
        try:
            one = (
                first
                if number == 0 and first is not None
                else make(replace(settings, planning_budget=Budget(amount=planned)))
            )
        except InfeasibleBudget as error:
            planned = max(planned, error.least_spend) * 1.0005
            continue
        paid = one.result.mean_usd_per_hour
        found[paid], plans[paid] = one, planned
        if abs(paid / spend - 1.0) <= EQUAL:
            break
        below = max((p for p in found if p < spend), default=None)
        above = min((p for p in found if p > spend), default=None)
        if below is not None and above is not None:
            if above / below < 1.0 + 2 * EQUAL:
                break
            part = math.log(spend / below) / math.log(above / below)
            part = min(max(part, 0.15), 0.85)
            planned = math.exp((1 - part) * math.log(plans[below]) + part * math.log(plans[above]))
        else:
            planned *= (spend / paid) * (1.02 if paid < spend else 0.98)
    spends = sorted(found)
    results = [found[p].result for p in spends]
    logs = [
        np.interp(math.log(spend), np.log(spends), np.log([getattr(r, name) for r in results]))
        for name in ("mean_jct_hours", "p95_jct_hours")
    ]
    return math.exp(float(logs[0])), math.exp(float(logs[1]))


def compare(
    name: str, settings: SimulationSettings, factor: float, *, learns: bool, periods: bool
) -> dict[str, Any]:
    """Compare the default with its plan on one trace; print the line."""
    amount = factor * least_of(settings)
    settings = replace(settings, budget=Budget(amount=amount))
    fixed = replace(settings, policy="boa", options=type(settings.options)())
    plan = run_of(fixed)
    began = time.process_time()
    paced = run_of(replace(settings, policy="boa-paced", learns=learns))
    seconds = time.process_time() - began
    spend = paced.result.mean_usd_per_hour
    jct, p95 = at_spend(fixed, spend, plan)
    even = math.nan
    if periods and plan.months:
        even = paced.result.mean_jct_hours / at_spend(fixed, spend, by_period=True)[0]
    loss = paced.result.pacing_loss_fraction
    row = {
        "name": name,
        "factor": factor,
        "learns": learns,
        "jobs": paced.result.jobs,
        "jct": paced.result.mean_jct_hours / jct,
        "p95": paced.result.p95_jct_hours / p95,
        "even": even,
        "over": spend / amount,
        "dearer": spend / plan.result.mean_usd_per_hour,
        "months": paced.months,
        "plan_months": plan.months,
        "foretold": math.nan if loss is None else loss,
        "seconds": seconds,
    }
    print(line(row), flush=True)
    return row


HEAD = (
    f"{'trace':34s} {'x':>4s} {'':7s} {'jobs':>5s}  "
    f"{'JCT':>5s} {'p95':>5s} {'periods':>7s}  {'spend':>5s} {'dearer':>6s}"
    f"  {'foretold':>8s} {'CPU s':>6s}  months (plan's)"
)


def line(row: dict[str, Any]) -> str:
    """Return a line of the table."""
    months = " ".join(f"{m:.2f}" for m in row["months"])
    plan = " ".join(f"{m:.2f}" for m in row["plan_months"])
    return (
        f"{row['name']:34s} {row['factor']:4.1f} "
        f"{'learns' if row['learns'] else 'told':7s} {row['jobs']:5d}  "
        f"{row['jct']:5.3f} {row['p95']:5.2f} {row['even']:7.3f}  {row['over']:5.3f} {row['dearer']:6.3f}"
        f"  {row['foretold']:8.4f} {row['seconds']:6.1f}  {months} ({plan})"
    )


def read(folder: Path) -> SimulationSettings:
    """Return the settings of a folder with a trace and its classes."""
    return settings_for(
        load_problem(folder / "classes.yaml"), read_trace(folder / "trace.csv"), Budget(amount=1.0)
    )


GRAINS = (0.25, 1.0 / 16.0, 1.0 / 64.0)
"""Jobs of the scenarios' classes per hour over those of `tests/load_scenarios.py`, at the same work."""


def generated(seeds: Sequence[int]) -> Iterator[tuple[str, SimulationSettings]]:
    """Yield loads of three grains, with and without rhythms, bursts, lumpy sizes and growth."""
    days = 35
    by_week = tuple((24.0 * d, 1.28 if d % 7 < 5 else 0.3) for d in range(days))
    grows = tuple((24.0 * d, 0.6 + 0.8 * (d + 0.5) / days) for d in range(days))
    both = tuple(
        (24.0 * d + h, (1.28 if d % 7 < 5 else 0.3) * f)
        for d in range(days)
        for h, f in ((0.0, 0.4), (8.0, 1.6), (20.0, 0.4))
    )
    bursts = tuple((24.0 * d + 13.0, 24) for d in range(2, days, 3))
    for grain in GRAINS:
        classes = tuple(
            replace(
                c,
                arrivals_per_hour=c.arrivals_per_hour * grain,
                phases=tuple(replace(p, size_gpu_hours=p.size_gpu_hours / (4.0 * grain)) for p in c.phases),
            )
            for c in PROBLEM.classes
        )
        problem = replace(PROBLEM, classes=classes)
        for scenario in (
            Scenario(name="steady"),
            Scenario(name="days and weeks", load=both),
            Scenario(name="weeks", load=by_week),
            Scenario(name="bursts", bursts=tuple((h, max(1, round(n * grain * 4))) for h, n in bursts)),
            Scenario(name="grows", load=grows),
        ):
            for sigma in (0.0, 1.5):
                for seed in seeds:
                    trace = a_trace_of(scenario, classes, hours=24.0 * days, seed=seed)
                    rng = np.random.default_rng(seed)
                    scales = np.exp(sigma * rng.standard_normal(len(trace.jobs)) - 0.5 * sigma**2)
                    jobs = tuple(
                        replace(job, scale=max(float(s) * job.scale, 1e-3))
                        for job, s in zip(trace.jobs, scales, strict=True)
                    )
                    found = Trace(jobs)
                    counts: dict[str, float] = {}
                    for job in jobs:
                        counts[job.class_name] = counts.get(job.class_name, 0.0) + job.scale
                    told = tuple(
                        replace(c, arrivals_per_hour=max(counts.get(c.name, 0.0), 0.01) / found.window_hours)
                        for c in classes
                    )
                    yield (
                        f"1/{round(1.0 / grain)} {scenario.name}{', lumpy' if sigma else ''} #{seed}",
                        SimulationSettings(
                            trace=found,
                            problem=replace(problem, classes=told),
                            instance_types={"gpu": NODE},
                            budget=Budget(amount=1.0),
                        ),
                    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--factors", nargs="*", type=float, default=[1.5])
    parser.add_argument("--learn", action="store_true", help="the default learns; told the truth otherwise")
    parser.add_argument("--periods", action="store_true", help="beside plans by month as well")
    parser.add_argument("--generated", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="generated loads whose name contains this")
    parser.add_argument(
        "--set", action="append", default=[], help="option of boa-paced, such as tolerance=0.05"
    )
    words = parser.parse_args()
    pairs = dict(one.split("=", 1) for one in words.set)
    options = parse_options(find_policy("boa-paced"), pairs)
    todo: list[tuple[str, SimulationSettings]] = [(folder.name, read(folder)) for folder in words.folders]
    if words.generated:
        todo += [one for one in generated(range(1, words.seeds + 1)) if words.only in one[0]]
    print(HEAD)
    rows = []
    for name, settings in todo:
        for factor in words.factors:
            asked = replace(settings, options=options)
            row = compare(name, asked, factor, learns=words.learn, periods=words.periods)
            rows.append(row)
    if len(rows) > 1:
        for key in ("jct", "p95", "dearer"):
            values = [float(row[key]) for row in rows]
            print(f"{key}: mean {fmean(values):.3f}, median {np.median(values):.3f}, worst {max(values):.3f}")


if __name__ == "__main__":
    main()
