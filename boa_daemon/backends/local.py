"""The `local` cloud: this machine, divided into nodes that are rented at a pretended price.

The machine has a fixed number of places for nodes, and renting a node takes a place at once. With a file,
nodes and their bills outlive the daemon.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from boa_daemon.job.unit import read_json, write_json
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import WARNING_SECONDS, Accepted, Clock, Launched, Provider, Refused, Unknown
from boa_daemon.tick.facts.state import NodeState
from policies.model import InstanceType, NodeId

RETRY_SECONDS = 30.0
"""Seconds until a full machine is asked again."""


class LocalCloud(Provider):
    """A `Provider` with `most_nodes` places on this machine; nodes are ready `boot_seconds` after launch."""

    rents_spot = False
    is_this_machine = True

    def __init__(
        self, clock: Clock, *, most_nodes: int, boot_seconds: float = 0.0, file: Path | None = None
    ) -> None:
        self._clock, self._most, self._boot_seconds, self._file = clock, most_nodes, boot_seconds, file
        self._live: dict[NodeId, NodeState] = {}
        self._ended: list[NodeState] = []
        self._launches = 0
        self._saved: dict[str, Any] = {}
        if file is not None and file.exists():
            # Read once more where this finds nothing: a disk that fails must not look like one without nodes.
            document = read_json(file) or json.loads(file.read_text())
            self._launches = int(document["launches"])
            self._live = {row["id"]: _node(row) for row in document["nodes"]}
            self._ended = [_node(row) for row in document["ended"]]

    def nodes(self) -> Sequence[NodeState]:
        """Return the live nodes, and the nodes that ended since the last call."""
        now = self._clock.now()
        for node in list(self._live.values()):
            ready_at = node.launched_at + self._boot_seconds
            if node.ends_by is not None and now >= node.ends_by:
                self._end(node.id, node.ends_by)
            elif node.phase == "requested" and now >= ready_at:
                self._live[node.id] = replace(node, phase="ready", idle_since=ready_at)
        listed = [*self._live.values(), *self._ended]
        if self._ended:
            self._ended = []
        if self._saved:
            self._save_if_possible()
        return listed

    def offers(self) -> Sequence[Offer]:
        """Return no offers: there is one zone, and each type has its own price."""
        return ()

    def launch(self, action: LaunchNodes) -> Launched | Refused:
        """Take places on this machine. A repeated action takes no more places; a gang gets all or none."""
        known = tuple(node.id for node in self._live.values() if node.launched_by == action.id)
        if known:
            return Launched(nodes=known)
        free = self._most - len(self._live)
        count = min(action.count, free)
        if count < 1 or (action.is_gang and count < action.count):
            return self._full()
        names = tuple(self._take(action) for _ in range(count))
        try:
            self._save()
        except OSError as error:
            # A place that is not on disk is forgotten by the next daemon, with the job that runs there.
            for name in names:
                del self._live[name]
            reason = f"the list of places cannot be written: {error.strerror}"
            return Refused(reason=reason, retry_after_seconds=RETRY_SECONDS)
        return Launched(nodes=names, short=None if count == action.count else self._full())

    def _full(self) -> Refused:
        reason = f"all {self._most} places of this machine are taken"
        return Refused(reason=reason, kind="no-capacity", retry_after_seconds=RETRY_SECONDS)

    def _take(self, action: LaunchNodes) -> NodeId:
        self._launches += 1
        name = f"local-{self._launches}"
        self._live[name] = NodeState(
            id=name,
            instance_type=action.instance_type,
            phase="requested",
            launched_at=self._clock.now(),
            gpus=(None,) * action.instance_type.gpus,
            launched_by=action.id,
        )
        return name

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """End nodes and free their places; the bills of the nodes are then final."""
        now = self._clock.now()
        for action in actions:
            self._end(action.node, now)
        self._save_if_possible()
        return {action.node: Accepted() for action in actions}

    def _end(self, name: NodeId, at: float) -> None:
        node = self._live.pop(name, None)
        if node is not None:
            self._ended.append(replace(node, phase="terminated", ended_at=at, idle_since=None))

    def rehearse_end(self, node: NodeId) -> float | None:
        """Announce that a node ends two minutes from now, and return that instant; None if it is not live."""
        if node not in self._live:
            return None
        found = self._live[node]
        at = self._clock.now() + WARNING_SECONDS if found.ends_by is None else found.ends_by
        self._live[node] = replace(found, ends_by=at)
        self._save_if_possible()
        return at

    def _save_if_possible(self) -> None:
        """Write the file; what a full disk refuses now is written by a later call."""
        with suppress(OSError):
            self._save()

    def _save(self) -> None:
        if self._file is not None:
            nodes, ended = ([asdict(node) for node in group] for group in (self._live.values(), self._ended))
            document = {"launches": self._launches, "nodes": nodes, "ended": ended}
            if document == self._saved:
                return
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._file, document)
            self._saved = document


def _node(row: Mapping[str, Any]) -> NodeState:
    """Return a node from its row in the file."""
    values = {
        **row,
        "instance_type": InstanceType(**row["instance_type"]),
        "gpus": tuple(row["gpus"]),
        "prices": tuple((at, price) for at, price in row["prices"]),
    }
    return NodeState(**values)
