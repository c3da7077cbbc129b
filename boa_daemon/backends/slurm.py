"""The `slurm` cloud: the nodes of a Slurm cluster, a partition for an instance type and at its own price.

Nobody bills them through BOA: an owned partition costs nothing, or what its site charges for it. To launch is
to choose nodes that no job of Slurm uses; a node that Slurm has powered down is powered up first. The chosen
nodes are in a file, so they and their bills outlive the daemon. Each time that a node is chosen it is a new
node of BOA, with a life of its own (`boa_daemon.tick.node_lives`).

Slurm's list is read at each tick. A node that is down there has ended; one that an administrator drains, or
that a job of somebody else has got meanwhile, is taken back with the warning of a spot node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from boa_daemon.job.unit import read_json, write_json
from boa_daemon.slurm.class_comment import is_of_engine
from boa_daemon.slurm.commands import Slurm, SlurmJob, SlurmNode, SlurmRefused, SlurmSilent
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.node_lives import instance_of, life_named
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import WARNING_SECONDS, Accepted, Clock, Launched, Provider, Refused, Unknown
from boa_daemon.tick.facts.state import NodeState
from policies.model import InstanceType, NodeId

RETRY_SECONDS = 30.0
"""Seconds until a full partition is asked again."""
FREE_USD_PER_HOUR = 1e-4
"""What a plan assumes for a node that costs nothing; its bill is nothing."""
BOOT_SECONDS = 1800.0
"""A node that Slurm powers up, and that has not joined after this time, is given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """What BOA may take of a partition: the price of a node, and how many nodes at the most (None: all)."""

    name: str
    usd_per_hour: float = 0.0
    most_nodes: int | None = None

    @property
    def planned_usd_per_hour(self) -> float:
        """The price of a node in plans, which is never nothing."""
        return max(self.usd_per_hour, FREE_USD_PER_HOUR)


class SlurmCloud(Provider):
    """A `Provider` whose instance types are the partitions of a Slurm cluster."""

    rents_spot = False

    def __init__(
        self, slurm: Slurm, clock: Clock, *, partitions: Mapping[str, Partition], file: Path
    ) -> None:
        self.slurm, self._clock, self._partitions, self._file = slurm, clock, partitions, file
        self._live: dict[NodeId, NodeState] = {}
        self._ended: list[NodeState] = []
        self._lives: dict[str, int] = {}
        self._powered: set[str] = set()
        self._saved: dict[str, Any] = {}
        self._silence = ""
        if file.exists():
            # Read once more where this finds nothing: a disk that fails must not look like one without nodes.
            document = read_json(file) or json.loads(file.read_text())
            self._lives = {name: int(number) for name, number in document["lives"].items()}
            self._powered = set(document["powered"])
            self._live = {row["id"]: _node(row) for row in document["nodes"]}
            self._ended = [_node(row) for row in document["ended"]]

    def _listed(self) -> tuple[dict[str, SlurmNode], list[SlurmJob]] | None:
        """Return Slurm's nodes by name and its jobs; None if it does not answer."""
        try:
            nodes, jobs = self.slurm.nodes(), self.slurm.jobs()
        except (SlurmSilent, SlurmRefused) as error:
            self._silence = str(error)
            return None
        self._silence = ""
        return {node.name: node for node in nodes}, jobs

    def nodes(self) -> Sequence[NodeState]:
        """Return the live nodes, and the nodes that ended since the last call."""
        found = self._listed()
        if found is not None:
            known, jobs = found
            taken = _taken_by_others(jobs)
            for name in list(self._live):
                self._observe(name, known.get(instance_of(name)), instance_of(name) in taken)
        listed = [*self._live.values(), *self._ended]
        self._ended = []
        self._save_if_possible()
        return listed

    def _observe(self, name: NodeId, found: SlurmNode | None, is_taken: bool) -> None:
        """Take over what Slurm says of a live node."""
        node, now = self._live[name], self._clock.now()
        is_late = node.phase == "requested" and now - node.launched_at > BOOT_SECONDS
        if found is None or found.is_lost or is_late or (node.ends_by is not None and now >= node.ends_by):
            self._end(name, now)
        elif found.is_leaving or is_taken:
            if node.ends_by is None:
                self._live[name] = replace(node, ends_by=now + WARNING_SECONDS)
        elif node.phase == "requested" and found.is_up:
            self._live[name] = replace(node, phase="ready", idle_since=now)
        elif node.ends_by is not None:
            # The administrator has resumed it.
            self._live[name] = replace(node, ends_by=None)

    def offers(self) -> Sequence[Offer]:
        """Return an offer for each partition, at its price, with the nodes that are free now."""
        found = self._listed()
        return [
            Offer(
                instance_type=one.name,
                usd_per_hour=one.planned_usd_per_hour,
                nodes_left=None if found is None else len(self._free(one)),
                pool=one.name,
            )
            for one in self._partitions.values()
        ]

    def _free(self, partition: Partition) -> list[SlurmNode]:
        """Return the nodes of a partition that may be taken now, those that are up first."""
        held = {instance_of(name) for name in self._live}
        try:
            nodes = self.slurm.nodes()
        except (SlurmSilent, SlurmRefused):
            return []
        free = [
            node
            for node in nodes
            if node.partition == partition.name and node.is_free and node.name not in held
        ]
        free.sort(key=lambda node: "~" in node.marks)
        if partition.most_nodes is None:
            return free
        ours = sum(node.instance_type.name == partition.name for node in self._live.values())
        return free[: max(partition.most_nodes - ours, 0)]

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Take free nodes of a partition. A repeated action takes no more; a gang gets all or none."""
        known = tuple(node.id for node in self._live.values() if node.launched_by == action.id)
        if known:
            return Launched(nodes=known)
        partition = self._partitions.get(action.instance_type.name)
        if partition is None:
            return Refused(reason=f"no partition {action.instance_type.name} is set up", kind="bad-request")
        if self._listed() is None:
            return Refused(reason=self._silence, retry_after_seconds=RETRY_SECONDS)
        chosen = self._free(partition)[: action.count]
        if not chosen or (action.is_gang and len(chosen) < action.count):
            return _full(partition)
        names = tuple(self._take(node, partition, action) for node in chosen)
        asleep = [node.name for node in chosen if "~" in node.marks]
        self._powered |= set(asleep)
        try:
            self._save()
            if asleep:
                self.slurm.update_nodes(asleep, state="power_up")
        except (OSError, SlurmRefused) as error:
            # A node that is not on disk is forgotten by the next daemon, with the job that runs there.
            for name in names:
                del self._live[name]
            self._powered -= set(asleep)
            self._save_if_possible()
            kind: Any = "denied" if isinstance(error, SlurmRefused) else "busy"
            return Refused(reason=f"the nodes cannot be taken: {error}", kind=kind)
        except SlurmSilent:
            # They are on disk, and are given back if Slurm never shows them up.
            return Launched(nodes=names)
        return Launched(nodes=names, short=None if len(names) == action.count else _full(partition))

    def _take(self, node: SlurmNode, partition: Partition, action: LaunchNodes) -> NodeId:
        """Enter a node as taken; odd lives run."""
        life = self._lives.get(node.name, -1) + 2
        self._lives[node.name] = life
        name, now = life_named(node.name, life), self._clock.now()
        self._live[name] = NodeState(
            id=name,
            instance_type=action.instance_type,
            phase="requested",
            launched_at=now,
            gpus=(None,) * action.instance_type.gpus,
            launched_by=action.id,
            prices=((now, partition.usd_per_hour),),
        )
        return name

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Give nodes back to Slurm, which powers down those that were powered up for us."""
        now = self._clock.now()
        for action in actions:
            self._end(action.node, now)
        self._save_if_possible()
        return {action.node: Accepted() for action in actions}

    def _end(self, name: NodeId, at: float) -> None:
        node = self._live.pop(name, None)
        if node is None:
            return
        self._ended.append(replace(node, phase="terminated", ended_at=at, idle_since=None))
        host = instance_of(name)
        if host in self._powered:
            self._powered.discard(host)
            # Slurm suspends an idle node by itself in any case, once its SuspendTime is over.
            with suppress(SlurmSilent, SlurmRefused):
                self.slurm.update_nodes([host], state="power_down")

    def notes(self) -> Sequence[str]:
        """Return that Slurm does not answer, if so."""
        return [f"{self._silence}: its nodes count as they were last seen"] if self._silence else []

    def list_prices(self) -> Mapping[str, float]:
        """Return the planning prices of the partitions."""
        return {name: one.planned_usd_per_hour for name, one in self._partitions.items()}

    def rehearse_end(self, node: NodeId) -> float | None:
        """Announce that a node is taken back two minutes from now; None if it is not live."""
        if node not in self._live:
            return None
        at = self._clock.now() + WARNING_SECONDS
        self._live[node] = replace(self._live[node], ends_by=at)
        self._save_if_possible()
        return at

    def _save_if_possible(self) -> None:
        """Write the file; what a full disk refuses now is written by a later call."""
        with suppress(OSError):
            self._save()

    def _save(self) -> None:
        nodes, ended = ([asdict(node) for node in group] for group in (self._live.values(), self._ended))
        document = {"lives": self._lives, "powered": sorted(self._powered), "nodes": nodes, "ended": ended}
        if document == self._saved:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._file, document)
        self._saved = document


def _full(partition: Partition) -> Refused:
    reason = f"no node of the partition {partition.name} is free"
    return Refused(reason=reason, kind="no-capacity", retry_after_seconds=RETRY_SECONDS)


def _taken_by_others(jobs: Sequence[SlurmJob]) -> frozenset[str]:
    """Return the nodes on which only jobs run that are not ours."""
    ours = {host for job in jobs if is_of_engine(job.comment) for host in job.hosts}
    theirs = {host for job in jobs if job.is_live and not is_of_engine(job.comment) for host in job.hosts}
    return frozenset(theirs - ours)


def _node(row: Mapping[str, Any]) -> NodeState:
    """Return a node from its row in the file."""
    values = {
        **row,
        "instance_type": InstanceType(**row["instance_type"]),
        "gpus": tuple(row["gpus"]),
        "prices": tuple((at, price) for at, price in row["prices"]),
        "extras": (),
        "tiers": (),
    }
    return NodeState(**values)
