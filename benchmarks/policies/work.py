"""One trace of a scenario, run in a process of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from scenarios import Scenario, Source

from boa_daemon.compare.cells import Comparison, Row
from boa_daemon.compare.run import Kept, run_all
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.sim.settings import Spot, WorldSettings
from boa_daemon.sim.wiring import SimulationSettings, settings_for
from boa_daemon.traces.reader import read_trace
from boa_daemon.traces.sources import import_source
from boa_daemon.traces.writer import write_workload
from policies.model import Budget
from policies.optimum.frontier import MixedFrontier


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One trace of a scenario."""

    scenario: str
    source: Source
    boot_seconds: float
    factor: float
    rivals: tuple[str, ...]
    gpu_types: tuple[str, ...]
    seeds: int
    on_spot: bool
    data: Path
    scratch: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a task came to: its rows, and seconds by policy."""

    scenario: str
    load: float
    rows: list[Row]
    seconds: float


def tasks_of(scenario: Scenario, data: Path, scratch: Path) -> list[Task]:
    """Return a task per trace."""
    return [
        Task(
            scenario=scenario.name,
            source=source,
            boot_seconds=scenario.boot_seconds,
            factor=scenario.factor,
            rivals=scenario.rivals,
            gpu_types=scenario.gpu_types,
            seeds=scenario.seeds,
            on_spot=scenario.on_spot,
            data=data,
            scratch=scratch / f"{_word(scenario.name)}-{number}",
        )
        for number, source in enumerate(scenario.sources)
    ]


def settings_of(task: Task) -> tuple[SimulationSettings, float]:
    """Return the settings of a task at its budget, and the load. One GPU type is counted in GPUs."""
    source = task.source
    profiles = task.data / source.profiles if source.profiles else None
    workload = import_source(source.kind, task.data / source.path, replace(source.options, profiles=profiles))
    if task.gpu_types:
        workload = replace(
            workload,
            gpu_types={name: workload.gpu_types[name] for name in task.gpu_types},
            classes=tuple(
                replace(
                    c,
                    phases=tuple(
                        replace(p, speedups={n: p.speedups[n] for n in task.gpu_types if n in p.speedups})
                        for p in c.phases
                    ),
                )
                for c in workload.classes
            ),
        )
    trace_path, classes_path = write_workload(workload, task.scratch)
    trace, file = read_trace(trace_path), load_problem(classes_path, require_rates=False)
    unit = "usd_per_hour" if len(workload.gpu_types) > 1 else "gpus"
    settings = settings_for(file, trace, Budget(amount=1.0, unit=unit))
    bare = tuple(replace(c, startup_hours=0.0, rescale_hours=0.0) for c in settings.problem.classes)
    load = MixedFrontier.of(replace(settings.problem, classes=bare)).cheapest_feasible_spend
    budget = Budget(amount=task.factor * load, unit=unit)
    world = WorldSettings(spot=Spot()) if task.on_spot else WorldSettings()
    return replace(settings, budget=budget, boot_seconds=task.boot_seconds, world=world), load


def run_task(task: Task) -> Outcome:
    """Run BOA and its rivals on one trace."""
    began = time.perf_counter()
    settings, load = settings_of(task)
    comparison = Comparison(shared=settings, budgets=(settings.budget,), rivals=task.rivals, seeds=task.seeds)
    rows = run_all(comparison, kept=Kept(task.scratch), processes=1, on_row=lambda _row: None)
    for row in rows:
        if row.mean_jct_hours < row.lower_bound_mean_jct_hours * (1.0 - 1e-9):
            raise SystemExit(f"{row.policy} beats the lower bound in {task.scenario}")
    return Outcome(scenario=task.scenario, load=load, rows=rows, seconds=time.perf_counter() - began)


def _word(text: str) -> str:
    """Return a name for a folder."""
    return "".join(letter if letter.isalnum() else "-" for letter in text)
