"""One trace of a scenario: its settings, its runs and its outcome."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path

from scenarios import AT_CAPS, CAP_PARTS, TUNED, Scenario, Source

from boa_daemon.comparing.cells import Cell, CellResult, Comparison
from boa_daemon.comparing.run_cells import rival_cells
from boa_daemon.comparing.study_worlds import wrong_by_class
from boa_daemon.comparing.tasks import Tasks
from boa_daemon.comparing.tune import run_cell
from boa_daemon.errors import BoaError
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.sim.boot_bound import SearchEffort
from boa_daemon.sim.wiring import SimulationSettings, settings_for
from boa_daemon.sim.world_settings import Spot, WorldSettings, WrongBeliefs
from boa_daemon.traces.importers import import_source
from boa_daemon.traces.reader import read_trace
from boa_daemon.traces.writer import write_workload
from policies.errors import PolicyError
from policies.model import Budget
from policies.optimum.frontier import MixedFrontier

EFFORT = SearchEffort(steps=12)
"""The search effort for the bound with boots; fewer steps give a slightly lower bound that still holds."""
DAEMON = "boa-paced"
"""The policy that `boa daemon` runs."""
LEARNT, TRUTH, WRONG = "learnt", "told the truth", "stated wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One trace of a scenario."""

    scenario: Scenario
    source: Source
    data: Path
    scratch: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A cell that ended in an error, and its message."""

    what: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AtCap:
    """The results of all policies at a cap; the cap is a part of the nodes that the tuned plan wants."""

    part: float
    factor: float
    rows: Sequence[CellResult]


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The results of a task. `told` has the daemon's rows by its beliefs at the start."""

    scenario: Scenario
    load: float
    node_usd_per_hour: float
    rows: list[CellResult] = field(default_factory=list)
    told: dict[str, list[CellResult]] = field(default_factory=dict)
    caps: list[AtCap] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0


def tasks_of(scenario: Scenario, data: Path, scratch: Path) -> list[Task]:
    """Return a task per trace."""
    return [
        Task(
            scenario=scenario,
            source=source,
            data=data,
            scratch=scratch / f"{_word(scenario.name)}-{number}",
        )
        for number, source in enumerate(scenario.sources)
    ]


def settings_of(task: Task) -> tuple[SimulationSettings, float]:
    """Return a task's settings at its budget, and the load. A single GPU type is counted in GPUs."""
    source, types = task.source, task.scenario.gpu_types
    profiles = task.data / source.profiles if source.profiles else None
    workload = import_source(source.kind, task.data / source.path, replace(source.options, profiles=profiles))
    if types:
        workload = replace(
            workload,
            gpu_types={name: workload.gpu_types[name] for name in types},
            classes=tuple(
                replace(
                    c,
                    phases=tuple(
                        replace(p, speedups={n: p.speedups[n] for n in types if n in p.speedups})
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
    budget = Budget(amount=task.scenario.factor * load, unit=unit)
    world = WorldSettings(spot=Spot()) if task.scenario.on_spot else WorldSettings()
    return replace(settings, budget=budget, boot_seconds=task.scenario.boot_seconds, world=world), load


def run_task(task: Task, tasks: Tasks) -> Outcome:
    """Run the daemon's policy with its beliefs, and its rivals, on one trace."""
    began = time.perf_counter()
    scenario = task.scenario
    settings, load = settings_of(task)
    node = min(kind.usd_per_hour for kind in settings.instance_types.values())
    outcome = Outcome(scenario=scenario, load=load, node_usd_per_hour=node)
    learning = Comparison(
        shared=replace(settings, learns=True),
        budgets=(settings.budget,),
        rivals=scenario.rivals,
        seeds=scenario.seeds,
        reference=DAEMON,
        bound_effort=None if scenario.on_spot else EFFORT,
    )
    outcome.rows = _rows(learning, tasks, outcome, scenario.column)
    outcome.told[LEARNT] = [row for row in outcome.rows if row.policy == DAEMON]
    names = [job_class.name for job_class in settings.problem.classes]
    for told, learns, beliefs in (
        (TRUTH, False, WrongBeliefs()),
        (WRONG, True, wrong_by_class(names)),
    ):
        shared = replace(settings, learns=learns, world=replace(settings.world, beliefs=beliefs))
        alone = replace(learning, shared=shared, rivals=(), bound_effort=None)
        outcome.told[told] = _rows(alone, tasks, outcome, f"{scenario.column}, {told}")
    wished = [row.most_nodes for row in outcome.rows if row.policy == TUNED and row.seed == 0]
    is_capped = wished and task.source in scenario.sources[-scenario.capped_sources :]
    for factor in scenario.cap_factors if is_capped else ():
        for part in CAP_PARTS:
            cap = max(1, ceil(part * wished[0]))
            capped = replace(
                learning,
                budgets=(replace(settings.budget, amount=factor * load),),
                rivals=AT_CAPS,
                caps=(cap,),
                seeds=1,
                bound_effort=None,
            )
            rows = _rows(capped, tasks, outcome, f"{scenario.column}, at most {cap} nodes")
            outcome.caps.append(AtCap(part=part, factor=factor, rows=rows))
    outcome.seconds = time.perf_counter() - began
    return outcome


def _rows(comparison: Comparison, tasks: Tasks, outcome: Outcome, what: str) -> list[CellResult]:
    """Return the rows of all cells, each reference before its rivals; note errors in `outcome`."""

    def row_of(cell: Cell) -> CellResult | Failure:
        try:
            return run_cell(comparison, cell, tasks)
        except (BoaError, PolicyError) as error:
            return Failure(what=f"{what}: {cell.policy}, seed {cell.seed}", words=str(error))

    def rivals(cell: Cell, row: CellResult | Failure) -> list[Cell]:
        return rival_cells(comparison, cell, row) if isinstance(row, CellResult) else []

    found = dict(tasks.each(row_of, comparison.references(), then=rivals))
    rows = []
    for reference in comparison.references():
        for cell in (reference, *rivals(reference, found[reference])):
            row = found[cell]
            if isinstance(row, Failure):
                outcome.failures.append(row)
                continue
            rows.append(row)
            bound = max(row.lower_bound_mean_jct_hours, row.lower_bound_with_boots_mean_jct_hours or 0.0)
            if row.mean_jct_hours < bound * (1.0 - 1e-9):
                words = f"its mean JCT {row.mean_jct_hours:.4f} h beats the bound {bound:.4f} h"
                outcome.failures.append(Failure(what=f"{what}: {cell.policy}, seed {cell.seed}", words=words))
    return rows


def _word(text: str) -> str:
    """Return a folder name for a text."""
    return "".join(letter if letter.isalnum() else "-" for letter in text)
