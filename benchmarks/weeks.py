"""Real weeks: the default policy beside its own fixed plan for the same money, told the truth and learning.

    boa trace import elasticflow/cluster10.csv --from itp --profiles elasticflow --to-hours 840 --out DIR
    python benchmarks/weeks.py DIR [DIR ...] [--factors 1.5 2] [--learn] [--set tolerance=0.05]
    python benchmarks/weeks.py --table DATA [--only cluster] [--seeds 10] [--both]

Each line is a trace at a budget, a multiple of the least that runs its jobs. `boa-paced` and `boa` run on
the same command line first: `dearer` is the spend of the former over that of the latter per hour of
arrivals. Then the reference is tuned, through the budget that it plans for, to the money that `boa-paced`
spent (within 0.5 %, or interpolated between two runs on both sides of it): `JCT` and `p95` are those of
`boa-paced` over the reference's. It is the fixed plan (`plan`) where that keeps what is promised of each
whole period, and else one fixed plan for each period (`periods`), by the period's own rates and for its own
money. `spent` is the spend of each whole period over its money, and in brackets that of the fixed plan on
the same command line. `foretold` is the loss that was shown before. `--both` runs each line told and
learning.

The table has the clusters of DATA/microsoft-itp from their first to their last job, the virtual clusters of
Philly in DATA/gavel, and generated loads. Models of clusters 02, 04 and 05 are not published: they are
drawn for each job at random among those of DATA/elasticflow, at the job's GPU-time. Helios-like loads have
what its paper says of GPU jobs: half of them on one GPU, a median of 206 s and a mean of 6,652 s, nights
with a third of the day's jobs, and users who submit many at once. The other loads are those of
`tests/load_scenarios.py` with jobs of five grains, from as large as there to 256 times as large, so that a
month brings few of them; steady, with days and weeks, with bursts, and with growth.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.lab.traces.importers import import_source
from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import PreparedRun, SimulationSettings, prepare, settings_for, site_of
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.limits import period_of
from boa_daemon.tick.money.ledger import Ledger
from boa_daemon.traces.reader import Trace, TraceJob, read_trace
from boa_daemon.traces.workload import Options, Workload
from boa_daemon.traces.writer import write_workload
from boa_daemon.units import SECONDS_PER_HOUR
from policies.answer import Allocation
from policies.errors import InfeasibleBudget
from policies.model import Budget, Job, Money, Problem
from policies.online.node_prices import with_boots_at_changes
from policies.online.pacing import PERIOD, PERIOD_MONTHS, TOLERANCE
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

    def periods(self, months: int) -> list[float]:
        """Return the spend of each whole period of so many months of arrivals over its money."""
        found, begin = list[float](), 0.0
        budget = self.result.budget_usd_per_hour
        while True:
            end = period_of(begin * SECONDS_PER_HOUR, months).ends_at / SECONDS_PER_HOUR
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
    """One fixed plan for each period of so many calendar months."""

    plans: Sequence[Allocator]
    months: int

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the answer of the plan of this period."""
        return self.plans[min(number_of(now, self.months), len(self.plans) - 1)].allocate(
            jobs, now=now, money=money
        )


def number_of(now: float, months: int) -> int:
    """Return the number of whole periods before an instant of simulated time."""
    number, at = 0, period_of(0.0, months).ends_at
    while at <= now:
        number, at = number + 1, period_of(at, months).ends_at
    return number


def parts_of(trace: Trace, months: int) -> list[Trace]:
    """Return the jobs of each period."""
    found: dict[int, list[TraceJob]] = {}
    for job in trace.jobs:
        found.setdefault(number_of(job.arrived_at_seconds, months), []).append(job)
    return [Trace(tuple(found[number])) for number in sorted(found)]


def run_by_period(settings: SimulationSettings, months: int) -> Run:
    """Run the fixed plan of each period by its own rates, at the planning budget in each of them."""
    budget = settings.planning_budget or settings.budget
    plans, begin = [], 0.0
    for part in parts_of(settings.trace, months):
        end = period_of(part.jobs[0].arrived_at_seconds, months).ends_at / SECONDS_PER_HOUR
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
    return finished(
        replace(run, controller=replace(run.controller, allocator=ByPeriod(plans=plans, months=months)))
    )


def least_of(settings: SimulationSettings) -> float:
    """Return the least dollars per hour that run every job."""
    site = site_of(settings)
    return MixedFrontier.of(with_boots_at_changes(site.problem, site.boot_hours)).cheapest_feasible_spend


def at_spend(
    settings: SimulationSettings,
    spend: float,
    make: Callable[[SimulationSettings], Run],
    first: Run | None = None,
) -> tuple[float, float]:
    """Return mean JCT and p95 of a reference at a spend per hour of arrivals, in hours."""
    found: dict[float, Run] = {}
    plans: dict[float, float] = {}
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


def compare(name: str, settings: SimulationSettings, factor: float, *, learns: bool) -> dict[str, Any]:
    """Compare the default with its plan on one trace."""
    amount = factor * least_of(settings)
    settings = replace(settings, budget=Budget(amount=amount))
    options = settings.options
    months = PERIOD_MONTHS[options.period or PERIOD]
    tolerance = TOLERANCE if options.tolerance is None else options.tolerance
    fixed = replace(settings, policy="boa", options=type(options)())
    plan = run_of(fixed)
    began = time.process_time()
    paced = run_of(replace(settings, policy="boa-paced", learns=learns))
    seconds = time.process_time() - began
    spend = paced.result.mean_usd_per_hour
    is_even = all(abs(one - 1.0) <= tolerance for one in plan.periods(months))
    if is_even:
        jct, p95 = at_spend(fixed, spend, run_of, plan)
    else:
        jct, p95 = at_spend(fixed, spend, partial(run_by_period, months=months))
    loss = paced.result.pacing_loss_fraction
    return {
        "name": name,
        "factor": factor,
        "learns": learns,
        "jobs": paced.result.jobs,
        "jct": paced.result.mean_jct_hours / jct,
        "p95": paced.result.p95_jct_hours / p95,
        "reference": "plan" if is_even else "periods",
        "over": spend / amount,
        "dearer": spend / plan.result.mean_usd_per_hour,
        "periods": paced.periods(months),
        "plan_periods": plan.periods(months),
        "foretold": math.nan if loss is None else loss,
        "seconds": seconds,
    }


HEAD = (
    f"{'trace':34s} {'x':>4s} {'':7s} {'jobs':>5s}  "
    f"{'JCT':>5s} {'p95':>5s} {'of':7s}  {'spend':>5s} {'dearer':>6s}"
    f"  {'foretold':>8s} {'CPU s':>6s}  spent (plan)"
)


def line(row: dict[str, Any]) -> str:
    """Return a line of the table."""
    periods = " ".join(f"{m:.2f}" for m in row["periods"])
    plan = " ".join(f"{m:.2f}" for m in row["plan_periods"])
    return (
        f"{row['name']:34s} {row['factor']:4.1f} "
        f"{'learns' if row['learns'] else 'told':7s} {row['jobs']:5d}  "
        f"{row['jct']:5.3f} {row['p95']:5.2f} {row['reference']:7s}  {row['over']:5.3f} {row['dearer']:6.3f}"
        f"  {row['foretold']:8.4f} {row['seconds']:6.1f}  {periods} ({plan})"
    )


def read(folder: Path) -> SimulationSettings:
    """Return the settings of a folder with a trace and its classes."""
    return settings_for(
        load_problem(folder / "classes.yaml"), read_trace(folder / "trace.csv"), Budget(amount=1.0)
    )


ITP = ("cluster10", "cluster01", "cluster03", "cluster02", "cluster05", "cluster04")
PHILLY = ("e13805", "7f04ca", "103959")


def clusters(data: Path) -> Iterator[tuple[str, Callable[[], SimulationSettings]]]:
    """Yield the whole clusters of Microsoft ITP, and the virtual clusters of Philly."""
    for name in ITP:
        yield name, partial(of_itp, data, name)
    for name in PHILLY:
        yield f"philly {name}", partial(of_gavel, data, name)


def of_itp(data: Path, name: str) -> SimulationSettings:
    """Return a cluster, with drawn models where none are published."""
    profiles = data / "elasticflow"
    with tempfile.TemporaryDirectory() as folder:
        source = data / "microsoft-itp" / "elasticflow" / f"{name}.csv"
        if not source.exists():
            source = with_models(data / "microsoft-itp" / "raw" / f"{name}.csv", profiles, Path(folder))
        return settings_of_workload(import_source("itp", source, Options(profiles=profiles)), Path(folder))


def of_gavel(data: Path, name: str) -> SimulationSettings:
    """Return a virtual cluster of Philly."""
    options = Options(workload=f"msr/seed=0/{name}.trace")
    with tempfile.TemporaryDirectory() as folder:
        return settings_of_workload(import_source("gavel", data / "gavel", options), Path(folder))


def settings_of_workload(workload: Workload, folder: Path) -> SimulationSettings:
    """Return the settings of an imported trace, as its files have it."""
    write_workload(workload, folder)
    return read(folder)


def with_models(source: Path, profiles: Path, folder: Path) -> Path:
    """Write a raw trace with a model, a batch and iterations for each job, at its GPUs and its duration."""
    rng = np.random.default_rng(0)
    tables = [
        (file.stem, row)
        for file in sorted((profiles / "throughputs_A100").glob("*.csv"))
        for row in csv.DictReader(file.read_text().splitlines())
    ]
    found = folder / source.name
    keys = ("job_id", "submission_time", "num_iteration", "model_name", "deadline", "batch_size", "num_gpu")
    with found.open("w") as out:
        writer = csv.writer(out)
        writer.writerow((*keys, "duration"))
        for job in csv.DictReader(source.read_text().splitlines()):
            able = [one for one in tables if float(one[1].get(job["num_gpu"]) or 0.0) > 0.0]
            model, row = able[int(rng.integers(len(able)))]
            steps = max(round(float(row[job["num_gpu"]]) * float(job["duration"])), 1)
            end = float(job["submission_time"]) + float(job["duration"])
            batch = row["global_batch_size"]
            writer.writerow(
                (
                    job["job_id"],
                    job["submission_time"],
                    steps,
                    model,
                    end,
                    batch,
                    job["num_gpu"],
                    job["duration"],
                )
            )
    return found


def helios(seeds: Sequence[int]) -> Iterator[tuple[str, Callable[[], SimulationSettings]]]:
    """Yield Helios-like loads of four weeks."""
    for seed in seeds:
        yield f"helios-like #{seed}", partial(a_helios, seed)


def a_helios(seed: int) -> SimulationSettings:
    """Return four weeks of Helios-like jobs, in batches of two on average."""
    rng, hours, per_hour = np.random.default_rng(seed), 28 * 24, 4.0
    sigma = math.sqrt(2.0 * math.log(6652.0 / 206.0))
    gpus, chances = (1, 2, 4, 8, 16, 32), (0.52, 0.15, 0.14, 0.16, 0.02, 0.01)
    day = np.array([0.33] * 8 + [1.4] * 4 + [1.0] * 2 + [1.5] * 4 + [0.9] * 2 + [1.3] * 4)
    jobs = []
    for hour in range(hours):
        factor = day[hour % 24] / day.mean() * (1.15 if hour // 24 % 7 < 5 else 0.625)
        for _ in range(rng.poisson(0.5 * per_hour * factor)):
            name, at = PROBLEM.classes[int(rng.integers(3))].name, (hour + rng.random()) * SECONDS_PER_HOUR
            width = int(rng.choice(gpus, p=chances))
            for number in range(int(rng.geometric(0.5))):
                seconds = min(206.0 * math.exp(sigma * rng.standard_normal()), 14 * 86400.0)
                jobs.append((at + 5.0 * number, name, width * seconds / SECONDS_PER_HOUR))
    sizes = {c.name: c.size_gpu_hours for c in PROBLEM.classes}
    found = Trace(
        tuple(
            TraceJob(f"j{n}", at, name, max(work / sizes[name], 1e-3))
            for n, (at, name, work) in enumerate(sorted(jobs))
        )
    )
    return settings_of_jobs(PROBLEM, found)


def settings_of_jobs(problem: Problem, trace: Trace) -> SimulationSettings:
    """Return the settings of generated jobs, whose rates are stated by the work that comes."""
    counts: dict[str, float] = {}
    for job in trace.jobs:
        counts[job.class_name] = counts.get(job.class_name, 0.0) + job.scale
    told = tuple(
        replace(c, arrivals_per_hour=max(counts.get(c.name, 0.0), 0.01) / trace.window_hours)
        for c in problem.classes
    )
    return SimulationSettings(
        trace=trace,
        problem=replace(problem, classes=told),
        instance_types={"gpu": NODE},
        budget=Budget(amount=1.0),
    )


GRAINS = (1.0 / 256.0, 1.0 / 64.0, 1.0 / 16.0, 0.25, 1.0)
"""Jobs of the scenarios' classes per hour over those of `tests/load_scenarios.py`, at the same work."""


def generated(seeds: Sequence[int]) -> Iterator[tuple[str, Callable[[], SimulationSettings]]]:
    """Yield loads of five grains, with and without rhythms, bursts, lumpy sizes and growth."""
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
        for scenario in (
            Scenario(name="steady"),
            Scenario(name="days and weeks", load=both),
            Scenario(name="weeks", load=by_week),
            Scenario(name="bursts", bursts=tuple((h, max(1, round(n * grain * 4))) for h, n in bursts)),
            Scenario(name="grows", load=grows),
        ):
            for sigma in (0.0, 1.5):
                for seed in seeds:
                    name = f"1/{round(1.0 / grain)} {scenario.name}{', lumpy' if sigma else ''} #{seed}"
                    yield name, partial(a_load, scenario, grain=grain, sigma=sigma, seed=seed, days=days)


def a_load(scenario: Scenario, *, grain: float, sigma: float, seed: int, days: int) -> SimulationSettings:
    """Return a load of `grain` times the jobs of `tests/load_scenarios.py`, at the same work or a quarter."""
    classes = tuple(
        replace(
            c,
            arrivals_per_hour=c.arrivals_per_hour * grain,
            phases=tuple(replace(p, size_gpu_hours=p.size_gpu_hours / (4.0 * grain)) for p in c.phases),
        )
        for c in PROBLEM.classes
    )
    trace = a_trace_of(scenario, classes, hours=24.0 * days, seed=seed)
    rng = np.random.default_rng(seed)
    scales = np.exp(sigma * rng.standard_normal(len(trace.jobs)) - 0.5 * sigma**2)
    jobs = tuple(
        replace(job, scale=max(float(s) * job.scale, 1e-3)) for job, s in zip(trace.jobs, scales, strict=True)
    )
    return settings_of_jobs(replace(PROBLEM, classes=classes), Trace(jobs))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--factors", nargs="*", type=float, default=[1.5])
    parser.add_argument("--learn", action="store_true", help="the default learns; told the truth otherwise")
    parser.add_argument("--both", action="store_true", help="told and learning")
    parser.add_argument("--table", type=Path, metavar="DATA", help="clusters and generated loads")
    parser.add_argument("--seeds", type=int, default=10, help="of each generated load")
    parser.add_argument("--only", default="", help="loads of the table whose name contains this")
    parser.add_argument(
        "--set", action="append", default=[], help="option of boa-paced, such as tolerance=0.05"
    )
    words = parser.parse_args()
    pairs = dict(one.split("=", 1) for one in words.set)
    options = parse_options(find_policy("boa-paced"), pairs)
    todo: list[tuple[str, Callable[[], SimulationSettings]]] = [
        (folder.name, partial(read, folder)) for folder in words.folders
    ]
    if words.table is not None:
        seeds = range(1, words.seeds + 1)
        loads = (*clusters(words.table), *helios(seeds), *generated(seeds))
        todo += [one for one in loads if words.only in one[0]]
    print(HEAD)
    rows = []
    for name, load in todo:
        settings = replace(load(), options=options)
        for factor in words.factors:
            for learns in (False, True) if words.both else (words.learn,):
                row = compare(name, settings, factor, learns=learns)
                print(line(row), flush=True)
                rows.append(row)
    for learns in (False, True):
        of = [row for row in rows if row["learns"] is learns]
        for key in ("jct", "p95", "dearer") if len(of) > 1 else ():
            values = [float(row[key]) for row in of]
            print(
                f"{'learns' if learns else 'told':6s} {key}: mean {fmean(values):.3f}, "
                f"median {np.median(values):.3f}, worst {max(values):.3f}"
            )


if __name__ == "__main__":
    main()
