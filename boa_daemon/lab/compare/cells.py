"""The cells of a comparison: each is one budget, cap on nodes, policy and seed; a row is a cell's result.

Seed 0 is the trace as it is. A higher seed uses other random draws and assigns the trace's jobs to its
arrival times in another order: a different trace with the same jobs and load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from boa_daemon.errors import InputError
from boa_daemon.sim.bounds.boot_bound import SearchEffort
from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.traces.reader import Trace, TraceJob
from boa_daemon.units import PER_HOUR, Per
from policies.model import Budget
from policies.registry import PolicyOptions, find_policy

REFERENCE = "boa"
Knob: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """Result of one policy under one budget, cap and seed. Spend is in dollars, or in GPUs for such budgets.

    `target_usd_per_hour` is what the reference spent per hour of arrivals; `at_equal_spend` is whether this
    run spent the same within the tolerance. `equal_spend_mean_jct_hours` is interpolated between two settings
    around the target, or that of a run that spent less; None if every setting spends more. The bound with
    boots is None if it was not computed.
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

    @property
    def paid_jct_hours(self) -> float:
        """The mean JCT at the target's spend; that of the run if every setting spends more."""
        return self.equal_spend_mean_jct_hours or self.mean_jct_hours

    def to_document(self) -> dict[str, Any]:
        """Return the row as JSON."""
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
    """A comparison: the settings that all runs share, and the budgets, caps, rivals and seeds to run.

    `reference` is the policy whose spend the rivals must meet. If `shared.learns`, only the reference learns
    and the rivals know the true figures. A cap of None means that of `shared`, if any. With `bound_effort`
    the bound with boots is computed for the reference's runs. `per` is the unit of time in which answers say
    rates of money.
    """

    shared: SimulationSettings
    budgets: tuple[Budget, ...]
    rivals: tuple[str, ...]
    seeds: int = 1
    caps: tuple[int | None, ...] = (None,)
    reference: str = REFERENCE
    bound_effort: SearchEffort | None = None
    per: Per = PER_HOUR

    @property
    def cells(self) -> int:
        """The number of cells."""
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
        """Return the settings that reproduce a row."""
        budget = replace(self.shared.budget, amount=row.budget)
        cell = Cell(policy=row.policy, budget=budget, seed=row.seed, max_nodes=row.max_nodes)
        return with_knob(self.settings(cell), row.knob)

    def check(self) -> None:
        """Raise the errors that would stop a run, such as a too small budget, before any run begins."""
        amounts = [budget.amount for budget in self.budgets]
        if len({budget.unit for budget in self.budgets}) > 1:
            raise InputError(
                "--budget is given both in dollars and in GPUs", hint="Use one unit for all budgets"
            )
        if len(set(amounts)) < len(amounts):
            raise InputError("--budget names the same budget twice")
        if len(set(self.caps)) < len(self.caps):
            raise InputError("--max-nodes names the same cap twice")
        if len(amounts) > 1 and len(self.caps) > 1:
            raise InputError("give several budgets or several caps, not both", hint="Sweep one of the two")
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
    """Return the settings with the knob's values: a planning budget and policy options."""
    values: dict[str, Any] = dict(knob)
    planned = values.pop("planning_budget", None)
    budget = None if planned is None else replace(settings.budget, amount=planned)
    return replace(settings, planning_budget=budget, options=PolicyOptions(**values))


def reordered(trace: Trace, seed: int) -> Trace:
    """Return the trace with its jobs at its arrival times in another order; seed 0 changes nothing."""
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
