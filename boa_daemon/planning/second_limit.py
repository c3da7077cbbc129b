"""A limit beside the budget: the least waiting under both, and what more money buys under the limit.

A cap in dollars that is spent every day, or every hour, is a budget of its own. A limit of N nodes holds on
average too: a GPU of a machine with g of them takes a g-th of a node. For any p between 0 and 1, a plan
within a budget B and N nodes takes at most B of the mean (1 - p) dollars + p (B / N) nodes. So the least
waiting for B in these prices is a lower bound of that within both, and the largest over p is the best one;
p = 0 is the plan without the limit, and p = 1 the nodes alone.

Cost: one curve for each price.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from boa_daemon.errors import InputError
from boa_daemon.planning.curve import Curve
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.units import HOURS_PER_DAY, HOURS_PER_MONTH
from policies.model import InstanceType, Problem
from policies.optimum.swing import swings

SLACK = 1e-3
"""A limit that makes jobs wait longer by a smaller share than this does not bind."""
SHORT = 0.01
"""Nor does one that is too low for a smaller fraction of the time."""
PARTS = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 1.0)
"""Parts of the cost that nodes are, where the budget is that of all nodes; the rest are the dollars."""
ROUNDS = 3
"""How often the best of them is searched more finely between its neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLimit:
    """A limit under which jobs wait longer than in the plan; hours are the weighted mean JCT.

    `mean_jct_hours` is the least under the budget and the limit, and `floor_mean_jct_hours` under the limit
    and any money; None where the limit allows less than the jobs need. `spend` is what a cap in dollars
    leaves to jobs per hour, in the budget's unit; None for nodes. `mean_spend` is that of the plan with the
    least waiting; None without one. `short_fraction` is the fraction of the time for which the plan without
    the limit needs more nodes, perfectly packed; None for dollars.
    """

    setting: str
    spend: float | None
    mean_jct_hours: float | None
    floor_mean_jct_hours: float | None
    without_mean_jct_hours: float
    mean_spend: float | None
    short_fraction: float | None = None

    @property
    def binds(self) -> bool:
        """Whether jobs wait longer under it, on average or when many are there at once."""
        longer = _or_endless(self.mean_jct_hours) > self.without_mean_jct_hours * (1.0 + SLACK)
        return longer or (self.short_fraction or 0.0) > SHORT

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits beside a budget: most nodes at once on machines by GPU type, and dollars by setting."""

    nodes: int | None = None
    nodes_setting: str = "max_instances = "
    machines: Mapping[str, InstanceType]
    spends: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.nodes is not None and not self.machines:
            hint = "Add gpu_types: {a100: {instance_type: p4d.24xlarge}}"
            raise InputError(f"{self.nodes_setting}{self.nodes} needs machines", hint=hint)

    def binding(self, curve: Curve, budget: float) -> SecondLimit | None:
        """Return the limit under which jobs wait longest, where they wait longer than in the plan."""
        if budget < curve.cheapest:
            return None
        without = _hours(curve, budget)
        assert without is not None
        found = [
            SecondLimit(
                setting=setting,
                spend=spend,
                mean_jct_hours=(hours := _hours(curve, min(spend, budget))),
                floor_mean_jct_hours=hours,
                without_mean_jct_hours=without,
                mean_spend=None if hours is None else min(spend, budget, curve.largest_useful),
            )
            for setting, spend in self.spends
        ]
        if self.nodes is not None:
            problem, machines = curve.problem, self.machines
            hours, spend = within(problem, machines, budget, self.nodes) or (None, None)
            found.append(
                SecondLimit(
                    setting=f"{self.nodes_setting}{self.nodes}",
                    spend=None,
                    mean_jct_hours=hours,
                    floor_mean_jct_hours=_hours(_priced(problem, machines, 0.0, 1.0), self.nodes),
                    without_mean_jct_hours=without,
                    mean_spend=spend,
                    short_fraction=short_fraction(curve, machines, budget, self.nodes),
                )
            )
        binding = [one for one in found if one.binds]
        return max(binding, key=lambda one: _or_endless(one.mean_jct_hours), default=None)


def within(
    problem: Problem, machines: Mapping[str, InstanceType], budget: float, nodes: int
) -> tuple[float, float] | None:
    """Return a lower bound of the mean JCT within a budget and a number of nodes, and what its plan spends.

    None if no plan is within both.
    """
    bounds: dict[float, tuple[float, Curve]] = {}
    for _ in range(ROUNDS + 1):
        for part in _between(bounds) if bounds else PARTS:
            dollar, node = 1.0 - part, part * budget / nodes
            curve = _priced(problem, machines, dollar, node)
            if (hours := _hours(curve, budget)) is None:
                return None
            bounds[part] = hours, curve
    hours, curve = max(bounds.values(), key=lambda one: one[0])
    solution = curve.solution_at(max(budget, curve.cheapest))
    gpus = {one.gpu_type: one.mean_gpus for one in swings(curve.problem, solution)}
    spend = math.fsum(problem.price_of(kind) * mean for kind, mean in gpus.items())
    return hours, min(spend, budget)


def short_fraction(curve: Curve, machines: Mapping[str, InstanceType], budget: float, nodes: int) -> float:
    """Return the fraction of the time for which the plan needs more nodes than so many, perfectly packed."""
    chances = np.ones(1)
    for swing in swings(curve.problem, curve.solution_at(min(budget, curve.largest_useful))):
        gpus = swing.least_gpus + np.arange(len(swing.probability))
        needed = -(-gpus // machines[swing.gpu_type].gpus)
        chances = np.convolve(chances, np.bincount(needed, weights=swing.probability))[: nodes + 1]
    return float(min(max(1.0 - chances.sum(), 0.0), 1.0))


def _between(bounds: Mapping[float, tuple[float, Curve]]) -> tuple[float, ...]:
    """Return parts between the best one and its neighbours."""
    parts = sorted(bounds)
    at = max(range(len(parts)), key=lambda number: bounds[parts[number]][0])
    ends = (parts[max(at - 1, 0)], parts[min(at + 1, len(parts) - 1)])
    return tuple(parts[at] + share * (end - parts[at]) for end in ends for share in (1 / 3, 2 / 3))


def spends_of(caps: Caps, *, covered_per_hour: float = 0.0) -> tuple[tuple[str, float], ...]:
    """Return what each cap in dollars leaves to jobs per hour, without what the site costs beside them.

    `covered_per_hour` is the usage that commitments pay for, less their price.
    """
    hours = {
        "usd_per_day_cap": (caps.usd_per_day, HOURS_PER_DAY),
        "usd_per_month_cap": (caps.usd_per_month, HOURS_PER_MONTH),
        "usd_per_hour_ceiling": (caps.usd_per_hour, 1.0),
    }
    beside = covered_per_hour - caps.standing_usd_per_hour
    return tuple(
        (f"{name} = {cap:.12g}", max(cap / length + beside, 0.0))
        for name, (cap, length) in hours.items()
        if cap is not None
    )


def _priced(problem: Problem, machines: Mapping[str, InstanceType], dollar: float, node: float) -> Curve:
    """Return the curve where a dollar, and a node for an hour, count so much."""
    kinds = tuple(
        replace(
            kind,
            usd_per_gpu_hour=dollar * problem.price_of(kind.name) + node / machines[kind.name].gpus,
        )
        for kind in problem.gpu_types
    )
    return Curve.of(replace(problem, budget_unit="usd_per_hour", gpu_types=kinds), "integer-mixed")


def _hours(curve: Curve, budget: float) -> float | None:
    """Return the least mean JCT at a budget; None below the cheapest one."""
    if budget < curve.cheapest * (1.0 - 1e-9):
        return None
    spend = min(max(budget, curve.cheapest), curve.largest_useful)
    return float(curve.weighted_hours_at(np.array([spend]))[0])


def _or_endless(hours: float | None) -> float:
    return float("inf") if hours is None else hours
