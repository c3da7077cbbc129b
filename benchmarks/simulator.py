"""The speed of the simulator, and whether its cost per event stays constant as jobs grow.

    python benchmarks/simulator.py PATH_TO_POLLUX_TRACES [--quick]
    python benchmarks/simulator.py --year

PATH holds `traces/APP/*.csv` and `workloads/workload-6.csv`, as `boa trace import --from pollux` reads them;
without PATH that part is left out. The month is Poisson arrivals of three classes
(`tests/load_scenarios.py`), at a rate that gives the requested number of jobs; the fleet grows with the rate.
Cost per event is the time of a run over its ticks (each is one run of the daemon's own `run_once()`), at one
arrival rate over longer and longer stretches, so that only the number of jobs grows.
"""

from __future__ import annotations

import argparse
import io
import resource
import statistics
import sys
import tempfile
import time
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from boa_daemon.cli import app
from boa_daemon.cli.common.output import a_table
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import SimulationSettings, settings_for, simulate
from boa_daemon.sim.world_settings import Boot, Checkpoints, Faults, Spot, Stock, WorldSettings
from boa_daemon.traces.reader import read_trace
from boa_daemon.units import parse_budget
from policies.registry import PolicyOptions

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from load_scenarios import BUDGET, PROBLEM, Scenario, a_trace_of, settings_of

MONTH_HOURS = 720.0
JOBS_PER_HOUR = sum(job_class.arrivals_per_hour for job_class in PROBLEM.classes)
CHAOS = WorldSettings(
    zones=("a", "b"),
    boots={"": Boot(median_seconds=180.0, p99_seconds=900.0)},
    spot=Spot(mean_interruption_hours=6.0, stock=Stock(mean_in_hours=8.0)),
    faults=Faults(
        boot_failure_fraction=0.02,
        throttled_fraction=0.01,
        lost_answer_fraction=0.01,
        slow_node_fraction=0.05,
        mean_node_failure_hours=500.0,
        mean_job_failure_hours=200.0,
    ),
    checkpoints=Checkpoints(every_seconds=600.0, cost_seconds=10.0),
)


def a_stretch(hours: float, jobs: float) -> SimulationSettings:
    """Return a run of about this many jobs in this many hours, with the scenarios' budget per job."""
    factor = jobs / (JOBS_PER_HOUR * hours)
    classes = tuple(
        replace(job_class, arrivals_per_hour=job_class.arrivals_per_hour * factor)
        for job_class in PROBLEM.classes
    )
    return replace(
        settings_of(Scenario(name="steady"), hours=1.0),
        trace=a_trace_of(Scenario(name="steady"), classes, hours=hours, seed=1),
        problem=replace(PROBLEM, classes=classes),
        budget=replace(BUDGET, amount=BUDGET.amount * factor),
    )


def a_site(
    gpus: float, hours: float, *, policy: str = "boa", job_gpu_hours: float = 20.0
) -> SimulationSettings:
    """Return a run with a budget for this many GPUs at a dollar per hour, and jobs of that mean size."""
    rate = sum(c.arrivals_per_hour for c in PROBLEM.classes)
    larger = job_gpu_hours * rate / sum(c.arrivals_per_hour * c.size_gpu_hours for c in PROBLEM.classes)
    factor = gpus / BUDGET.amount / larger
    classes = tuple(
        replace(
            job_class,
            arrivals_per_hour=job_class.arrivals_per_hour * factor,
            phases=tuple(
                replace(phase, size_gpu_hours=phase.size_gpu_hours * larger) for phase in job_class.phases
            ),
        )
        for job_class in PROBLEM.classes
    )
    return replace(
        settings_of(Scenario(name="steady"), hours=1.0),
        trace=a_trace_of(Scenario(name="steady"), classes, hours=hours, seed=1),
        problem=replace(PROBLEM, classes=classes),
        budget=replace(BUDGET, amount=gpus),
        policy=policy,
    )


def timed(settings: SimulationSettings, repeats: int) -> tuple[Simulation, float]:
    """Return the figures of a run and its median CPU seconds, the building of the policy included.

    A run is one thread, so this is its time on a core that it has to itself.
    """
    times: list[float] = []
    for _ in range(repeats):
        began = time.process_time()
        result = simulate(settings)
        times.append(time.process_time() - began)
    return result, statistics.median(times)


def pollux(source: Path) -> SimulationSettings:
    """Return workload-6 as it is imported."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--from", "pollux", str(source), "--workload", "workloads/workload-6.csv", "--out", folder]
        with redirect_stdout(io.StringIO()):
            app(["trace", "import", *flags, "--json"], standalone_mode=False)
        trace = read_trace(Path(folder) / "trace.csv")
        file = load_problem(Path(folder) / "classes.yaml", require_rates=False)
    return settings_for(file, trace, parse_budget("150/h"))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pollux", nargs="?", type=Path, help="the public Pollux traces and workloads")
    parser.add_argument("--quick", action="store_true", help="10,000 jobs in the month instead of 100,000")
    parser.add_argument("--year", action="store_true", help="a year of a site of 200 GPUs, and nothing else")
    flags = parser.parse_args()
    most = 10_000 if flags.quick else 100_000
    table = a_table(
        "The simulator",
        *("what", "jobs", "ticks", "CPU seconds", "jobs per second", "microseconds per tick", "peak MB"),
        right=("jobs", "ticks", "CPU seconds", "jobs per second", "microseconds per tick", "peak MB"),
    )

    def row(what: str, settings: SimulationSettings, repeats: int) -> float:
        result, seconds = timed(settings, repeats)
        per_tick = 1e6 * seconds / result.ticks
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
        cells = (f"{result.jobs:,}", f"{result.ticks:,}", f"{seconds:.2f}", f"{result.jobs / seconds:,.0f}")
        table.add_row(what, *cells, f"{per_tick:.0f}", f"{peak:.0f}")
        return per_tick

    if flags.year:
        row("a year of 200 GPUs, boa", a_site(200.0, 8760.0), 1)
        row("a tenth of it, boa-paced", a_site(200.0, 876.0, policy="boa-paced"), 1)
        Console(width=140).print(table)
        return
    if flags.pollux is not None:
        workload = pollux(flags.pollux)
        row("Pollux workload-6, boa", workload, 5)
        row(
            "the same, 16 nodes, FIFO",
            replace(workload, policy="static-fifo", options=PolicyOptions(nodes=16)),
            5,
        )
    flat = [
        row(f"{hours:g} h at 139 jobs per hour", a_stretch(hours, 139.0 * hours), 3)
        for hours in (10.0, 40.0, 160.0)
    ]
    row("40 h of them in a world of faults", replace(a_stretch(40.0, 139.0 * 40.0), world=CHAOS), 3)
    row(f"a month, {most:,} jobs", a_stretch(MONTH_HOURS, most), 1)
    Console(width=140).print(table)
    Console().print(f"cost per tick, 160 h over 10 h: {flat[-1] / flat[0]:.2f}")


if __name__ == "__main__":
    main()
