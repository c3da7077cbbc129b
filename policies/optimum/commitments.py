"""Commitments: the levels of prepaid usage at a lower rate that give the least bill for a load.

The load is a distribution of the GPUs of each type that are held, by share of the time. A commitment to a
level of L dollars per hour is paid whether used or not, and pays for usage at its own rate q instead of the
price p. With one commitment and one type the bill q c + p E[(K - c)+] is least at the newsvendor's quantile,
the least c with P(K > c) <= q / p. Several commitments are used in the cloud's order: those for one type
first, then those for all types, starting with the type with the largest discount. The bill is convex in the
levels, so cutting planes find its minimum, with a lower bound; where levels come in whole steps, an integer
programme over the same cuts finds the best whole steps, with a bound on all of them.

    symbol   here       meaning
    K        gpus       GPUs held, by state and type
    p, q     prices     price of a GPU-hour on demand; under a commitment: `rates`
    L        levels     dollars per hour committed

Cost: O(states x types) for a bill; each cut needs one bill and one small linear programme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import scipy

from policies.errors import InvalidProblem
from policies.optimum.swing import Swing
from policies.speedup import Floats

MOST_STATES = 200_000
"""Most joint states of several types; with more, neighbouring counts of a type are merged."""
NEARLY = 1e-7
"""A bill within this relative distance of the bound counts as the least."""
MOST_CUTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadDistribution:
    """`gpus[s, g]` GPUs of type g are held for `share[s]` of the time; the shares add up to 1."""

    gpu_types: tuple[str, ...]
    gpus: Floats
    share: Floats

    def __post_init__(self) -> None:
        if self.gpus.shape != (len(self.share), len(self.gpu_types)) or not len(self.share):
            raise InvalidProblem("a load has one share for each state and one column for each GPU type")
        if np.any(self.gpus < 0.0) or np.any(self.share < 0.0) or not np.isclose(self.share.sum(), 1.0):
            raise InvalidProblem("a load has GPUs of zero or more, and shares that add up to 1")

    @property
    def mean_gpus(self) -> Floats:
        """GPUs of each type held on average, shape (types,)."""
        return np.asarray(self.share @ self.gpus, dtype=float)

    def times(self, factor: float) -> LoadDistribution:
        """Return the load with every GPU count multiplied by `factor`."""
        return replace(self, gpus=self.gpus * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """Prepaid usage of GPU types at its own `rates`, dollars per GPU-hour; None for types not covered.

    A level must be a whole multiple of `step` dollars per hour (the price of an instance); 0 for any level.
    """

    name: str
    rates: tuple[float | None, ...]
    step: float = 0.0

    def __post_init__(self) -> None:
        if not any(rate is not None for rate in self.rates):
            raise InvalidProblem(f"{self.name} covers no GPU type")
        if any(rate is not None and rate <= 0.0 for rate in self.rates):
            raise InvalidProblem(f"{self.name}: a rate is more than zero")

    @property
    def is_broad(self) -> bool:
        """Whether it covers more than one type; it is then used after those that cover one."""
        return sum(rate is not None for rate in self.rates) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Mean dollars per hour, committed and on demand; `used` is the used part of each level.

    `left` is the load that no commitment pays for.
    """

    committed: float
    on_demand: float
    used: tuple[float, ...]
    left: LoadDistribution

    @property
    def total(self) -> float:
        """Committed and on-demand dollars per hour together."""
        return self.committed + self.on_demand


def load_of_swings(swings: Sequence[Swing], *, factor: float = 1.0) -> LoadDistribution:
    """Return the load of a plan whose jobs come `factor` times as often.

    Counts of jobs on different types are independent, so shares multiply. If there are too many combinations,
    neighbouring counts are merged at their mean.
    """
    most = max(2, int(MOST_STATES ** (1.0 / len(swings))))
    parts = [_thinned(s if factor == 1.0 else s.at_rates_times(factor), most) for s in swings]
    grids = np.meshgrid(*(counts for counts, _ in parts), indexing="ij")
    share = parts[0][1]
    for _, more in parts[1:]:
        share = np.multiply.outer(share, more)
    flat = share.ravel()
    kept = flat > 0.0
    return LoadDistribution(
        gpu_types=tuple(s.gpu_type for s in swings),
        gpus=np.stack([grid.ravel()[kept] for grid in grids], axis=1),
        share=flat[kept] / flat[kept].sum(),
    )


def _thinned(swing: Swing, most: int) -> tuple[Floats, Floats]:
    """Return at most `most` counts of GPUs and their shares."""
    counts = swing.least_gpus + np.arange(len(swing.probability), dtype=float)
    seen = swing.probability > 1e-13
    counts, share = counts[seen], swing.probability[seen]
    each = ceil(len(counts) / most)
    if each > 1:
        starts = np.arange(0, len(counts), each)
        sums = np.add.reduceat(share, starts)
        counts, share = np.add.reduceat(share * counts, starts) / sums, sums
    return counts, share


def bill_of(
    load: LoadDistribution,
    prices: Sequence[float],
    commitments: Sequence[Commitment],
    levels: Sequence[float],
) -> Bill:
    """Return the bill of a load under commitments; `prices` and `levels` are dollars per hour."""
    found, _ = _bill(load, prices, commitments, np.asarray(levels, dtype=float))
    return found


def _bill(
    load: LoadDistribution, prices: Sequence[float], commitments: Sequence[Commitment], levels: Floats
) -> tuple[Bill, Floats]:
    """Return the bill, and its derivative by each level."""
    left = load.gpus.astype(float).copy()
    used = np.zeros(len(commitments))
    narrow = [n for n, found in enumerate(commitments) if not found.is_broad]
    broad = [n for n, found in enumerate(commitments) if found.is_broad]
    for n in narrow:
        ((g, rate),) = _covered(commitments[n])
        taken = np.minimum(left[:, g], levels[n] / rate)
        left[:, g] -= taken
        used[n] = rate * float(load.share @ taken)
    took: dict[int, dict[int, Floats]] = {}
    for n in broad:
        dollars = np.full(len(load.share), levels[n])
        took[n] = {}
        for g, rate in _by_discount(commitments[n], prices):
            taken = np.minimum(left[:, g], dollars / rate)
            left[:, g] -= taken
            # Rounding must not make the rest negative.
            dollars = np.maximum(dollars - taken * rate, 0.0)
            took[n][g] = taken
        used[n] = levels[n] - float(load.share @ dollars)
    # `worth`: the value in each state of one more GPU covered by a narrow commitment, computed backwards.
    worth = np.where(left > 0.0, np.asarray(prices, dtype=float), 0.0)
    slope = np.ones(len(commitments))
    for n in reversed(broad):
        found = _covered(commitments[n])
        dollar = np.max([worth[:, g] / rate for g, rate in found], axis=0)
        slope[n] -= float(load.share @ dollar)
        for g, rate in found:
            # At most the GPU's price: where rounding leaves a trace of a GPU, `dollar` is that of another.
            freed = np.minimum(rate * dollar, prices[g])
            worth[:, g] = np.maximum(worth[:, g], np.where(took[n][g] > 0.0, freed, 0.0))
    for n in narrow:
        ((g, rate),) = _covered(commitments[n])
        slope[n] -= float(load.share @ worth[:, g]) / rate
    on_demand = float(load.share @ left @ np.asarray(prices, dtype=float))
    bill = Bill(
        committed=float(levels.sum()),
        on_demand=on_demand,
        used=tuple(map(float, used)),
        left=replace(load, gpus=left),
    )
    return bill, slope


def _covered(commitment: Commitment) -> list[tuple[int, float]]:
    """Return (type, rate) of each covered type."""
    return [(g, rate) for g, rate in enumerate(commitment.rates) if rate is not None]


def _by_discount(commitment: Commitment, prices: Sequence[float]) -> list[tuple[int, float]]:
    """Return (type, rate) of each covered type, the largest discount first."""
    return sorted(_covered(commitment), key=lambda found: -prices[found[0]] / found[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentLevels:
    """The levels with the least bill; no levels have a bill below `bound`."""

    levels: tuple[float, ...]
    bill: Bill
    bound: float


def best_levels(
    load: LoadDistribution, prices: Sequence[float], commitments: Sequence[Commitment]
) -> CommitmentLevels:
    """Return the levels with the least bill, in whole steps for commitments that have steps.

    Raises:
        InvalidProblem: when more than one commitment covers several types, or two cover only the same type;
            pass only the cheapest of these.
    """
    _check(commitments)
    if not commitments:
        bill = bill_of(load, prices, (), ())
        return CommitmentLevels(levels=(), bill=bill, bound=bill.total)
    most = np.array([sum(load.gpus[:, g].max() * rate for g, rate in _covered(c)) for c in commitments])
    at = np.array([_alone(load, prices, found) for found in commitments])
    # Start with a level of zero for a broad commitment if there are others.
    at[[c.is_broad and len(commitments) > 1 for c in commitments]] = 0.0
    best, least, bound = at, np.inf, 0.0
    above: list[float] = []
    rows: list[list[float]] = []
    for _ in range(MOST_CUTS):  # pragma: no branch  It converges long before.
        bill, slope = _bill(load, prices, commitments, at)
        if bill.total < least:
            best, least = at, bill.total
        rows.append([*slope, -1.0])
        above.append(float(slope @ at) - bill.total)
        cut = scipy.optimize.linprog(
            [*np.zeros(len(most)), 1.0],
            A_ub=np.array(rows),
            b_ub=np.array(above),
            bounds=[*((0.0, float(top)) for top in most), (0.0, None)],
        )
        if cut.x is None:  # pragma: no cover  Every level within its box is feasible.
            break
        bound = max(bound, float(cut.x[-1]))
        if least - bound <= NEARLY * least:
            break
        at = np.clip(cut.x[:-1], 0.0, most)
    if not any(c.step for c in commitments):
        levels = tuple(map(float, best))
        return CommitmentLevels(levels=levels, bill=bill_of(load, prices, commitments, levels), bound=bound)
    return _in_whole_steps(load, prices, commitments, _Cuts(rows=rows, above=above, most=most, start=best))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cuts:
    """Cuts `rows` x <= `above` of the bill, the levels' box from 0 to `most`, and the least bill's levels."""

    rows: list[list[float]]
    above: list[float]
    most: Floats
    start: Floats


def _in_whole_steps(
    load: LoadDistribution, prices: Sequence[float], commitments: Sequence[Commitment], cuts: _Cuts
) -> CommitmentLevels:
    """Return the levels with the least bill in whole steps, by cutting planes over whole numbers of steps.

    The bill is convex, so every cut bounds it from below at every level, and the integer programme over the
    cuts bounds all whole steps. Its answer is priced and cut again, until the best bill meets the bound.
    """
    steps = np.array([c.step or 1.0 for c in commitments])
    is_whole = np.array([bool(c.step) for c in commitments])
    tops = np.where(is_whole, np.ceil(cuts.most / steps - 1e-9), cuts.most / steps)
    rows, above = list(cuts.rows), list(cuts.above)
    best = np.where(is_whole, np.round(cuts.start / steps), cuts.start / steps)
    least, bound = np.inf, 0.0
    at = best
    for _ in range(MOST_CUTS):
        bill, slope = _bill(load, prices, commitments, at * steps)
        if bill.total < least:
            best, least = at, bill.total
        if least - bound <= NEARLY * least:
            break
        rows.append([*slope, -1.0])
        above.append(float(slope @ (at * steps)) - bill.total)
        found = scipy.optimize.milp(
            [*np.zeros(len(steps)), 1.0],
            constraints=scipy.optimize.LinearConstraint(
                np.array(rows) * np.array([*steps, 1.0]), ub=np.array(above)
            ),
            bounds=scipy.optimize.Bounds(np.zeros(len(steps) + 1), np.array([*tops, np.inf])),
            integrality=np.array([*is_whole, False], dtype=int),
            options={"mip_rel_gap": NEARLY},
        )
        if found.x is None:  # pragma: no cover  Every level within its box is feasible.
            break
        bound = max(bound, float(found.mip_dual_bound or 0.0))
        at = np.where(is_whole, np.round(found.x[:-1]), np.clip(found.x[:-1], 0.0, tops))
        if least - bound <= NEARLY * least:
            break
    levels = tuple(map(float, best * steps))
    return CommitmentLevels(levels=levels, bill=bill_of(load, prices, commitments, levels), bound=bound)


def _check(commitments: Sequence[Commitment]) -> None:
    """Raise `InvalidProblem` for commitments that cover the same GPUs."""
    scopes = [None if c.is_broad else _covered(c)[0][0] for c in commitments]
    for scope in scopes:
        if scopes.count(scope) > 1:
            names = ", ".join(c.name for c, other in zip(commitments, scopes, strict=True) if other == scope)
            raise InvalidProblem(f"{names} cover the same GPUs: take the cheapest of them")


def _alone(load: LoadDistribution, prices: Sequence[float], commitment: Commitment) -> float:
    """Return the newsvendor's level of one commitment to one type, dollars per hour."""
    if commitment.is_broad:
        return 0.0
    ((g, rate),) = _covered(commitment)
    return rate * newsvendor(load.gpus[:, g], load.share, rate / prices[g])


def newsvendor(gpus: Floats, share: Floats, ratio: float) -> float:
    """Return the least count that is exceeded for no more than `ratio` of the time; 0 for a ratio of 1."""
    if ratio >= 1.0:
        return 0.0
    order = np.argsort(gpus)
    at_most = np.cumsum(share[order])
    index = int(np.searchsorted(at_most, (1.0 - ratio) * (1.0 - 1e-12)))
    return float(gpus[order][min(index, len(gpus) - 1)])
