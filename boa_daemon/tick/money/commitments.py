"""The site's commitments and Capacity Blocks: costs paid in any case, and the usage that they cover.

A commitment of L dollars per hour is paid whether used or not, and covers usage at its own rates. So a node
that it covers costs nothing more, and L counts in the ledger and in every cap at all times. The plan uses
on-demand prices and the budget

    B' = max(B - L, 0) + V        V = the sum of  L p / q  over commitments

    symbol   here                  meaning
    B        budget                what may be spent, dollars per hour
    V        free_usd_per_hour     covered usage at on-demand prices
    p, q     rates                 price of a node-hour on demand; under the commitment

Nodes are covered in launch order, the last one in part, and commitments to few types are used
before those to many. In its last hour a commitment covers nothing, so that no cap depends on it. AWS
settles by the hour and shares a level among all usage of an account; this is not modelled. A Capacity Block's
fee is spread over its time; the cloud lists its nodes, which belong to a reservation, at no price.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import isclose
from typing import Any, TypeAlias

from boa_daemon.tick.facts.limits import FixedCost
from boa_daemon.tick.facts.state import NodeState
from policies.model import InstanceType
from policies.site import Site

PricePath: TypeAlias = tuple[tuple[float, float], ...]
"""Pairs (instant, USD per hour from then on), in order of time."""
ENDING_SECONDS = 3600.0
"""Time before its end from which a commitment covers nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentLevel:
    """One commitment or block: its cost, and the node-hour price that it pays, by instance type."""

    cost: FixedCost
    rates: Mapping[str, float]
    is_block: bool = False

    def is_paid(self, now: float) -> bool:
        """Return whether the commitment covers nodes now."""
        return self.cost.usd_between(now, now + ENDING_SECONDS) >= self.cost.usd_per_hour * (1.0 - 1e-9)

    def free_usd_per_hour(self, machines: Iterable[InstanceType]) -> float:
        """Return the covered usage at on-demand prices, for the type with the smallest discount."""
        return self.cost.usd_per_hour * min(
            machine.usd_per_hour / self.rates[machine.name]
            for machine in machines
            if machine.name in self.rates
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCommitments:
    """All commitments of the site, those to few types first; `machines` are the on-demand machines."""

    levels: tuple[CommitmentLevel, ...] = ()
    machines: tuple[InstanceType, ...] = ()

    @classmethod
    def of(cls, levels: Iterable[CommitmentLevel], machines: Iterable[InstanceType]) -> SiteCommitments:
        """Return commitments to these on-demand machines."""
        return cls(levels=tuple(sorted(levels, key=lambda one: len(one.rates))), machines=tuple(machines))

    def later(self, seconds: float) -> SiteCommitments:
        """Return the same commitments on a clock whose zero is earlier by these seconds."""

        def at(instant: float | None) -> float | None:
            return None if instant is None else instant + seconds

        levels = (
            replace(
                level,
                cost=replace(level.cost, begins_at=at(level.cost.begins_at), ends_at=at(level.cost.ends_at)),
            )
            for level in self.levels
        )
        return replace(self, levels=tuple(levels))

    def to_rows(self) -> list[dict[str, Any]]:
        """Return the commitments as JSON; `of_rows` reads it."""
        return [
            {
                "name": level.cost.name,
                "usd_per_hour": level.cost.usd_per_hour,
                "begins_at": level.cost.begins_at,
                "ends_at": level.cost.ends_at,
                "rates": dict(level.rates),
                "is_block": level.is_block,
            }
            for level in self.levels
        ]

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]], machines: Iterable[InstanceType]) -> SiteCommitments:
        """Return the commitments of `to_rows` to these on-demand machines."""
        keys = ("name", "usd_per_hour", "begins_at", "ends_at")
        levels = (
            CommitmentLevel(
                cost=FixedCost(**{key: row[key] for key in keys}),
                rates=row["rates"],
                is_block=row["is_block"],
            )
            for row in rows
        )
        return cls.of(levels, machines)

    @property
    def fixed(self) -> tuple[FixedCost, ...]:
        """The costs that are paid whether used or not."""
        return tuple(level.cost for level in self.levels)

    def under(self, site: Site, now: float) -> Site:
        """Return the site with the budget B' of the module's formula, for what is covered now."""
        paid = [level for level in self.levels if level.is_paid(now)]
        usable = [level for level in paid if any(one.name in level.rates for one in self.machines)]
        if not paid or site.budget.unit == "gpus":
            return site
        cost = sum(level.cost.usd_per_hour for level in paid)
        free = sum(level.free_usd_per_hour(self.machines) for level in usable)
        amount = max(site.budget.amount - cost, 0.0) + free
        if amount <= 0.0:
            return site
        kinds = [
            frozenset(kind for kind, one in site.instance_types.items() if one.name in level.rates)
            for level in usable
        ]
        return replace(
            site,
            budget=replace(site.budget, amount=amount),
            covered_per_hour=amount - site.budget.amount,
            free=tuple(
                (covered, level.free_usd_per_hour(self.machines))
                for covered, level in zip(kinds, usable, strict=True)
                if covered
            ),
        )

    def priced(
        self, nodes: Iterable[NodeState], before: Mapping[str, NodeState], now: float
    ) -> dict[str, NodeState]:
        """Return nodes with their uncovered prices, from those that the cloud lists, at list prices.

        `before` are the nodes as last stored, with what they cost until now.
        """
        nodes = list(nodes)
        if not self.levels:
            return {node.id: node for node in nodes}
        left = [
            (level, level.cost.usd_per_hour)
            for level in self.levels
            if level.is_paid(now) and not level.is_block
        ]
        found = {}
        for node in sorted(nodes, key=lambda node: (node.launched_at, node.id)):
            known = before.get(node.id)
            is_spot = node.instance_type.machine_name.is_spot
            if node.market != "on-demand" or is_spot or node.phase == "stopped":
                found[node.id] = node
                continue
            if node.ended_at is not None:
                is_free = bool(node.prices) and not any(usd for _, usd in node.prices)
                found[node.id] = node if known is None or is_free else _as_charged(node, known)
                continue
            share = 0.0
            for at, (level, usd) in enumerate(left):
                rate = level.rates.get(node.instance_type.name)
                if rate is not None and share < 1.0:
                    more = min(1.0 - share, usd / rate)
                    share, left[at] = share + more, (level, usd - more * rate)
            found[node.id] = _at_share(node, known, share, now)
        return {node.id: found[node.id] for node in nodes}


def _as_charged(node: NodeState, known: NodeState) -> NodeState:
    """Return a node that has ended, charged as it was last."""
    return replace(node, prices=known.prices, list_prices=known.list_prices)


def _at_share(node: NodeState, known: NodeState | None, share: float, now: float) -> NodeState:
    """Return a node with its price from now on, when `share` of it is covered; earlier prices stay.

    What is not covered is charged as the cloud lists the node now, so that a list price counts that changes,
    and from its date on if it became known later.
    """
    listed: PricePath = node.prices or ((node.launched_at, node.instance_type.usd_per_hour),)
    usd = listed[-1][1] * (1.0 - share)
    if known is None:
        return replace(node, prices=((node.launched_at, usd),) if share else node.prices, list_prices=listed)
    path = at_list_prices(replace(known, prices=known.prices or listed), listed).prices
    if not isclose(path[-1][1], usd, rel_tol=1e-9, abs_tol=1e-12):
        path = (*path, (max(now, path[-1][0]), usd))
    elif not known.prices:
        path = ()
    return replace(node, prices=path, list_prices=listed)


def at_list_prices(node: NodeState, listed: PricePath) -> NodeState:
    """Return a node charged the same part of other list prices as it was of those that were known before.

    A node without list prices keeps what it was charged.
    """
    before, paid = node.list_prices, node.prices
    if before == listed or not (before and paid):
        return replace(node, list_prices=listed)
    instants = sorted({at for path in (paid, before, listed) for at, _ in path if at >= paid[0][0]})
    path: list[tuple[float, float]] = []
    for at in instants:
        was, usd = _usd_at(before, at), _usd_at(paid, at)
        usd = usd * _usd_at(listed, at) / was if was else usd
        if not path or not isclose(path[-1][1], usd, rel_tol=1e-9, abs_tol=1e-12):
            path.append((at, usd))
    return replace(node, prices=tuple(path), list_prices=listed)


def _usd_at(path: PricePath, at: float) -> float:
    """Return the price at an instant; before the first one, the first one."""
    return next((usd for since, usd in reversed(path) if since <= at), path[0][1])
