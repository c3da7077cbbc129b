"""What is compared: budgets, caps on nodes, policies, seeds; a cell is one of each, a row what it came to.

Seed 0 is the trace as it is. A higher seed draws anew and hands the trace's jobs to its arrival instants in
another order: a different trace of the same jobs, and equally loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from boa_daemon.errors import InputError
from boa_daemon.sim.boot_bound import SearchEffort
from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.traces.reader import Trace, TraceJob
from policies.model import Budget
from policies.registry import PolicyOptions, find_policy

REFERENCE = "boa"
Knob: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """What one policy came to under one budget, cap and seed. Hours and dollars, or GPUs where they count.

    `target` is what the reference spent per hour of arrivals, and `at_equal_spend` says that this run spent
    the same within the tolerance. `equal_spend_mean_jct_hours` is read off between two settings around the
    target, or is that of a run that spent less; None where every setting spends more. The bound with boots is
    None where the simulation does not say it.
    """

    policy: str
    budget: float
    max_nodes: int | None
    seed: int
    knob: Knob
    mean_jct_hours: float
    p50_jct_hours: float
    p95_jct_hours: float
    p99_jct_hours: float
    mean_usd_per_hour: float
    target_usd_per_hour: float
    at_equal_spend: bool
    equal_spend_mean_jct_hours: float | None
    lower_bound_mean_jct_hours: float
    lower_bound_with_boots_mean_jct_hours: float | None
    gpu_hours_rented: float
    gpu_hours_used: float
    gpu_hours_overhead: float
    gpu_hours_booting: float
    gpu_hours_idle: float
    rescales: int
    most_nodes: int
    runs: int

    def to_document(self) -> dict[str, Any]:
        """Return the row as JSON says it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One policy under one budget, cap and seed; `target` is the spend to meet, None for the reference."""

    policy: str
    budget: Budget
    seed: int
    max_nodes: int | None = None
    target: float | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The settings that all runs share, and what differs between them.

    `reference` is the policy whose spend the rivals are to meet; where `shared` says that beliefs are learnt,
    only the reference learns and rivals know the truth. A cap of None is that of `shared`, or none. With a
    `bound_effort` the reference's runs carry the bound that knows boots.
    """

    shared: SimulationSettings
    budgets: tuple[Budget, ...]
    rivals: tuple[str, ...]
    seeds: int = 1
    caps: tuple[int | None, ...] = (None,)
    reference: str = REFERENCE
    bound_effort: SearchEffort | None = None

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.budgets) * len(self.caps) * self.seeds * (1 + len(self.rivals))

    def references(self) -> list[Cell]:
        """Return the cells of the reference policy."""
        return [
            Cell(policy=self.reference, budget=budget, seed=seed, max_nodes=cap)
            for budget in self.budgets
            for cap in self.caps
            for seed in range(self.seeds)
        ]

    def settings(self, cell: Cell) -> SimulationSettings:
        """Return the settings of a cell, before anything is tuned."""
        return replace(
            self.shared,
            policy=cell.policy,
            budget=cell.budget,
            seed=cell.seed,
            max_nodes=self.shared.max_nodes if cell.max_nodes is None else cell.max_nodes,
            learns=self.shared.learns and cell.policy == self.reference,
            trace=reordered(self.shared.trace, cell.seed),
        )

    def settings_of_row(self, row: CellResult) -> SimulationSettings:
        """Return the settings that give a row again."""
        budget = replace(self.shared.budget, amount=row.budget)
        cell = Cell(policy=row.policy, budget=budget, seed=row.seed, max_nodes=row.max_nodes)
        return with_knob(self.settings(cell), row.knob)

    def check(self) -> None:
        """Raise what would stop a run, before any begins: budgets too small, wrong policies."""
        amounts = [budget.amount for budget in self.budgets]
        if len({budget.unit for budget in self.budgets}) > 1:
            raise InputError(
                "--budget counts dollars once and GPUs once", hint="Use one unit for all budgets"
            )
        if len(set(amounts)) < len(amounts):
            raise InputError("--budget names the same budget twice")
        if len(set(self.caps)) < len(self.caps):
            raise InputError("--max-nodes names the same cap twice")
        if len(amounts) > 1 and len(self.caps) > 1:
            raise InputError("several budgets and several caps are two sweeps", hint="Sweep one of the two")
        cells = self.references()
        for cell in cells:
            prepare(self.settings(cell))
        for rival in self.rivals:
            knob = {
                str(name): 1.0 for name in ("nodes", "gpus_per_job") if name in find_policy(rival).options
            }
            generous = replace(cells[0], policy=rival, budget=Budget(amount=1e12, unit=self.budgets[0].unit))
            prepare(with_knob(self.settings(generous), knob))


def with_knob(settings: SimulationSettings, knob: Knob) -> SimulationSettings:
    """Return the settings with a knob's values: a planning budget, and options of the policy."""
    values: dict[str, Any] = dict(knob)
    planned = values.pop("planning_budget", None)
    budget = None if planned is None else replace(settings.budget, amount=planned)
    return replace(settings, planning_budget=budget, options=PolicyOptions(**values))


def reordered(trace: Trace, seed: int) -> Trace:
    """Return the trace with its jobs in another order on its arrival instants; seed 0 changes nothing."""
    if seed == 0:
        return trace
    order = np.random.default_rng([seed, len(trace.jobs)]).permutation(len(trace.jobs)).tolist()
    return Trace(
        tuple(
            TraceJob(
                id=trace.jobs[number].id,
                arrived_at_seconds=slot.arrived_at_seconds,
                class_name=trace.jobs[number].class_name,
                scale=trace.jobs[number].scale,
            )
            for slot, number in zip(trace.jobs, order, strict=True)
        )
    )
