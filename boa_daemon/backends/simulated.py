"""A simulated cloud in a SQLite file: nodes boot in real time, cost no real money, and outlive the daemon.

The cloud keeps its nodes whatever happens to the process that launched them. The same token returns the
same nodes, a listing shows ended nodes for an hour, and a node is billed from launch to termination. A
stopped node has a row of its own, and so has its next run: they are lives of one instance. Jobs on these
nodes run on this machine, by the `local` engine.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.codec import dumps, loads
from boa_daemon.tick.facts.node_lives import next_life
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import WARNING_SECONDS, Accepted, Clock, Launched, Provider, Refused
from boa_daemon.tick.facts.state import DISK_USD_PER_HOUR, NodePhase, NodeState
from boa_daemon.tick.money.ledger import bill
from policies.memo import Memo
from policies.model import NodeId

SHOWN_SECONDS = 3600.0
RENEW_SECONDS, LEASE_SECONDS = 30.0, 180.0
"""Seconds between renewals of a wanted node, and seconds without a renewal after which it is a leak."""
MOST_READ = 20_000
"""Most rows whose nodes are kept in memory."""
_Row: TypeAlias = tuple[str, float, float | None, float | None, float | None]
_SCHEMA = """CREATE TABLE IF NOT EXISTS nodes (
    id TEXT PRIMARY KEY, token TEXT NOT NULL, node TEXT NOT NULL, ready_at REAL NOT NULL, ended_at REAL)"""
_NOTES = """CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, ends_by REAL, renewed_at REAL)"""
"""A table apart from `nodes`, so that files of earlier versions can be read unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLimits:
    """Limits of the simulated cloud: seconds to boot and to start, and nodes in all (None: no limit)."""

    boot_seconds: float = 5.0
    start_seconds: float = 1.0
    stock: int | None = None


class FileCloud(Provider):
    """A `Provider` on a SQLite file of its own."""

    rents_spot = False

    def __init__(
        self, path: Path, clock: Clock, *, limits: SimulatedLimits | None = None, durable: bool = True
    ) -> None:
        self._clock, self._limits, self._lock = clock, limits or SimulatedLimits(), Lock()
        self._renewed: dict[NodeId, float] = {}
        self._orders: dict[NodeId, tuple[float, bool]] = {}
        # A node's text never changes, and each tick lists all nodes.
        self._read = Memo[str, NodeState](loads, most=MOST_READ)
        self._file = sqlite3.connect(path, check_same_thread=False)
        self._file.execute("PRAGMA journal_mode=WAL").close()
        self._file.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}").close()
        with self._file:
            self._file.execute(_SCHEMA).close()
            self._file.execute(_NOTES).close()

    def close(self) -> None:
        """Close the file; the nodes stay."""
        self._file.close()

    def nodes(self) -> Sequence[NodeState]:
        """Return the live nodes, and the nodes that ended within the last hour."""
        now = self._clock.now()
        with suppress(sqlite3.OperationalError):
            self._carry_out()
            self._take_back(now)
        listed = [self._as_of(now, row) for row in self._rows(now - SHOWN_SECONDS)]
        return [self._with_order(node) for node in listed] if self._orders else listed

    def _with_order(self, node: NodeState) -> NodeState:
        """Return a node whose ordered end could not be written yet as ended."""
        order = self._orders.get(node.id)
        if order is None or node.ended_at is not None:
            return node
        return replace(node, phase="terminated", ended_at=order[0], ends_by=None, idle_since=None)

    def _rows(self, since: float) -> list[_Row]:
        """Return the rows of the live nodes, and of the nodes that ended after an instant."""
        query = (
            "SELECT nodes.node, ready_at, ended_at, ends_by, renewed_at FROM nodes "
            "LEFT JOIN notes USING (id) WHERE ended_at IS NULL OR ended_at > ?"
        )
        with self._lock, closing(self._file.execute(query, (since,))) as cursor:
            return cursor.fetchall()

    def _take_back(self, now: float) -> None:
        """End the nodes whose announced end has passed."""
        due = "SELECT id, ends_by FROM notes JOIN nodes USING (id) WHERE ended_at IS NULL AND ends_by <= ?"
        with self._lock, self._file:
            rows = self._file.execute(due, (now,)).fetchall()
            if rows:
                self._file.executemany(
                    "UPDATE nodes SET ended_at = ? WHERE id = ?", [(at, name) for name, at in rows]
                ).close()

    def _as_of(self, now: float, row: _Row) -> NodeState:
        text, ready_at, ended_at, ends_by, _renewed_at = row
        node = self._read[text]
        phase: NodePhase = "ready" if now >= ready_at else "requested"
        if node.phase == "stopped":
            phase = "stopped"
        return NodeState(
            id=node.id,
            instance_type=node.instance_type,
            phase=phase if ended_at is None else "terminated",
            launched_at=node.launched_at,
            gpus=() if phase == "stopped" else (None,) * node.instance_type.gpus,
            prices=node.prices,
            extras=node.extras,
            launched_by=node.launched_by,
            ended_at=ended_at,
            ends_by=ends_by if ended_at is None else None,
            idle_since=ready_at if phase == "ready" and ended_at is None else None,
        )

    def offers(self) -> Sequence[Offer]:
        """Return no offers: there is one zone, and each type has its own price."""
        return ()

    def launch(self, action: LaunchNodes) -> Launched | Refused:
        """Rent nodes; a repeated action id returns the same nodes."""
        with self._lock, self._file:
            known = [
                row[0]
                for row in self._file.execute(
                    "SELECT id FROM nodes WHERE token = ? ORDER BY id", (action.id,)
                )
            ]
            if known:
                return Launched(nodes=tuple(known))
            # A stopped node has no token and does not count against the stock.
            living = "SELECT count(*) FROM nodes WHERE ended_at IS NULL AND token <> ''"
            (live,) = self._file.execute(living).fetchone()
            count = action.count if self._limits.stock is None else self._limits.stock - live
            if count < (action.count if action.is_gang else 1):
                return Refused(reason="the simulated cloud has no stock left", kind="no-capacity")
            count = min(count, action.count)
            started = self._end([name for name in action.starts[:count] if self._is_stopped(name)])
            fresh = [f"sim-{action.id}-{number}" for number in range(count - len(started))]
            names = (*(next_life(name) for name in started), *fresh)
            self._file.executemany(
                "INSERT INTO nodes VALUES (?, ?, ?, ?, NULL)",
                [
                    (name, action.id, self._described(name, action), self._ready_at(name in fresh))
                    for name in names
                ],
            ).close()
        short = None
        if len(names) < action.count:
            short = Refused(reason="the simulated cloud has no more", kind="no-capacity")
        return Launched(nodes=names, short=short)

    def _ready_at(self, is_new: bool) -> float:
        """Return when a node that is launched or started now is ready."""
        limits = self._limits
        return self._clock.now() + (limits.boot_seconds if is_new else limits.start_seconds)

    def _is_stopped(self, name: NodeId) -> bool:
        stopped = "SELECT 1 FROM nodes WHERE id = ? AND ended_at IS NULL AND token = ''"
        return self._file.execute(stopped, (name,)).fetchone() is not None

    def _end(self, names: Sequence[NodeId], *, at: float | None = None) -> list[NodeId]:
        """End live nodes within the open transaction; return the nodes that it ended."""
        now, ended = self._clock.now() if at is None else at, []
        for name in names:
            found = self._file.execute(
                "UPDATE nodes SET ended_at = ? WHERE id = ? AND ended_at IS NULL", (now, name)
            )
            if found.rowcount:
                ended.append(name)
        return ended

    def _stop(self, name: NodeId, *, at: float) -> None:
        """Begin the stopped life of a node whose run ended at an instant; only its disk costs money."""
        (text,) = self._file.execute("SELECT node FROM nodes WHERE id = ?", (name,)).fetchone()
        node = loads(text)
        stopped = replace(
            node,
            id=next_life(name),
            phase="stopped",
            launched_at=at,
            launched_by="",
            prices=((at, 0.0),),
            extras=(("disk", DISK_USD_PER_HOUR),),
        )
        self._file.execute(
            "INSERT INTO nodes VALUES (?, '', ?, ?, NULL)", (stopped.id, dumps(stopped), at)
        ).close()

    def _described(self, name: NodeId, action: LaunchNodes) -> str:
        """Return a new node as JSON text."""
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
        """End nodes at once; an action with `stops` keeps a running node stopped. A stopped node ends."""
        now = self._clock.now()
        for action in actions:
            self._orders.setdefault(action.node, (now, action.stops))
        with suppress(sqlite3.OperationalError):
            self._carry_out()
        return {action.node: Accepted() for action in actions}

    def _carry_out(self) -> None:
        """Write the ordered ends; an order that a full disk refuses is kept and written later.

        A real cloud needs no disk of the daemon's to end a node, so nodes end at the instant of the order.
        """
        orders = dict(self._orders)
        if not orders:
            return
        with self._lock, self._file:
            for name, (at, stops) in orders.items():
                keeps = stops and not self._is_stopped(name)
                if self._end([name], at=at) and keeps:
                    self._stop(name, at=at)
        for name in orders:
            self._orders.pop(name, None)

    def interrupt(self, node: NodeId) -> None:
        """End a node as the cloud would, for tests and rehearsals."""
        self.terminate([TerminateNode(id="interrupted", node=node, reason="the cloud took it back")])

    def rehearse_end(self, node: NodeId) -> float | None:
        """Announce that a node ends two minutes from now, and return that instant; None if it is not live."""
        at = self._clock.now() + WARNING_SECONDS
        with self._lock, self._file:
            lives = "SELECT 1 FROM nodes WHERE id = ? AND ended_at IS NULL"
            if self._file.execute(lives, (node,)).fetchone() is None:
                return None
            self._file.execute(
                "INSERT INTO notes (id, ends_by) VALUES (?, ?) "
                "ON CONFLICT (id) DO UPDATE SET ends_by = coalesce(ends_by, excluded.ends_by)",
                (node, at),
            ).close()
            (found,) = self._file.execute("SELECT ends_by FROM notes WHERE id = ?", (node,)).fetchone()
        return float(found)

    def renew(self, nodes: Collection[NodeId]) -> None:
        """Note which nodes the daemon wants; `boa gc` ends a node without a note for `LEASE_SECONDS`."""
        now = self._clock.now()
        due = [name for name in nodes if now - self._renewed.get(name, 0.0) >= RENEW_SECONDS]
        if not due:
            return
        with suppress(sqlite3.OperationalError), self._lock, self._file:
            # A lease that a full disk refuses is of no use to anybody: `boa gc` reads the same file.
            self._file.executemany(
                "INSERT INTO notes (id, renewed_at) VALUES (?, ?) "
                "ON CONFLICT (id) DO UPDATE SET renewed_at = excluded.renewed_at",
                [(name, now) for name in due],
            ).close()
        self._renewed = {name: now if name in due else self._renewed[name] for name in nodes}

    def unwanted(self) -> Mapping[NodeId, float]:
        """Return the live nodes not renewed for `LEASE_SECONDS`, as id to seconds since the last renewal."""
        now = self._clock.now()
        found = {}
        for text, _ready_at, ended_at, _ends_by, renewed_at in self._rows(now):
            node: NodeState = loads(text)
            silent = now - max(node.launched_at, renewed_at or 0.0)
            if ended_at is None and silent >= LEASE_SECONDS:
                found[node.id] = silent
        return found

    def everything(self) -> list[NodeState]:
        """Return every node since the file was made, live or ended."""
        now = self._clock.now()
        self._take_back(now)
        return [self._as_of(now, row) for row in self._rows(-1.0)]

    def bill_micro_dollars(self) -> int:
        """Return the bill of all nodes so far in micro-dollars, from the cloud's own records."""
        now = self._clock.now()
        self._take_back(now)
        with self._lock:
            rows = self._file.execute("SELECT node, ended_at FROM nodes").fetchall()
        return sum(bill(loads(text), until=now if ended is None else ended) for text, ended in rows)
