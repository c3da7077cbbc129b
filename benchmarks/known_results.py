"""BOA's fixed plan beside known results: the closed form, and Pollux's figures from its own simulator.

    python benchmarks/known_results.py [--quick]

The closed form: no overheads, Poisson arrivals, exponential sizes, GPUs rented one by one, two classes, 1.5
times the load. Pollux: the 85-job cut of its workload-1 in `tests/data`, with the plan tuned on the trace to
the fleet GPU-hours that Pollux was measured at (rounds of 60 s, nodes that appear at once). It takes half a
minute; --quick has fewer and shorter runs of the closed form, and one boot time.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.special import stdtrit

from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.lab.compare.cells import Comparison
from boa_daemon.lab.compare.run_cells import run_all
from boa_daemon.lab.traces.importers import import_source
from boa_daemon.sim.wiring import SimulationSettings, settings_for, simulate
from boa_daemon.tasks.tasks import Tasks
from boa_daemon.testing import a_class, a_problem, an_instance_type
from boa_daemon.traces.reader import Trace, TraceJob, read_trace
from boa_daemon.traces.workload import Options
from boa_daemon.traces.writer import write_workload
from policies.model import Budget
from policies.optimum.boa import solve
from policies.speedup import Amdahl, PowerLaw

POLLUX = Path(__file__).resolve().parents[1] / "tests" / "data" / "pollux"
SHORT_JOBS = Options(workload="workloads/workload-1.csv", apps=("cifar10", "deepspeech2", "bert"))
BOOTS = (0.0, 180.0, 420.0)
"""Seconds from launch to ready."""
PUBLISHED = (
    ("Pollux's autoscaler, band 0.35-0.65", 327.2, 3787.0),
    ("Pollux's autoscaler, band 0.55-0.85", 244.5, 4312.0),
    ("Pollux on 8 nodes", 260.8, 2244.0),
    ("Pollux on 16 nodes", 515.2, 1260.0),
)
"""What ran, its GPU-hours, and its mean JCT in seconds."""


def print_published(boots: tuple[float, ...]) -> None:
    """Print BOA's tuned plan at the GPU-hours that Pollux has in its own simulator."""
    print("| published | GPU-h | mean JCT, s | boot | BOA, s | its GPU-h | ratio |")
    print("|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as folder:
        workload = import_source("pollux", POLLUX, SHORT_JOBS)
        trace_path, classes_path = write_workload(workload, Path(folder))
        trace, file = read_trace(trace_path), load_problem(classes_path, require_rates=False)
    budgets = tuple(Budget(amount=held / trace.window_hours, unit="gpus") for _, held, _ in PUBLISHED)
    settings = settings_for(file, trace, budgets[0])
    for boot in boots:
        shared = replace(settings, boot_seconds=boot)
        rows = run_all(Comparison(shared=shared, budgets=budgets, rivals=()), Tasks())
        for (name, held, seconds), row in zip(PUBLISHED, rows, strict=True):
            own = 3600.0 * row.mean_jct_hours
            print(
                f"| {name} | {held:.1f} | {seconds:.0f} | {boot:g} s | {own:.0f} | "
                f"{row.gpu_hours_rented:.1f} | {seconds / own:.2f} |",
                flush=True,
            )


def print_closed_form(*, seeds: int, jobs: int) -> None:
    """Print simulated mean JCT and spend over the closed form, each with a 95 % interval over the runs."""
    classes = (
        a_class("amdahl", sizes=(2.0,), curve=Amdahl(parallel_fraction=0.95), arrivals_per_hour=3.0),
        a_class("power", sizes=(1.0,), curve=PowerLaw(exponent=0.6), arrivals_per_hour=6.0),
    )
    problem = a_problem(*classes, budget=Budget(amount=1.0, unit="gpus"))
    solution = solve(problem, 1.5 * 12.0)
    waits, spends = [], []
    for seed in range(seeds):
        dice = np.random.default_rng(seed)
        at = np.cumsum(dice.exponential(3600.0 / 9.0, jobs))
        names = np.where(dice.random(jobs) < 3.0 / 9.0, "amdahl", "power")
        scales = dice.exponential(1.0, jobs)
        trace = Trace(
            tuple(
                TraceJob(str(n), float(t), str(name), float(scale))
                for n, (t, name, scale) in enumerate(zip(at, names, scales, strict=True))
            )
        )
        run = simulate(
            SimulationSettings(
                trace=trace,
                problem=problem,
                instance_types={"gpu": an_instance_type(gpus=1)},
                budget=Budget(amount=1.5 * 12.0, unit="gpus"),
                boot_seconds=0.0,
                idle_hold_seconds=0.0,
                seed=seed,
            )
        )
        if run.mean_jct_hours < run.lower_bound_mean_jct_hours * (1.0 - 1e-9):
            raise SystemExit("a run beats the lower bound")
        waits.append(run.mean_jct_hours / solution.mean_jct_hours)
        spends.append(run.mean_usd_per_hour / solution.mean_spend)
    for what, values in (("mean JCT", waits), ("spend", spends)):
        error = float(stdtrit(len(values) - 1, 0.975)) * np.std(values, ddof=1) / math.sqrt(len(values))
        print(f"simulated {what} over the closed form: {np.mean(values):.3f} ± {error:.3f}")
    print(f"{seeds} runs of {jobs} jobs; ± is a 95 % interval over the runs.\n", flush=True)


def main() -> None:
    """Print the closed form, then the published figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print_closed_form(seeds=4 if quick else 10, jobs=500 if quick else 2000)
    print_published(BOOTS[:1] if quick else BOOTS)


if __name__ == "__main__":
    main()
