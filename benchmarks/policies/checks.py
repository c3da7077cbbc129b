"""Checks against known results: the closed form, and Pollux's figures from its own simulator."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from scenarios import BOOTS, SMALL_APPS, Scenario, pollux
from scipy.special import stdtrit
from work import settings_of, tasks_of

from boa_daemon.comparing.cells import Comparison
from boa_daemon.comparing.run_cells import run_all
from boa_daemon.comparing.tasks import Tasks
from boa_daemon.sim.wiring import SimulationSettings, simulate
from boa_daemon.testing import a_class, a_problem, an_instance_type
from boa_daemon.traces.reader import Trace, TraceJob
from policies.model import Budget
from policies.optimum.boa import solve
from policies.speedup import Amdahl, PowerLaw

PUBLISHED = (
    ("Pollux's autoscaler, band 0.35-0.65", 327.2, 3787.0),
    ("Pollux's autoscaler, band 0.55-0.85", 244.5, 4312.0),
    ("Pollux on 8 nodes", 260.8, 2244.0),
    ("Pollux on 16 nodes", 515.2, 1260.0),
)


def published(data: Path, scratch: Path, tasks: Tasks) -> str:
    """Return BOA's tuned plan at the GPU-hours that Pollux has in its own simulator, on the 85-job cut."""
    lines = [
        "| published | GPU-h | mean JCT, s | boot | BOA, s | its GPU-h | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for boot in BOOTS:
        scenario = Scenario(
            group="published",
            column=f"{boot:g}",
            sources=(pollux("", 1, SMALL_APPS),),
            factor=1.5,
            boot_seconds=boot,
        )
        (task,) = tasks_of(scenario, data, scratch)
        settings, _ = settings_of(task)
        hours = settings.trace.window_hours
        budgets = tuple(Budget(amount=held / hours, unit="gpus") for _, held, _ in PUBLISHED)
        comparison = Comparison(shared=settings, budgets=budgets, rivals=())
        rows = run_all(comparison, tasks)
        for (name, held, seconds), row in zip(PUBLISHED, rows, strict=True):
            own = 3600.0 * row.mean_jct_hours
            lines.append(
                f"| {name} | {held:.1f} | {seconds:.0f} | {boot:g} s | {own:.0f} | "
                f"{row.gpu_hours_rented:.1f} | {seconds / own:.2f} |"
            )
    return "\n".join(lines)


def closed_form(*, seeds: int, jobs: int) -> str:
    """Return simulated mean JCT and spend over the closed form: no overheads, Poisson, single GPUs."""
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
    lines = []
    for what, values in (("mean JCT", waits), ("spend", spends)):
        error = float(stdtrit(len(values) - 1, 0.975)) * np.std(values, ddof=1) / math.sqrt(len(values))
        lines.append(f"- simulated {what} over the closed form: {np.mean(values):.3f} ± {error:.3f}")
    return "\n".join([*lines, "", f"{seeds} runs of {jobs} jobs; ± is a 95 % interval over the runs."])
