"""The position of each node in EC2's network, which shows which nodes are near each other.

`DescribeInstanceTopology` lists the network nodes above a running instance, the widest first; instances that
share the last one are adjacent. EC2 answers for large GPU types only. For other types an instance's cluster
placement group is all that is known of its position.

A position does not change while an instance runs, so each life is asked about until there is an answer, and
at most `TRIES` times. The topology is optional: if the call fails, placement considers nodes alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.tick.facts.node_lives import instance_of
from boa_daemon.tick.facts.ports import Clock
from boa_daemon.tick.facts.state import NodeState
from policies.model import NodeId

TRIES = 3
AGAIN_SECONDS = 300.0
"""Seconds until an empty answer is asked for again: EC2 knows a new instance only after a while."""
REST_SECONDS = 3600.0
"""Seconds without calls after EC2 denied one: it stays denied until somebody changes the policy."""
_ID_BATCH = 100


class InstanceTopology:
    """Keeps the network position of each node, and asks EC2 for those of new nodes."""

    def __init__(self, calls: AwsCalls, clock: Clock, say: Callable[[str], None]) -> None:
        self._calls, self._clock, self._say = calls, clock, say
        self._known: dict[NodeId, tuple[str, ...]] = {}
        self._tries: Counter[NodeId] = Counter()
        self._ask_from: dict[NodeId, float] = {}
        self._rests_until = 0.0
        self._failures = 0

    def remember(self, nodes: Iterable[NodeState]) -> None:
        """Take over positions that an earlier process knew; a single tier may be a placement group."""
        self._known |= {node.id: node.tiers for node in nodes if len(node.tiers) > 1}

    def placed(
        self, nodes: Mapping[NodeId, NodeState], instances: Sequence[Mapping[str, Any]]
    ) -> dict[NodeId, NodeState]:
        """Return nodes with their network tiers; `instances` are EC2's descriptions of them."""
        for kept in (self._known, self._tries, self._ask_from):
            for gone in [name for name in kept if name not in nodes]:
                del kept[gone]
        self._ask([node for node in nodes.values() if node.phase == "ready"])
        groups = {each["InstanceId"]: each.get("Placement", {}).get("GroupName", "") for each in instances}
        placed = {}
        for name, node in nodes.items():
            group = groups.get(instance_of(name), "")
            tiers = self._known.get(name) or ((group,) if group else node.tiers)
            placed[name] = node if tiers == node.tiers else replace(node, tiers=tiers)
        return placed

    def _ask(self, ready: Sequence[NodeState]) -> None:
        """Ask for the unknown positions; the position of a single node does not matter."""
        now = self._clock.now()
        if len(ready) < 2 or now < self._rests_until:
            return
        due = [
            node.id
            for node in ready
            if node.id not in self._known
            and self._tries[node.id] < TRIES
            and now >= self._ask_from.get(node.id, 0.0)
        ]
        for begin in range(0, len(due), _ID_BATCH):
            names = {instance_of(name): name for name in due[begin : begin + _ID_BATCH]}
            try:
                rows = list(
                    self._calls.pages("ec2:DescribeInstanceTopology", "Instances", InstanceIds=sorted(names))
                )
            except CallFailed as error:
                is_denied = error.meaning == "denied"
                self._failures += 1
                is_long = is_denied or self._failures >= TRIES
                self._rests_until = now + (REST_SECONDS if is_long else AGAIN_SECONDS)
                if is_denied:
                    self._say(f"it is not known which nodes are near each other: {error}")
                return
            self._failures = 0
            for name in names.values():
                self._tries[name] += 1
                self._ask_from[name] = now + AGAIN_SECONDS
            for row in rows:
                tiers = tuple(row.get("NetworkNodes") or ())
                if tiers and row["InstanceId"] in names:
                    self._known[names[row["InstanceId"]]] = tiers
