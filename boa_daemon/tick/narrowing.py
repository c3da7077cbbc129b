"""Narrow jobs at a cap: choose the widths with the least waiting, and the order of service.

If the planned widths of all present jobs exceed a cap, `policies.online.scarce_room` decides which jobs are
narrow and which wait. A cap may be on nodes of any type, on dollars per hour, or on the nodes of one type
whose quota or stock is used up. If several caps bind, they are applied one after the other. A running job's
GPUs beyond its new width become lent: the job releases them when another job waits, not before.

Cost: O(jobs + nodes) per tick if there is a cap; O(widths log widths) if one binds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import floor, inf

from boa_daemon.tick.offers import room_to_rent
from boa_daemon.tick.state import ClusterState, Rules
from policies.answer import Allocation
from policies.fast_dataclasses import replace
from policies.model import InstanceType, JobId, Width
from policies.online.scarce_room import shares


@dataclass(frozen=True, slots=True, kw_only=True)
class _CapacityCap:
    """A cap: what a node of each GPU type uses of it, and its size."""

    node_sizes: Mapping[str, float]
    size: float

    def holds(self, widths: Mapping[JobId, Width], kinds: Mapping[str, InstanceType]) -> bool:
        """Return whether whole nodes for the widths fit."""
        gpus = dict.fromkeys(self.node_sizes, 0)
        for width in widths.values():
            if width.gpu_type in gpus:
                gpus[width.gpu_type] += width.gpus
        taken = sum(self.node_sizes[kind] * -(-count // kinds[kind].gpus) for kind, count in gpus.items())
        return taken <= self.size * (1.0 + 1e-9)

    def of_gpus(self, used: frozenset[str], kinds: Mapping[str, InstanceType]) -> float:
        """Return the room for GPUs in whole nodes; with several types, the last node of each is part full."""
        sizes = sorted(self.node_sizes[kind] for kind in used)
        if len(sizes) == 1:
            return sizes[0] * floor(self.size / sizes[0] * (1.0 + 1e-9))
        return max(
            0.0, self.size - sum(self.node_sizes[kind] * (1.0 - 1.0 / kinds[kind].gpus) for kind in used)
        )


def within_room(state: ClusterState, allocation: Allocation, rules: Rules) -> Allocation:
    """Return the allocation with widths that fit under every cap, and with the order of service."""
    node_prices, kinds = allocation.node_prices, rules.instance_types
    if node_prices is None or allocation.nodes is not None:
        return allocation
    for room in _rooms(state, rules):
        if room.holds(allocation.widths, kinds):
            continue
        asked = {job: width for job, width in allocation.widths.items() if width.gpu_type in room.node_sizes}
        claims = node_prices.claims(
            [state.jobs[job].job for job in asked],
            list(asked.values()),
            size_per_gpu={kind: size / kinds[kind].gpus for kind, size in room.node_sizes.items()},
            now=state.now,
        )
        used = frozenset(width.gpu_type for menu in claims.menus for width in menu.widths)
        found = shares(claims, room.of_gpus(used, kinds))
        # A waiting job asks for its most efficient width, after the others.
        narrow = [menu.widths[menu.corners[0]] for menu in claims.menus]
        least = {job: narrow[number] for job, number in zip(asked, claims.menu.tolist(), strict=True)}
        before = [job for job in allocation.order if job not in asked]
        allocation = replace(
            allocation,
            widths={**allocation.widths, **least, **found.widths},
            order=(*before, *found.order),
        )
    return allocation


def _rooms(state: ClusterState, rules: Rules) -> Iterator[_CapacityCap]:
    """Yield the caps, first those on single types."""
    kinds = rules.instance_types
    for name, kind in kinds.items():
        most = _most_nodes(state, kind)
        if most is not None:
            yield _CapacityCap(node_sizes={name: 1.0}, size=float(most))
    if rules.max_nodes is not None:
        yield _CapacityCap(node_sizes=dict.fromkeys(kinds, 1.0), size=float(rules.max_nodes))
    ceiling = None if rules.caps is None else rules.caps.usd_per_hour
    if ceiling is not None:
        yield _CapacityCap(node_sizes={name: kind.usd_per_hour for name, kind in kinds.items()}, size=ceiling)


def _most_nodes(state: ClusterState, kind: InstanceType) -> int | None:
    """Return the most nodes of a type by quota and stock; None if neither is known."""
    if not state.offers and not state.cooldowns:
        return None
    more, _ = room_to_rent(kind.name, state.offers, state.cooldowns, now=state.now)
    if more == inf:
        return None
    present = (node for node in state.nodes.values() if node.instance_type.name == kind.name)
    return int(more) + sum(node.phase in ("ready", "requested") and node.ends_by is None for node in present)
