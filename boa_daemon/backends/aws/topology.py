"""What is above each node in EC2's network: which of them are near each other.

`DescribeInstanceTopology` names the network nodes above an instance that runs, the widest first; instances
that share the last one are next to each other. It knows the large GPU types only, and says nothing of the
others. Where it is silent an instance's cluster placement group is what is known of its place.

A place does not change while an instance runs, so each life is asked about until there is an answer, and at
most `TRIES` times. Nothing depends on it: where the call fails, placement goes by nodes alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from boa_daemon.backends.aws.calls import AwsCalls
from boa_daemon.backends.aws.errors import CallFailed
from boa_daemon.tick.node_lives import instance_of
from boa_daemon.tick.ports import Clock
from boa_daemon.tick.state import NodeState
from policies.model import NodeId

TRIES = 3
AGAIN_SECONDS = 300.0
"""EC2's answers come true with time: one that was empty is asked for again so much later."""
REST_SECONDS = 3600.0
"""What is denied stays denied until somebody changes the policy."""
_ID_BATCH = 100


class InstanceTopology:
    """Knows the place of each node, and asks EC2 for those that are new."""

    def __init__(self, calls: AwsCalls, clock: Clock, say: Callable[[str], None]) -> None:
        self._calls, self._clock, self._say = calls, clock, say
        self._known: dict[NodeId, tuple[str, ...]] = {}
        self._tries: Counter[NodeId] = Counter()
        self._ask_from: dict[NodeId, float] = {}
        self._rests_until = 0.0

    def remember(self, nodes: Iterable[NodeState]) -> None:
        """Learn the places that an earlier process knew; one tier alone may be a placement group."""
        self._known |= {node.id: node.tiers for node in nodes if len(node.tiers) > 1}

    def placed(
        self, nodes: Mapping[NodeId, NodeState], instances: Sequence[Mapping[str, Any]]
    ) -> dict[NodeId, NodeState]:
        """Return nodes with what is above them; `instances` are EC2's descriptions of them."""
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
        """Ask for the places that are not known; of one node alone none matters."""
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
                self._rests_until = now + (REST_SECONDS if is_denied else AGAIN_SECONDS)
                if is_denied:
                    self._say(f"it is not known which nodes are near each other: {error}")
                return
            for name in names.values():
                self._tries[name] += 1
                self._ask_from[name] = now + AGAIN_SECONDS
            for row in rows:
                tiers = tuple(row.get("NetworkNodes") or ())
                if tiers and row["InstanceId"] in names:
                    self._known[names[row["InstanceId"]]] = tiers
