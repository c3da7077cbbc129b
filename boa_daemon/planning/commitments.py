"""Advice on commitments: for each term, the levels with the smallest bill at the same waiting.

Widths, and so waiting, stay the same; only the way of paying changes. The load is known within an interval:
levels are chosen for its likely value, and also priced at its low and high values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, TypeAlias

import numpy as np
import scipy

from boa_daemon.inputs.commitments_file import CommitmentTerms
from boa_daemon.traces.reader import Trace
from boa_daemon.units import HOURS_PER_MONTH, HOURS_PER_WEEK, SECONDS_PER_HOUR
from policies.model import InstanceType, JobClass
from policies.optimum.commitments import (
    NEARLY,
    Commitment,
    CommitmentLevels,
    LoadDistribution,
    best_levels,
    bill_of,
)

LoadAt: TypeAlias = Callable[[float], LoadDistribution]
"""Returns the load for a factor on the likely arrival rates."""
SURE = 1.96
"""Standard deviations on each side of a 95 % interval."""
LEAST_WEEKS = 4
"""Least whole weeks of a trace from which the variation between weeks is estimated."""
LATE = 0.9
"""A commitment that breaks even only after this fraction of its term gets a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadInterval:
    """An interval of factors on the likely load; a 95 % interval if a trace gives it."""

    low: float
    high: float

    @classmethod
    def of_trace(cls, trace: Trace, classes: Sequence[JobClass]) -> LoadInterval:
        """Return the 95 % interval of the arriving work, as a compound Poisson sum of random arrivals.

        If whole weeks differ more than that, Student's t interval of the weekly mean is returned.
        """
        sizes = {c.name: sum(phase.size_gpu_hours for phase in c.phases) for c in classes}
        work = np.array([job.scale * sizes[job.class_name] for job in trace.jobs])
        half = SURE * float(np.sqrt(work @ work) / work.sum())
        count = int(trace.window_hours // HOURS_PER_WEEK)
        if count >= LEAST_WEEKS:
            hours = np.array([job.arrived_at_seconds for job in trace.jobs]) / SECONDS_PER_HOUR
            week = ((hours - hours[0]) // HOURS_PER_WEEK).astype(np.int64)
            weeks = np.bincount(week, weights=work)[:count]
            sure = float(scipy.stats.t.ppf(0.975, count - 1))
            half = max(half, sure * float(weeks.std(ddof=1) / weeks.mean()) / sqrt(count))
        return cls(low=max(1.0 - half, 0.0), high=1.0 + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCase:
    """The bills per hour at one load: on demand, with the advice, and with the best levels for that load."""

    name: str
    factor: float
    mean_gpus: float
    on_demand: float
    advised: float
    best: CommitmentLevels

    @property
    def saved_fraction(self) -> float:
        """Fraction of the bill that the advice saves; negative if it costs more."""
        return 1.0 - self.advised / self.on_demand if self.on_demand > 0.0 else 0.0

    def to_document(self) -> dict[str, Any]:
        """Return the case as JSON."""
        return {
            "load_factor": self.factor,
            "mean_gpus": self.mean_gpus,
            "on_demand_usd_per_hour": self.on_demand,
            "advised_usd_per_hour": self.advised,
            "saved_fraction": self.saved_fraction,
            "best_committed_usd_per_hour": self.best.bill.committed,
            "best_usd_per_hour": self.best.bill.total,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentLine:
    """One advised commitment; `gpus` is None if it covers several types."""

    terms: CommitmentTerms
    commitment: Commitment
    gpu_types: tuple[str, ...]
    usd_per_hour: float
    gpus: float | None
    instances: int | None
    break_even_use: float
    used_fraction: float

    def to_document(self) -> dict[str, Any]:
        """Return the line as JSON."""
        return {
            "offer": self.terms.name,
            "kind": self.terms.kind,
            "gpu_types": list(self.gpu_types),
            "usd_per_hour": self.usd_per_hour,
            "gpus": self.gpus,
            "instances": self.instances,
            "break_even_use_fraction": self.break_even_use,
            "used_fraction": self.used_fraction,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TermAdvice:
    """The advised commitments of one term, with the bills at low, likely and high load."""

    term_years: int
    lines: tuple[CommitmentLine, ...]
    low: LoadCase
    likely: LoadCase
    high: LoadCase

    @property
    def paid_after_months(self) -> float:
        """Months that the load must last until the whole term's commitment costs no more than on demand."""
        committed = self.likely.best.bill.committed
        saved = self.likely.on_demand - self.likely.advised
        months = 12.0 * self.term_years
        # After that month the remaining commitment is paid in full without being used.
        return months * committed / (saved + committed) if committed > 0.0 else 0.0

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings: why the commitment is risky."""
        if not self.lines:
            return ()
        found = []
        more = HOURS_PER_MONTH * (self.low.advised - self.low.on_demand)
        if more > NEARLY * self.likely.on_demand:
            found.append(
                f"This is a bet: at {self.low.factor:.0%} of the likely load, which its interval allows, it "
                f"costs ${more:,.0f} a month more than on demand."
            )
        months = 12 * self.term_years
        if self.paid_after_months > LATE * months:
            found.append(
                "This is a bet on the whole term: if the work ends before month "
                f"{self.paid_after_months:.1f} of {months}, on demand is cheaper."
            )
        return tuple(found)

    def to_document(self) -> dict[str, Any]:
        """Return the advice as JSON."""
        return {
            "term_years": self.term_years,
            "commitments": [line.to_document() for line in self.lines],
            "committed_usd_per_hour": self.likely.best.bill.committed,
            "saved_fraction": self.likely.saved_fraction,
            "saved_usd_per_month": HOURS_PER_MONTH * (self.likely.on_demand - self.likely.advised),
            "lower_bound_usd_per_hour": self.likely.best.bound,
            "paid_after_months": self.paid_after_months,
            "low": self.low.to_document(),
            "likely": self.likely.to_document(),
            "high": self.high.to_document(),
            "warnings": list(self.warnings),
        }


def choices(
    offers: Sequence[CommitmentTerms], machines: Sequence[InstanceType]
) -> list[tuple[CommitmentTerms, Commitment]]:
    """Return offers to combine: the cheapest for each GPU type alone, and the cheapest for all types.

    A family offer with several GPU types is treated as one offer for each of them.
    """
    found: dict[object, tuple[CommitmentTerms, Commitment]] = {}
    for terms in offers:
        whole = terms.on(machines)
        if whole is None:
            continue
        parts: list[Commitment] = [whole]
        if whole.is_broad and terms.kind == "family":
            parts = [_only(whole, g) for g, rate in enumerate(whole.rates) if rate is not None]
        for part in parts:
            covered = tuple(g for g, rate in enumerate(part.rates) if rate is not None)
            scope = "all" if part.is_broad else covered[0]
            before = found.get(scope)
            if before is None or _mean_rate(part, machines) < _mean_rate(before[1], machines):
                found[scope] = (terms, part)
    return list(found.values())


def _only(commitment: Commitment, place: int) -> Commitment:
    """Return the commitment limited to one of its types."""
    rates = tuple(rate if g == place else None for g, rate in enumerate(commitment.rates))
    return Commitment(name=commitment.name, rates=rates, step=commitment.step)


def _mean_rate(commitment: Commitment, machines: Sequence[InstanceType]) -> float:
    """Return the mean of rate over price, over the covered types."""
    parts = [
        rate / machine.usd_per_gpu_hour
        for rate, machine in zip(commitment.rates, machines, strict=True)
        if rate is not None
    ]
    return sum(parts) / len(parts)


def advise(
    load_at: LoadAt,
    interval: LoadInterval,
    machines: Sequence[InstanceType],
    offers: Sequence[CommitmentTerms],
) -> tuple[TermAdvice, ...]:
    """Return the best commitments of each offered term, shortest term first."""
    prices = [machine.usd_per_gpu_hour for machine in machines]
    loads = {"low": interval.low, "likely": 1.0, "high": interval.high}
    found = []
    for years in sorted({terms.term_years for terms in offers}):
        pairs = choices([terms for terms in offers if terms.term_years == years], machines)
        commitments = [commitment for _, commitment in pairs]
        chosen = best_levels(load_at(1.0), prices, commitments)
        cases = {}
        for name, factor in loads.items():
            load = load_at(factor)
            cases[name] = LoadCase(
                name=name,
                factor=factor,
                mean_gpus=float(load.mean_gpus.sum()),
                on_demand=bill_of(load, prices, (), ()).total,
                advised=bill_of(load, prices, commitments, chosen.levels).total,
                best=chosen if name == "likely" else best_levels(load, prices, commitments),
            )
        found.append(TermAdvice(term_years=years, lines=_lines(pairs, chosen, machines), **cases))
    return tuple(found)


def _lines(
    pairs: Sequence[tuple[CommitmentTerms, Commitment]],
    chosen: CommitmentLevels,
    machines: Sequence[InstanceType],
) -> tuple[CommitmentLine, ...]:
    """Return a line for each commitment with a level above zero."""
    found = []
    for (terms, commitment), level, used in zip(pairs, chosen.levels, chosen.bill.used, strict=True):
        if level <= 1e-9:
            continue
        covered = [(g, rate) for g, rate in enumerate(commitment.rates) if rate is not None]
        rate = covered[0][1]
        found.append(
            CommitmentLine(
                terms=terms,
                commitment=commitment,
                gpu_types=tuple(machines[g].gpu_type for g, _ in covered),
                usd_per_hour=level,
                gpus=None if commitment.is_broad else level / rate,
                instances=round(level / commitment.step) if commitment.step else None,
                break_even_use=max(rate / machines[g].usd_per_gpu_hour for g, rate in covered),
                used_fraction=used / level,
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceBacktest:
    """The bill of a later period under levels advised from an earlier one, and under the best levels."""

    term_years: int
    advised_usd_per_hour: float
    best_usd_per_hour: float
    on_demand: float
    advised: float
    best: float

    @property
    def saved_fraction(self) -> float:
        """Fraction of the bill that the advice saved; negative if it cost more."""
        return 1.0 - self.advised / self.on_demand if self.on_demand else 0.0

    @property
    def share_of_best(self) -> float | None:
        """The saving as a fraction of the best levels' saving; None if those save nothing."""
        most = self.on_demand - self.best
        return (self.on_demand - self.advised) / most if most > NEARLY * self.on_demand else None

    @property
    def sentence(self) -> str:
        """The result of the advice in the later period; the caller puts the subject before it."""
        if self.saved_fraction < -NEARLY:
            found = f"costs {-self.saved_fraction:.1%} more than on demand in the rest"
            best = 1.0 - self.best / self.on_demand
            return (
                f"{found}, where the best in hindsight saves {best:.1%}: it bets that the load stays the same"
            )
        found = f"saves {self.saved_fraction:.1%} of the bill in the rest"
        if self.share_of_best is None:
            return f"{found}, where nothing could be saved"
        return f"{found}: {self.share_of_best:.0%} of what the best in hindsight saves"

    def to_document(self) -> dict[str, Any]:
        """Return the backtest as JSON."""
        return {
            "term_years": self.term_years,
            "advised_committed_usd_per_hour": self.advised_usd_per_hour,
            "best_committed_usd_per_hour": self.best_usd_per_hour,
            "on_demand_usd_per_hour": self.on_demand,
            "advised_usd_per_hour": self.advised,
            "best_usd_per_hour": self.best,
            "saved_fraction": self.saved_fraction,
            "share_of_best_saving": self.share_of_best,
        }


def backtests(
    advised_from: LoadDistribution,
    held_out: LoadDistribution,
    machines: Sequence[InstanceType],
    offers: Sequence[CommitmentTerms],
) -> tuple[AdviceBacktest, ...]:
    """Return, for each term, the bill of the `held_out` load under levels advised from another load."""
    prices = [machine.usd_per_gpu_hour for machine in machines]
    found = []
    for years in sorted({terms.term_years for terms in offers}):
        pairs = choices([terms for terms in offers if terms.term_years == years], machines)
        commitments = [commitment for _, commitment in pairs]
        chosen = best_levels(advised_from, prices, commitments)
        best = best_levels(held_out, prices, commitments)
        found.append(
            AdviceBacktest(
                term_years=years,
                advised_usd_per_hour=chosen.bill.committed,
                best_usd_per_hour=best.bill.committed,
                on_demand=bill_of(held_out, prices, (), ()).total,
                advised=bill_of(held_out, prices, commitments, chosen.levels).total,
                best=best.bill.total,
            )
        )
    return tuple(found)
