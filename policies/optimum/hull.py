"""Lower hulls of (cost, time) points, for many groups at once, and their merge into one frontier.

A group has options; a job takes one, or a random mix. Mixes reach the convex hull of the options, and an
optimum only uses its lower-left chain (the LP relaxation of a multiple-choice knapsack, Zemel 1980). Merging
the chains of all groups by slope, steepest first, gives the least total time at every total cost: one sort
yields the whole frontier.

    symbol   here               meaning
    C        cost               budget that an option takes (dollars per hour, or GPUs)
    T        time               weighted hours of completion time of an option
    mu       slope              hours saved per unit of budget along an edge, -dT/dC

Cost: O(n log n) for n options; memory O(n).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from policies.speedup import Floats, Ints

BoolArray: TypeAlias = NDArray[np.bool_]

TIE = 1e-12
"""Relative difference below which two amounts are equal."""
BLOCK = 2**14
"""Options that are sorted at a time, so that they stay in the processor's cache."""
PATIENCE = 6
"""Rounds of quick neighbour tests before quickhull is used for groups that still shrink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HullChains:
    """The lower-left chains of all groups, group after group, each by rising cost and falling time.

    `option` are positions in the input arrays. Shapes are (vertices,); `starts` is (groups + 1,).
    """

    option: Ints
    group: Ints
    cost: Floats
    time: Floats
    starts: Ints


def lower_hulls(cost: Floats, time: Floats, group: Ints, *, groups: int) -> HullChains:
    """Return the chain of each group: no vertex dominated, none above or on a chord.

    `group` is the group of each option, 0 to groups - 1; every group has at least one option. A round drops,
    in all groups at once, every point that lies on or above the chord of its two remaining neighbours, so the
    work is vectorised for any number of groups. Of options whose costs differ by less than `TIE` only the
    fastest stays. A chain ends where the next vertex saves less than `TIE` of its time.
    """
    keep = _faster_than_all_cheaper(cost, time, group, groups=groups)
    c, t, g = cost[keep], time[keep], group[keep]
    for rounds in itertools.count():  # pragma: no branch  Ends inside.
        same = g[1:] == g[:-1]
        dc, dt = c[1:] - c[:-1], t[1:] - t[:-1]
        drop = np.zeros(len(c), dtype=bool)
        drop[:-1] = same & (dc <= TIE * c[1:])
        if not drop.any():
            # The chord test is valid only for distinct, undominated points.
            inner = same[:-1] & same[1:]
            drop[1:-1] = inner & (dt[:-1] * dc[1:] >= dt[1:] * dc[:-1])
            drop[1:] |= same & np.append(~same[1:], True) & (-dt <= TIE * t[1:])
            if not drop.any():
                break
        if rounds == PATIENCE:
            drop |= _above_chords(c, t, g, np.bincount(g[drop], minlength=groups) > 0)
        stay = ~drop
        keep, c, t, g = keep[stay], c[stay], t[stay], g[stay]
    starts = np.searchsorted(g, np.arange(groups + 1)).astype(np.int64)
    return HullChains(option=keep, group=g, cost=c, time=t, starts=starts)


def _faster_than_all_cheaper(cost: Floats, time: Floats, group: Ints, *, groups: int) -> Ints:
    """Return the options faster than all cheaper ones of their group, group after group, by rising cost.

    Groups of about one size are the rows of a matrix, `BLOCK` entries at a time: sorting short rows takes a
    tenth of the time of sorting everything at once. Of options of one cost several may stay.
    """
    order = None if (group[1:] >= group[:-1]).all() else np.argsort(group, kind="stable")
    counts = np.bincount(group, minlength=groups)
    begins = np.cumsum(counts) - counts
    doublings = np.ceil(np.log2(counts))
    found = []
    for doubling in sorted(set(doublings.tolist())):
        alike = np.flatnonzero(doublings == doubling)
        step = max(BLOCK // 2 ** int(doubling), 1)
        for rows in (alike[i : i + step] for i in range(0, len(alike), step)):
            column = np.arange(counts[rows].max())
            is_there = column < counts[rows, None]
            at = np.where(is_there, begins[rows, None] + column, begins[rows, None])
            at = at if order is None else order[at]
            by_cost = np.argsort(np.where(is_there, cost[at], np.inf), axis=1, kind="stable")
            at = at[np.arange(len(rows))[:, None], by_cost]
            t = np.where(is_there, time[at], np.inf)
            stays = t < np.inf
            stays[:, 1:] &= t[:, 1:] < np.minimum.accumulate(t[:, :-1], axis=1)
            found.append(at[stays])
    kept = np.concatenate(found)
    return kept if len(found) == 1 else kept[np.argsort(group[kept], kind="stable")]


def undominated(group: Ints, time: Floats) -> Ints:
    """Return the entries that are faster than all cheaper ones of their group; input is sorted by cost.

    Computed as a running minimum within each group, over spans that double.
    """
    before = np.full(len(time), np.inf)
    same = group[1:] == group[:-1]
    before[1:][same] = time[:-1][same]
    span = 1
    while (same := group[span:] == group[:-span]).any():
        before[span:] = np.where(same, np.minimum(before[span:], before[:-span]), before[span:])
        span *= 2
    return np.flatnonzero(time < before)


def _above_chords(cost: Floats, time: Floats, group: Ints, is_open: BoolArray) -> BoolArray:
    """Return which points of the open groups lie on or above the lower hull of their group.

    Quickhull: the point furthest below a chord is a vertex and splits it; points not below are dropped.
    """
    at = np.flatnonzero(is_open[group])
    above = np.zeros(len(cost), dtype=bool)
    is_vertex = np.ones(len(at), dtype=bool)
    is_vertex[1:-1] = (group[at][1:-1] != group[at][:-2]) | (group[at][1:-1] != group[at][2:])
    while not is_vertex.all():
        ends = np.flatnonzero(is_vertex)
        chord = np.cumsum(is_vertex) - 1
        a, b = at[ends[chord]], at[ends[np.minimum(chord + 1, len(ends) - 1)]]
        depth = (cost[b] - cost[a]) * (time[at] - time[a]) - (time[b] - time[a]) * (cost[at] - cost[a])
        is_below = ~is_vertex & (depth < 0.0)
        deepest = np.minimum.reduceat(np.where(is_below, depth, 0.0), ends)
        above[at[~is_vertex & ~is_below]] = True
        is_vertex |= is_below & (depth <= deepest[chord])
        stay = is_vertex | is_below
        at, is_vertex = at[stay], is_vertex[stay]
    return above


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFrontier:
    """Least total time at every total cost: a convex chain of edges, steepest first.

    Edge e moves group `edge_group[e]` from vertex `edge_vertex[e]` to the next one.
    `cost` and `time` have one more entry than there are edges: totals before each edge and at the end.
    """

    chains: HullChains
    edge_vertex: Ints
    edge_group: Ints
    slope: Floats
    cost: Floats
    time: Floats

    def split(self, budget: float) -> tuple[int, float]:
        """Return (number of whole edges, share of the next edge) that spend `budget` exactly.

        The share is 0 if the budget ends at a vertex or beyond the last one.
        """
        taken = int(np.searchsorted(self.cost, budget * (1.0 + TIE), side="right")) - 1
        taken = max(taken, 0)
        if taken == len(self.slope):
            return taken, 0.0
        step = float(self.cost[taken + 1] - self.cost[taken])
        share = (budget - float(self.cost[taken])) / step
        return taken, share if share > TIE else 0.0

    def time_at(self, budgets: Floats) -> Floats:
        """Return the least total time at each budget; budgets must not be below the least cost."""
        return np.asarray(np.interp(budgets, self.cost, self.time))

    def slope_at(self, budgets: Floats) -> Floats:
        """Return the time that one more unit saves at each budget: the slope to the right, 0 at the end."""
        taken = np.searchsorted(self.cost, budgets * (1.0 + TIE), side="right") - 1
        return np.append(self.slope, 0.0)[np.clip(taken, 0, len(self.slope))]

    def vertices_after(self, taken: int) -> Ints:
        """Return the vertex of each group after the first `taken` edges, shape (groups,)."""
        groups = len(self.chains.starts) - 1
        moves = np.bincount(self.edge_group[:taken], minlength=groups)
        return np.asarray(self.chains.starts[:-1] + moves)


def backward_sums(amounts: Floats) -> Floats:
    """Return the suffix sums of the amounts, with a zero at the end."""
    return np.append(np.cumsum(amounts[::-1])[::-1], 0.0)


def merge(chains: HullChains) -> MergedFrontier:
    """Return the frontier of all groups together. Cost: one sort of the edges."""
    inside = np.flatnonzero(chains.group[1:] == chains.group[:-1]).astype(np.int64)
    dc = chains.cost[inside + 1] - chains.cost[inside]
    dt = chains.time[inside] - chains.time[inside + 1]
    slope = dt / dc
    # A stable sort keeps the edges of one group in chain order where slopes tie.
    order = np.argsort(-slope, kind="stable")
    first = chains.starts[:-1]
    return MergedFrontier(
        chains=chains,
        edge_vertex=inside[order],
        edge_group=chains.group[inside[order]],
        slope=slope[order],
        cost=np.concatenate([[0.0], np.cumsum(dc[order])]) + float(chains.cost[first].sum()),
        # Summed from the far end, where times are small, so that no large sums cancel.
        time=float(chains.time[chains.starts[1:] - 1].sum()) + backward_sums(dt[order]),
    )
