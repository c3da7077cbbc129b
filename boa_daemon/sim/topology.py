"""The network above the simulated nodes: tiers from the zone down, each part with its own uplink.

    tier     here          meaning
    spine    groups: 2     every zone has two, and each has its link to the others
    rack     groups: 4     every spine has four

A node's place is drawn from its name and the seed, because a cloud puts instances where it has room. A job
whose nodes are under several parts of a tier sends through the uplink of each part, as much as through a
node's card: a ring enters and leaves each part once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random

from boa_daemon.sim.world_settings import Tier
from policies.model import NodeId


class SimulatedTopology:
    """The part of each tier that a node is in, and the capacity of the uplinks."""

    def __init__(self, tiers: Sequence[Tier] = (), *, seed: int = 0) -> None:
        self._tiers, self._seed = tuple(tiers), seed

    def above(self, node: NodeId, zone: str = "") -> tuple[str, ...]:
        """Return the parts of the network above a node, the widest first."""
        if not self._tiers:
            return ()
        draw, path, found = Random(f"{self._seed}/topology/{node}"), zone, []
        for tier in self._tiers:
            path = f"{path}/{tier.name}-{draw.randrange(tier.groups)}".lstrip("/")
            found.append(path)
        return tuple(found)

    def uplinks(self, above: Collection[Sequence[str]]) -> Mapping[str, float]:
        """Return the uplinks that messages between nodes under these parts use, with their Gbit/s."""
        found: dict[str, float] = {}
        for depth, tier in enumerate(self._tiers):
            names = {parts[depth] for parts in above}
            if len(names) > 1:
                found |= dict.fromkeys(sorted(names), tier.gigabits_per_second)
        return found
