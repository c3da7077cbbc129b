"""What the site's commitments and blocks were worth: their use at on-demand prices, less what they cost.

A node that a commitment covers has a lower price in the ledger, so the difference to its price on demand is
what the commitment gave. Nodes in a Capacity Block cost nothing more and gave their whole price. Where
several commitments cover one type, each is used up to its level in the order in which they cover nodes: those
to few types first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.commitments import CommitmentLevel, SiteCommitments
from boa_daemon.units import SECONDS_PER_HOUR

_Kind = tuple[bool, str]
"""Whether nodes are in a block, and their instance type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentWorth:
    """One commitment or block in a time: what was paid, and what its use would have cost on demand."""

    level: CommitmentLevel
    paid_usd: float
    used_usd: float

    @property
    def saved_usd(self) -> float:
        """Dollars saved; negative if the use was worth less than it cost."""
        return self.used_usd - self.paid_usd

    def to_document(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        cost = self.level.cost
        return {
            "name": cost.name,
            "kind": "block" if self.level.is_block else "commitment",
            "instance_types": sorted(self.level.rates),
            "usd_per_hour": cost.usd_per_hour,
            "begins_at": cost.begins_at,
            "ends_at": cost.ends_at,
            "paid_usd": self.paid_usd,
            "used_usd": self.used_usd,
            "saved_usd": self.saved_usd,
        }


def commitment_worths(
    paid: SiteCommitments, nodes: Iterable[NodeState], *, since: float, now: float
) -> list[CommitmentWorth]:
    """Return the worth of each commitment and block that was paid for since an instant.

    `nodes` are all that lived in this time. O(price changes log price changes).
    """
    levels = [level for level in paid.levels if level.cost.usd_between(since, now) > 0.0]
    if not levels:
        return []
    on_demand = (machine for machine in paid.machines if not machine.machine_name.is_spot)
    prices = {machine.name: machine.usd_per_hour for machine in on_demand}
    # Also that of a block's type which the settings do not rent on demand: its nodes carry the list price.
    steps = _steps(levels, nodes, prices, since, now)
    used = [0.0] * len(levels)
    rates: dict[_Kind, float] = defaultdict(float)
    instants = sorted(steps)
    for begin, end in pairwise(instants):
        for kind, change in steps[begin]:
            rates[kind] += change
        left = {kind: rate for kind, rate in rates.items() if rate > 1e-9}
        for at, level in enumerate(levels):
            room = level.cost.usd_between(begin, end) * SECONDS_PER_HOUR / (end - begin)
            for name, rate in level.rates.items():
                price, given = prices.get(name, 0.0), left.get((level.is_block, name), 0.0)
                take = min(given, room * price / rate)
                if take > 0.0:
                    left[level.is_block, name] = given - take
                    room -= take * rate / price
                    used[at] += take * (end - begin) / SECONDS_PER_HOUR
    return [
        CommitmentWorth(level=level, paid_usd=level.cost.usd_between(since, now), used_usd=usd)
        for level, usd in zip(levels, used, strict=True)
    ]


def _steps(
    levels: Sequence[CommitmentLevel],
    nodes: Iterable[NodeState],
    prices: dict[str, float],
    since: float,
    now: float,
) -> Mapping[float, list[tuple[_Kind, float]]]:
    """Return by instant the changes of what nodes of a kind cost less than on demand, in dollars per hour."""
    found: dict[float, list[tuple[_Kind, float]]] = {since: [], now: []}
    for level in levels:
        for at in (level.cost.begins_at, level.cost.ends_at):
            if at is not None and since < at < now:
                found.setdefault(at, [])
    covered = {(level.is_block, name) for level in levels for name in level.rates}
    for node in nodes:
        kind = (node.market == "reserved", node.instance_type.name)
        if node.market == "spot" or node.instance_type.machine_name.is_spot or kind not in covered:
            continue
        price = prices.setdefault(kind[1], node.instance_type.usd_per_hour)
        ends_at = now if node.ended_at is None else min(node.ended_at, now)
        listed = 0.0 if kind[0] else node.instance_type.usd_per_hour
        path = node.prices or ((node.launched_at, listed),)
        for (at, usd), (until, _) in zip(path, (*path[1:], (ends_at, 0.0)), strict=True):
            begin, end, less = max(at, since), min(until, ends_at), price - usd
            if end > begin and less > 0.0:
                found.setdefault(begin, []).append((kind, less))
                found.setdefault(end, []).append((kind, -less))
    return found
