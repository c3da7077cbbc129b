"""A cloud in a file: nodes that boot on the wall clock, cost money on paper, and outlive the daemon.

It stands for another party: what it was asked for it keeps, whatever becomes of the process that asked. The
same token asks for the same nodes, a listing shows ended nodes for an hour, and the meter of a node runs from
launch to termination. What runs on its nodes runs on this machine, by the `local` engine.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from boa_daemon.tick.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.codec import dumps, loads
from boa_daemon.tick.ledger import bill
from boa_daemon.tick.offers import Offer
from boa_daemon.tick.ports import Accepted, Clock, Launched, Provider, Refused
from boa_daemon.tick.state import NodePhase, NodeState
from policies.model import NodeId

SHOWN_SECONDS = 3600.0
_SCHEMA = """CREATE TABLE IF NOT EXISTS nodes (
    id TEXT PRIMARY KEY, token TEXT NOT NULL, node TEXT NOT NULL, ready_at REAL NOT NULL, ended_at REAL)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLimits:
    """What the simulated cloud allows: seconds to boot, and nodes in all (None: as many as you like)."""

    boot_seconds: float = 5.0
    stock: int | None = None


class FileCloud(Provider):
    """Implements `Provider` on a SQLite file of its own."""

    def __init__(
        self, path: Path, clock: Clock, *, limits: SimulatedLimits | None = None, durable: bool = True
    ) -> None:
        self._clock, self._limits, self._lock = clock, limits or SimulatedLimits(), Lock()
        self._file = sqlite3.connect(path, check_same_thread=False)
        self._file.execute("PRAGMA journal_mode=WAL").close()
        self._file.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}").close()
        with self._file:
            self._file.execute(_SCHEMA).close()

    def close(self) -> None:
        """Close the file; the nodes stay."""
        self._file.close()

    def nodes(self) -> Sequence[NodeState]:
        """Return the nodes that live, and those that ended within the hour."""
        now = self._clock.now()
        return [
            self._as_of(loads(text), ready_at, ended_at, now) for text, ready_at, ended_at in self._rows(now)
        ]

    def _rows(self, now: float) -> list[tuple[str, float, float | None]]:
        """Return the rows that a listing shows."""
        query = "SELECT node, ready_at, ended_at FROM nodes WHERE ended_at IS NULL OR ended_at > ?"
        with self._lock, closing(self._file.execute(query, (now - SHOWN_SECONDS,))) as cursor:
            return cursor.fetchall()

    def _as_of(self, node: NodeState, ready_at: float, ended_at: float | None, now: float) -> NodeState:
        """Return a node as it is now."""
        phase: NodePhase = "ready" if now >= ready_at else "requested"
        return NodeState(
            id=node.id,
            instance_type=node.instance_type,
            phase=phase if ended_at is None else "terminated",
            launched_at=node.launched_at,
            gpus=(None,) * node.instance_type.gpus,
            launched_by=node.launched_by,
            ended_at=ended_at,
            idle_since=ready_at if phase == "ready" and ended_at is None else None,
        )

    def offers(self) -> Sequence[Offer]:
        """Return nothing: one zone, and types have their own prices."""
        return ()

    def launch(self, action: LaunchNodes) -> Launched | Refused:
        """Rent nodes; the same action id gives the same nodes."""
        with self._lock, self._file:
            known = [
                row[0]
                for row in self._file.execute(
                    "SELECT id FROM nodes WHERE token = ? ORDER BY id", (action.id,)
                )
            ]
            if known:
                return Launched(nodes=tuple(known))
            (live,) = self._file.execute("SELECT count(*) FROM nodes WHERE ended_at IS NULL").fetchone()
            count = action.count if self._limits.stock is None else self._limits.stock - live
            if count < (action.count if action.is_gang else 1):
                return Refused(reason="the simulated cloud has no stock left", kind="no-capacity")
            names = tuple(f"sim-{action.id}-{number}" for number in range(min(count, action.count)))
            self._file.executemany(
                "INSERT INTO nodes VALUES (?, ?, ?, ?, NULL)",
                [(name, action.id, self._described(name, action), self._ready_at()) for name in names],
            ).close()
        short = None
        if len(names) < action.count:
            short = Refused(reason="the simulated cloud has no more", kind="no-capacity")
        return Launched(nodes=names, short=short)

    def _ready_at(self) -> float:
        """Return when a node that is launched now is ready."""
        return self._clock.now() + self._limits.boot_seconds

    def _described(self, name: NodeId, action: LaunchNodes) -> str:
        """Return a new node as text."""
        return dumps(
            NodeState(
                id=name,
                instance_type=action.instance_type,
                phase="requested",
                launched_at=self._clock.now(),
                gpus=(),
                launched_by=action.id,
            )
        )

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused]:
        """Give nodes back at once."""
        now = self._clock.now()
        with self._lock, self._file:
            self._file.executemany(
                "UPDATE nodes SET ended_at = ? WHERE id = ? AND ended_at IS NULL",
                [(now, action.node) for action in actions],
            ).close()
        return {action.node: Accepted() for action in actions}

    def interrupt(self, node: NodeId) -> None:
        """End a node as the cloud does: for tests and rehearsals."""
        self.terminate([TerminateNode(id="interrupted", node=node, reason="the cloud took it back")])

    def everything(self) -> list[NodeState]:
        """Return every node that there ever was, however long ago it ended."""
        now = self._clock.now()
        with self._lock:
            rows = self._file.execute("SELECT node, ready_at, ended_at FROM nodes").fetchall()
        return [self._as_of(loads(text), ready_at, ended_at, now) for text, ready_at, ended_at in rows]

    def bill_micro_dollars(self) -> int:
        """Return what the cloud will bill for every node so far, from its own records."""
        now = self._clock.now()
        with self._lock:
            rows = self._file.execute("SELECT node, ended_at FROM nodes").fetchall()
        return sum(bill(loads(text), until=now if ended is None else ended) for text, ended in rows)
