"""Summary of a comparison: ratios to the reference with intervals, and lower bounds.

A ratio is a rival's mean JCT over the reference's on the same jobs. Over seeds it is the geometric mean, with
Student's t interval of the logarithms. Seeds are paired, so the difficulty of a trace cancels.

    symbol   here       meaning
    n        seeds      pairs
    r_i      ratios     rival / reference, seed by seed
    t        quantile   Student's t with n - 1 degrees of freedom

    exp(mean(log r) -+ t sd(log r) / sqrt(n))
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy

from boa_daemon.lab.compare.cells import CellResult, Comparison
from boa_daemon.sim.bounds.lower_bound import lower_bounds_hours
from policies.optimum.frontier import MixedFrontier
from policies.registry import PolicyKind, find_policy
from policies.speedup import Floats

CONFIDENCE = 0.95
POINTS = 40
"""Number of spends at which the lower bounds are computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A geometric mean of paired ratios, with its 95 % interval if there are two or more pairs."""

    mean: float
    low: float | None
    high: float | None

    def to_document(self) -> dict[str, float | None]:
        """Return the ratio as JSON."""
        return {"mean": self.mean, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLine:
    """One policy under one budget and cap, over all seeds; `knobs` are the least and greatest settings."""

    policy: str
    budget: float
    max_nodes: int | None
    seeds: int
    knobs: dict[str, tuple[float, float]]
    mean_jct_hours: float
    p95_jct_hours: float
    mean_usd_per_hour: float
    target_usd_per_hour: float
    at_equal_spend: bool
    ratio: Ratio
    ratio_at_equal_spend: Ratio | None
    lower_bound_mean_jct_hours: float

    def to_document(self) -> dict[str, Any]:
        """Return the line as JSON."""
        equal = self.ratio_at_equal_spend
        return {
            "policy": self.policy,
            "budget": self.budget,
            "max_nodes": self.max_nodes,
            "seeds": self.seeds,
            "mean_jct_hours": self.mean_jct_hours,
            "p95_jct_hours": self.p95_jct_hours,
            "mean_usd_per_hour": self.mean_usd_per_hour,
            "target_usd_per_hour": self.target_usd_per_hour,
            "at_equal_spend": self.at_equal_spend,
            "ratio": self.ratio.to_document(),
            "ratio_at_equal_spend": None if equal is None else equal.to_document(),
            "lower_bound_mean_jct_hours": self.lower_bound_mean_jct_hours,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBounds:
    """Bounds at each spend: the planner's curve, and the mean JCT that no policy can beat on the trace."""

    spends: Floats
    planned_hours: Floats
    bound_hours: Floats

    def to_document(self) -> dict[str, list[float]]:
        """Return the bounds as JSON; null where a spend cannot run all jobs."""
        return {
            "spend_usd_per_hour": self.spends.tolist(),
            "planned_mean_jct_hours": self.planned_hours.tolist(),
            "lower_bound_mean_jct_hours": self.bound_hours.tolist(),
        }


_Capped = TypeVar("_Capped", CellResult, PolicyLine)
_Jobs = TypeVar("_Jobs", bound=Hashable)


def ratio_of(ratios: Sequence[float]) -> Ratio:
    """Return the geometric mean of ratios and its interval."""
    logs = np.log(ratios)
    mean, pairs = float(logs.mean()), len(ratios)
    if pairs < 2:
        return Ratio(mean=math.exp(mean), low=None, high=None)
    quantile = float(scipy.special.stdtrit(pairs - 1, 0.5 + CONFIDENCE / 2.0))
    half = quantile * float(logs.std(ddof=1)) / math.sqrt(pairs)
    return Ratio(mean=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))


def with_ratios(rows: Sequence[CellResult]) -> list[dict[str, Any]]:
    """Return the rows as JSON, each with its ratios to the reference of its cell."""
    reference = _references(rows)
    documents = []
    for row in rows:
        base = reference[row.budget, row.max_nodes, row.seed].mean_jct_hours
        equal = row.equal_spend_mean_jct_hours
        documents.append(
            row.to_document()
            | {
                "ratio": row.mean_jct_hours / base,
                "ratio_at_equal_spend": None if equal is None else equal / base,
            }
        )
    return documents


def lines_of(comparison: Comparison, rows: Sequence[CellResult]) -> list[PolicyLine]:
    """Return one line per budget, cap and policy, in the order of the command."""
    return [
        _line([row for row in at_cap(rows, cap) if (row.policy, row.budget) == (policy, budget.amount)], rows)
        for budget in comparison.budgets
        for cap in comparison.caps
        for policy in (comparison.reference, *comparison.rivals)
    ]


def at_cap(found: Sequence[_Capped], cap: int | None) -> list[_Capped]:
    """Return the rows or lines at one cap on nodes."""
    return [one for one in found if one.max_nodes == cap]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposition:
    """How much longer the best fixed fleet waits than BOA for the same money, as a product of two factors.

    `elasticity` is the waiting under the best fleet over that under the best rule that rents as needed;
    `optimisation` is the waiting under that rule over BOA's.
    """

    fleet: str
    rule: str
    total: Ratio
    elasticity: Ratio
    optimisation: Ratio

    def to_document(self) -> dict[str, Any]:
        """Return the decomposition as JSON."""
        return {
            "fleet": self.fleet,
            "rule": self.rule,
            "total": self.total.to_document(),
            "elasticity": self.elasticity.to_document(),
            "optimisation": self.optimisation.to_document(),
        }


def decompose(rows: Sequence[CellResult], lines: Sequence[PolicyLine], budget: float) -> Decomposition | None:
    """Return the gain as elasticity and optimisation; None unless a fleet and a rule were compared."""
    fleet, rule = (_best_of_kind(lines, budget, kind) for kind in ("fleet", "rule"))
    if fleet is None or rule is None:
        return None
    hours = {(row.policy, row.seed): row.paid_jct_hours for row in rows if row.budget == budget}
    return decomposition(hours, rows[0].policy, fleet.policy, rule.policy)


def decomposition(
    hours: Mapping[tuple[str, _Jobs], float], reference: str, fleet: str, rule: str
) -> Decomposition:
    """Return the gain of the reference over a fleet; `hours` is mean JCT by policy and jobs, such as a seed.

    Only jobs that all three have count.
    """
    jobs = [jobs for policy, jobs in hours if policy == reference]
    paired = [one for one in jobs if (fleet, one) in hours and (rule, one) in hours]

    def over(slower: str, faster: str) -> Ratio:
        return ratio_of([hours[slower, one] / hours[faster, one] for one in paired])

    return Decomposition(
        fleet=fleet,
        rule=rule,
        total=over(fleet, reference),
        elasticity=over(fleet, rule),
        optimisation=over(rule, reference),
    )


def _best_of_kind(lines: Sequence[PolicyLine], budget: float, kind: PolicyKind) -> PolicyLine | None:
    """Return the policy of a kind with the least waiting at the reference's spend on every seed."""
    paid = {
        line.ratio_at_equal_spend.mean: line
        for line in lines
        if line.budget == budget
        and line.ratio_at_equal_spend is not None
        and find_policy(line.policy).kind == kind
    }
    return paid[min(paid)] if paid else None


def best_rival(lines: Sequence[PolicyLine], budget: float) -> PolicyLine | None:
    """Return the fastest rival at the reference's spend; if none reaches it, the fastest of all."""
    rivals = [line for line in lines if line.budget == budget and line.policy != lines[0].policy]
    paid = [line for line in rivals if line.ratio_at_equal_spend is not None]
    if paid:
        return min(
            paid, key=lambda line: line.ratio_at_equal_spend.mean if line.ratio_at_equal_spend else 0.0
        )
    return min(rivals, key=lambda line: line.ratio.mean, default=None)


def leader(rows: Sequence[CellResult]) -> str:
    """Return a phrase on the rival with the least waiting relative to the reference, over finished cells."""
    reference = _references(rows)
    ratios: dict[str, list[float]] = {}
    for row in rows:
        base = reference.get((row.budget, row.max_nodes, row.seed))
        if base is not None and row.policy != base.policy:
            ratios.setdefault(row.policy, []).append(row.paid_jct_hours / base.mean_jct_hours)
    if not ratios:
        return ""
    policy, ratio = min(((name, ratio_of(own).mean) for name, own in ratios.items()), key=lambda one: one[1])
    return f"{policy} waits {ratio:.2f} times as long as {rows[0].policy}"


def floor_of(comparison: Comparison, rows: Sequence[CellResult]) -> LowerBounds:
    """Return the lower bounds over the rows' spends: seed 0, GPUs rented singly and without boots."""
    problem, trace = comparison.shared.problem, comparison.shared.trace
    frontier = MixedFrontier.of(problem)
    money = [row.mean_usd_per_hour for row in rows]
    spends = np.linspace(min(0.85 * min(money), frontier.cheapest_feasible_spend), 1.1 * max(money), POINTS)
    planned = frontier.mean_jct_at(spends)
    planned[spends < frontier.cheapest_feasible_spend] = np.inf
    # A single arrival has no window; its spend is per hour of the run, for which there is no bound.
    hours = trace.window_hours
    bound = (
        lower_bounds_hours(trace, problem, [spend * hours for spend in spends])
        if hours
        else [math.inf for _ in spends]
    )
    return LowerBounds(spends=spends, planned_hours=planned, bound_hours=np.array(bound))


def _references(rows: Sequence[CellResult]) -> dict[tuple[float, int | None, int], CellResult]:
    """Return the reference's rows by budget, cap and seed; a row of the reference comes first."""
    first = rows[0].policy if rows else ""
    return {(row.budget, row.max_nodes, row.seed): row for row in rows if row.policy == first}


def _line(own: Sequence[CellResult], rows: Sequence[CellResult]) -> PolicyLine:
    """Return the line of one policy under one budget and cap."""
    reference = _references(rows)
    base = [reference[row.budget, row.max_nodes, row.seed].mean_jct_hours for row in own]
    equal = [row.equal_spend_mean_jct_hours for row in own]
    paid = [hours for hours in equal if hours is not None]
    return PolicyLine(
        policy=own[0].policy,
        budget=own[0].budget,
        max_nodes=own[0].max_nodes,
        seeds=len(own),
        knobs={
            name: (min(row.knob[name] for row in own), max(row.knob[name] for row in own))
            for name in own[0].knob
        },
        mean_jct_hours=_mean([row.mean_jct_hours for row in own]),
        p95_jct_hours=_mean([row.p95_jct_hours for row in own]),
        mean_usd_per_hour=_mean([row.mean_usd_per_hour for row in own]),
        target_usd_per_hour=_mean([row.target_usd_per_hour for row in own]),
        at_equal_spend=all(row.at_equal_spend for row in own),
        ratio=ratio_of([row.mean_jct_hours / by for row, by in zip(own, base, strict=True)]),
        ratio_at_equal_spend=(
            ratio_of([hours / by for hours, by in zip(paid, base, strict=True)])
            if len(paid) == len(own)
            else None
        ),
        lower_bound_mean_jct_hours=_mean([row.lower_bound_mean_jct_hours for row in own]),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
