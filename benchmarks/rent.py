"""Waiting at equal money: one machine per GPU, several, + spot, + a commitment, under the daemon's policy.

    python benchmarks/rent.py SOURCE DATA [--workload 6] [--profiles DIR] [--jobs 120] [--times 1.5]
        [--rivals pollux-autoscale] [--points 7]

SOURCE is `pollux`, `gavel` or `itp`, DATA what `boa trace import --from SOURCE` reads. Pollux's profiles hold
step times on one-GPU and on four-GPU T4 machines, both are taken as measured; the other two were measured on
one machine per GPU, so on others only widths within a node are offered. Prices are those of the catalogue.

Each site (a set of machines and markets) is run end to end by `boa-paced` for ever more money; what it waits
when its bill is the money in question is read off between two runs. The money is `--times` what the cheapest
machine needs at the least. Spot costs 0.4 of the price; nodes are taken back after 12 hours, three in ten
without a notice; jobs save every ten minutes. The commitment is one year at 40 % off for all machines on
demand, at the level of the least bill (in hindsight, within the same run). Rivals get each machine on each
market, in runs that spend as much, and the best of those counts.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
from machines import NAMES, classes_on

from boa_daemon.comparing.cells import Cell, Comparison
from boa_daemon.comparing.tasks import Tasks
from boa_daemon.comparing.tune import run_cell
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.commitments_file import Terms
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.commitments import choices
from boa_daemon.planning.rentals import Rental, load_between
from boa_daemon.sim.settings import Checkpoints, Spot, WorldSettings
from boa_daemon.sim.spot_market import with_spot
from boa_daemon.sim.wiring import SimulationSettings, prepare, site_of
from boa_daemon.traces.elastic import profile_directory
from boa_daemon.traces.reader import Trace
from boa_daemon.traces.sources import import_source
from boa_daemon.traces.workload import GpuSource, Options
from policies.errors import InfeasibleBudget
from policies.links.machines import named_apart, on_machines
from policies.model import Budget, GpuType, InstanceType, JobClass, Problem
from policies.optimum.commitments import best_levels
from policies.optimum.frontier import MixedFrontier

SMALLER = {"t4": "g4dn.xlarge", "v100": "p3.2xlarge"}
"""A further machine for a GPU."""
WORLD = WorldSettings(
    spot=Spot(price_fraction=0.4, price_volatility=0.1, unannounced_fraction=0.3),
    checkpoints=Checkpoints(every_seconds=600.0, cost_seconds=10.0),
)
DISCOUNT = 0.4


def measured(words: argparse.Namespace) -> tuple[Trace, dict[str, InstanceType], tuple[JobClass, ...]]:
    """Return the jobs, the machines, the first of each GPU before others, and the classes."""
    options = Options(workload=words.workload, profiles=words.profiles, limit=words.jobs)
    found = import_source(words.source, words.data, options)
    catalog = Catalog.load()
    first = {kind: _machine(kind, source, catalog) for kind, source in found.gpu_types.items()}
    if words.source == "pollux":
        both = named_apart((catalog.instance_type(name) for name in NAMES), {})
        return found.trace, both, classes_on(profile_directory(words.data), found.trace, both, widest=None)
    more = [catalog.instance_type(SMALLER[kind]) for kind in first if kind in SMALLER]
    machines = named_apart((*first.values(), *more), first)
    return found.trace, machines, tuple(on_machines(one, machines, first) for one in found.classes)


def _machine(kind: str, source: GpuSource, catalog: Catalog) -> InstanceType:
    """Return the machine of a source's GPU type."""
    if source.instance_type is not None:
        return replace(catalog.instance_type(source.instance_type), gpu_type=kind)
    gpus = source.gpus_per_instance or 1
    return InstanceType(
        name=f"{kind}-x{gpus}",
        gpu_type=kind,
        gpus=gpus,
        usd_per_hour=gpus * (source.usd_per_gpu_hour or 0.0),
    )


def site(
    trace: Trace, machines: Mapping[str, InstanceType], classes: tuple[JobClass, ...], *, spot: str = ""
) -> SimulationSettings | None:
    """Return a site, with spot first or by the plan; None where some class runs on none of its machines."""
    kept = []
    for one in classes:
        phases = tuple(
            replace(
                phase, speedups={kind: curve for kind, curve in phase.speedups.items() if kind in machines}
            )
            for phase in one.phases
        )
        if not all(phase.speedups for phase in phases):
            return None
        kept.append(replace(one, phases=phases))
    prices = (GpuType(name=kind, usd_per_gpu_hour=one.usd_per_gpu_hour) for kind, one in machines.items())
    problem = Problem(classes=tuple(kept), gpu_types=tuple(prices))
    file = ProblemFile(path="", problem=problem, budget=None, instance_types=machines)
    if spot == "planned":
        file = with_spot(file, WORLD)
    return SimulationSettings(
        trace=trace,
        problem=file.problem,
        instance_types=file.instance_types,
        budget=Budget(amount=1.0),
        policy="boa-paced",
        world=WORLD if spot else WorldSettings(checkpoints=WORLD.checkpoints),
    )


def bills(settings: SimulationSettings, budgets: np.ndarray) -> Iterator[tuple[float, float, float]]:
    """Yield minutes of waiting, the bill in USD per hour, and the bill under the commitment of least cost."""
    for budget in budgets:
        try:
            run = prepare(replace(settings, budget=Budget(amount=float(budget))))
        except InfeasibleBudget:
            continue
        result = run.finish()
        usd = result.mean_usd_per_hour
        yield 60.0 * result.mean_jct_hours, usd, usd - _saved(run.world.cloud.meter.on_demand, settings)


def _saved(rented: list[tuple[str, int, float, float]], settings: SimulationSettings) -> float:
    """Return what the best commitment saves of a run's bill, per hour of arrivals."""
    machines = [one for one in settings.instance_types.values() if "@spot" not in one.gpu_type]
    if not rented:
        return 0.0
    begin, end = settings.trace.jobs[0].arrived_at_seconds, settings.trace.jobs[-1].arrived_at_seconds
    load = load_between([Rental(*one) for one in rented], tuple(one.gpu_type for one in machines), begin, end)
    terms = Terms(
        name="plan",
        kind="compute",
        discounts={one.name.partition(".")[0]: DISCOUNT for one in machines},
        term_years=1,
    )
    commitments = [one for _, one in choices([terms], machines)]
    prices = [one.usd_per_gpu_hour for one in machines]
    on_demand = float(np.dot(load.mean_gpus, prices))
    return on_demand - best_levels(load, prices, commitments).bill.total


def at_money(found: list[tuple[float, float, float]], money: float, *, column: int) -> float:
    """Return the minutes at which the bill is the money: read off between runs, the envelope of them."""
    below = [run for run in found if run[column] <= money]
    reached = [run[0] for run in below]
    for under in below:
        for over in (run for run in found if run[column] > money):
            share = (money - under[column]) / (over[column] - under[column])
            reached.append(under[0] + share * (over[0] - under[0]))
    return min(reached, default=math.inf)


def rivals(
    names: list[str], sites: list[SimulationSettings], money: float, tasks: Tasks
) -> Iterator[tuple[str, float, str]]:
    """Yield each rival's least minutes for the money over the sites, and the site."""
    for name in names:
        best = (math.inf, "none")
        for one in sites:
            said = "+".join(kind.name for kind in one.instance_types.values()) + (
                " spot first" if one.world.spot is not None else ""
            )
            shared = replace(one, budget=Budget(amount=money))
            comparison = Comparison(shared=shared, budgets=(shared.budget,), rivals=(name,))
            cell = Cell(policy=name, budget=shared.budget, seed=0, target=money)
            hours = run_cell(comparison, cell, tasks).equal_spend_mean_jct_hours
            best = min(best, (math.inf if hours is None else 60.0 * hours, said))
        yield name, *best


def main() -> None:
    """Print a row for each site, and one for each rival."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", choices=["pollux", "gavel", "itp"])
    parser.add_argument("data", type=Path)
    parser.add_argument("--workload")
    parser.add_argument("--profiles", type=Path)
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--times", type=float, default=1.5)
    parser.add_argument("--points", type=int, default=7)
    parser.add_argument("--least", type=float, default=0.6, help="least budget tried, in parts of the money")
    parser.add_argument("--rivals", default="")
    words = parser.parse_args()
    began = perf_counter()
    trace, machines, classes = measured(words)
    firsts = {kind: one for kind, one in machines.items() if "@" not in kind}
    one_each = site(trace, firsts, classes)
    several = site(trace, machines, classes)
    with_market = site(trace, machines, classes, spot="planned")
    assert one_each is not None
    assert several is not None
    assert with_market is not None
    least = MixedFrontier.of(site_of(one_each).problem).cheapest_feasible_spend
    money = words.times * least
    print(
        f"{len(trace.jobs)} jobs of {words.source}; {money:.2f} USD/h, {words.times:g} times the least of one"
    )
    print("site                    minutes  with a commitment", flush=True)
    single = math.inf
    for said, one in (
        ("one machine per GPU", one_each),
        ("several", several),
        ("several and spot", with_market),
    ):
        found = list(bills(one, np.geomspace(words.least, 1.5, words.points) * money))
        minutes = [at_money(found, money, column=column) for column in (1, 2)]
        single = min(single, minutes[0])
        print(f"{said:22} {minutes[0]:8.1f}  {minutes[1]:8.1f}", flush=True)
    names = [name for name in words.rivals.split(",") if name]
    alone = [{kind: one} for kind, one in machines.items()]
    sites = [site(trace, chosen, classes, spot=market) for chosen in alone for market in ("", "first")]
    with Tasks() as tasks:
        for name, minutes, where in rivals(names, [one for one in sites if one is not None], money, tasks):
            print(f"{name:22} {minutes:8.1f}  on {where}", flush=True)
    print(f"  {perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
