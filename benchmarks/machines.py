"""Mean JCT at equal spend with one machine per GPU type and with several, on Pollux's measured placements.

    python benchmarks/machines.py POLLUX [--load 1.5] [--workload 6] [--budgets 8 10 14 20]
        [--widest-on-small 4] [--machines g5.12xlarge g5.xlarge] [--plan]

POLLUX holds ``traces/`` and ``workloads*/`` of petuum/adaptdl (branch osdi21-artifact). Its profiles hold
step times for every placement on up to four nodes of up to four T4, so speeds on machines with one GPU
(g4dn.xlarge, 0.526 USD per GPU-hour) are measured just as those on machines with four (g4dn.12xlarge, 0.978).
All were measured on the latter, whose link carries 50 Gbit/s; that of a g4dn.xlarge carries 25 in bursts.
Therefore `--widest-on-small 1` also shows what is left if a g4dn.xlarge carries only jobs of one GPU.
`--machines` takes the prices of two other machines, of four GPUs and of one, as if their GPUs scaled as T4
do.

The first table shows what the plan promises at multiples of the least budget of the cheapest single machine,
and of the least budget of the large one. `--plan` stops after this table.

For each budget (USD/h), on each machine alone and on both, the second table shows the mean JCT in minutes
that the plan promises, and that of whole runs (boots of 180 s, whole nodes, bills by the second) that spend
as much, read off runs with growing plans. The first column is a site that names one machine per GPU, as `boa
catalog` suggests; the last columns are both machines over the better of the single ones.

The third table has the same jobs while g4dn.xlarge is out of stock for half of the time, in stretches of an
hour on average: jobs wait for it (before), or go to the next best machine at once (now). The last one has a
spot market at 0.4 of the price whose nodes are taken back after four hours, three in ten without notice.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.inputs.speedup_file import limited
from boa_daemon.lab.traces.elastic import ApplicationProfile, profile_directory
from boa_daemon.lab.traces.pollux import read_arrivals
from boa_daemon.lab.traces.profiles import POLLUX_FACTS, read_statistics, read_step_times
from boa_daemon.sim.spot_market import with_spot
from boa_daemon.sim.wiring import SimulationSettings, simulate, site_of
from boa_daemon.sim.world_settings import Checkpoints, Spot, Stock, WorldSettings
from boa_daemon.tick.decide import decision
from boa_daemon.tick.stages.widths.change_machine import change_machine
from boa_daemon.traces.reader import Trace, TraceJob
from boa_daemon.traces.workload import RESTART_SECONDS, Options
from policies.errors import InfeasibleBudget
from policies.links.gpu_kinds import machines_by_kind
from policies.model import Budget, GpuType, InstanceType, JobClass, Problem
from policies.optimum.boa import solve
from policies.optimum.frontier import MixedFrontier

NAMES = ("g4dn.12xlarge", "g4dn.xlarge")
HOUR = 3600.0


def classes_on(
    home: Path, trace: Trace, machines: Mapping[str, InstanceType], *, widest: int | None
) -> tuple[JobClass, ...]:
    """Return the classes of a trace with the speeds that were measured on each machine."""
    counts = Counter(job.class_name for job in trace.jobs)
    found = []
    for application in sorted(counts):
        facts, place = POLLUX_FACTS[application], home / application
        profile = ApplicationProfile(
            name=application,
            facts=facts,
            statistics=read_statistics(place, facts),
            times={
                kind: read_step_times(place, gpus_per_node=machine.gpus) for kind, machine in machines.items()
            },
        )
        job_class = profile.job_class(
            application, startup_hours=RESTART_SECONDS / HOUR, rescale_hours=RESTART_SECONDS / HOUR
        )
        if job_class is None:
            raise ValueError(f"{application} has no width")
        small = {kind for kind, machine in machines.items() if machine.gpus == 1}
        phases = tuple(
            replace(
                phase,
                speedups={
                    kind: limited({kind: curve}, min_gpus=None, max_gpus=widest if kind in small else None)[
                        kind
                    ]
                    for kind, curve in phase.speedups.items()
                },
            )
            for phase in job_class.phases
        )
        rate = counts[application] / trace.window_hours
        found.append(replace(job_class, phases=phases, arrivals_per_hour=rate))
    return tuple(found)


def settings_on(
    home: Path, trace: Trace, names: tuple[str, ...], budget: float, *, widest: int | None
) -> SimulationSettings:
    """Return a run on some machines."""
    catalog = Catalog.load()
    machines = machines_by_kind((catalog.instance_type(name) for name in names), {})
    problem = Problem(
        classes=classes_on(home, trace, machines, widest=widest),
        gpu_types=tuple(
            GpuType(name=kind, usd_per_gpu_hour=machine.usd_per_gpu_hour)
            for kind, machine in machines.items()
        ),
    )
    return SimulationSettings(
        trace=trace, problem=problem, instance_types=machines, budget=Budget(amount=budget)
    )


def frontier_of(settings: SimulationSettings, most: float, steps: int) -> tuple[list[float], list[float]]:
    """Return (USD per hour, minutes of JCT) of runs with growing plans, by rising spend.

    A run that spends more and waits longer than another is left out.
    """
    least = MixedFrontier.of(site_of(settings).problem).cheapest_feasible_spend
    runs = []
    for planned in np.geomspace(least * 1.001, max(most, least * 1.1), steps):
        run = simulate(replace(settings, budget=Budget(amount=float(planned))))
        runs.append((run.mean_usd_per_hour, 60.0 * run.mean_jct_hours))
    spends: list[float] = []
    minutes: list[float] = []
    for spend, waited in sorted(runs):
        if not minutes or waited < minutes[-1]:
            spends.append(spend)
            minutes.append(waited)
    return spends, minutes


def planned_minutes(settings: SimulationSettings, budget: float) -> float:
    """Return the plan's mean JCT at a budget, or infinity if the budget is not enough."""
    try:
        return 60.0 * solve(site_of(settings).problem, budget).mean_jct_hours
    except InfeasibleBudget:
        return math.inf


def promises(of: list[SimulationSettings]) -> None:
    """Print the plan's mean JCT on the large machine, the small one and both, by multiples of the load."""
    frontiers = [MixedFrontier.of(site_of(settings).problem) for settings in of]
    least = [frontier.cheapest_feasible_spend for frontier in frontiers]
    print("the plan's mean JCT in minutes: large, small, both; both over the best single")
    for said, load in (("cheapest", min(least)), ("large", least[0])):
        for times in (1.1, 1.25, 1.5, 1.75, 2.0):
            usd = times * load
            minutes = [
                60.0 * float(frontier.mean_jct_at(np.array([usd]))[0]) if usd >= needed else math.inf
                for frontier, needed in zip(frontiers, least, strict=True)
            ]
            over = 100.0 * (minutes[2] / min(minutes[:2]) - 1.0)
            cells = " ".join(f"{waited:8.1f}" for waited in minutes)
            print(f"{times:5.2f} x the load on the {said:8s} {usd:8.1f} USD/h {cells} {over:+7.1f} %")


def main() -> None:
    """Print a row for each budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--load", default="1.5")
    parser.add_argument("--workload", type=int, default=6)
    parser.add_argument("--budgets", type=float, nargs="+", default=[110.0, 130.0, 150.0, 180.0, 220.0])
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--widest-on-small", type=int, default=None)
    parser.add_argument("--machines", nargs=2, default=NAMES, metavar=("LARGE", "SMALL"))
    parser.add_argument("--plan", action="store_true")
    words = parser.parse_args()
    folder = "workloads" if words.load == "1" else f"workloads-{words.load}"
    rows = read_arrivals(words.data / folder / f"workload-{words.workload}.csv", Options(), Counter[str]())
    trace = Trace(tuple(TraceJob(row.text("name"), at, row.text("application")) for at, row in rows))
    home = profile_directory(words.data)
    names = tuple(words.machines)
    choices = (names[:1], names[1:], names)
    of = [settings_on(home, trace, names, 1.0, widest=words.widest_on_small) for names in choices]
    ran = [frontier_of(settings, 1.2 * max(words.budgets), words.steps) for settings in of]
    promises(of)
    if words.plan:
        return
    print(f"{len(trace.jobs)} jobs; mean JCT in minutes at equal spend: plan, run")
    print(
        "  USD/h"
        + "".join(f"{' + '.join(names):>29s}" for names in choices)
        + "   over the best single: plan, run"
    )
    for budget in words.budgets:
        plans = [planned_minutes(settings, budget) for settings in of]
        runs = [float(np.interp(budget, spends, waited, left=math.inf)) for spends, waited in ran]
        cells = "".join(f"{plan:20.1f} {run:8.1f}" for plan, run in zip(plans, runs, strict=True))
        ratios = (f"{100.0 * (found[2] / min(found[:2]) - 1.0):+8.1f} %" for found in (plans, runs))
        print(f"{budget:7.0f}{cells}   {' '.join(ratios)}", flush=True)
    middle = words.budgets[len(words.budgets) // 2]
    stocks(of[-1], middle)
    markets(of[-1], 0.75 * middle)


def markets(settings: SimulationSettings, budget: float) -> None:
    """Print plan and run on demand, with spot first for all jobs, and with the plan's choice of market."""
    market = Spot(
        price_fraction=0.4, price_volatility=0.1, mean_interruption_hours=4.0, unannounced_fraction=0.3
    )
    saves = Checkpoints(every_seconds=600.0, cost_seconds=10.0)
    world = WorldSettings(spot=market, checkpoints=saves)
    settings = replace(settings, budget=Budget(amount=budget), world=world)
    file = ProblemFile(path="", problem=settings.problem, budget=None, instance_types=settings.instance_types)
    both = with_spot(file, world)
    planned = replace(settings, problem=both.problem, instance_types=both.instance_types)
    print(f"at {budget:g} USD/h       plan     run   minutes;  USD/h")
    for said, one in (
        ("on demand", replace(settings, world=WorldSettings(checkpoints=saves))),
        ("spot first", settings),
        ("spot in the plan", planned),
    ):
        run = simulate(one)
        cells = f"{planned_minutes(one, budget):8.1f} {60.0 * run.mean_jct_hours:8.1f}"
        print(f"  {said:16s} {cells} {run.mean_usd_per_hour:17.2f}", flush=True)


def stocks(settings: SimulationSettings, budget: float) -> None:
    """Print the cost of a lack of stock if jobs wait for the machine, and if they use another one."""
    small = list(settings.instance_types.values())[1].name
    world = WorldSettings(stock={small: Stock(nodes=400, mean_in_hours=1.0, mean_out_hours=1.0)})
    settings = replace(settings, budget=Budget(amount=budget), seed=3)
    every = decision.STAGES
    print(f"at {budget:g} USD/h       minutes   USD/h")
    for said, stages, where in (
        ("in stock", every, WorldSettings()),
        ("wait for it", tuple(stage for stage in every if stage is not change_machine), world),
        ("go elsewhere", every, world),
    ):
        decision.STAGES = stages
        run = simulate(replace(settings, world=where))
        print(f"  {said:16s} {60.0 * run.mean_jct_hours:8.1f} {run.mean_usd_per_hour:7.2f}", flush=True)
    decision.STAGES = every


if __name__ == "__main__":
    main()
