"""The gate's server: listens on unix sockets and TCP ports; all connections share one broker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from boa_daemon.gate.broker import Broker
from boa_daemon.gate.connection import Connection
from boa_daemon.gate.status import status_of, view_of
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.token import issue_token
from boa_daemon.tick.facts.state import GateView
from policies.model import JobId

MOST_CONNECTIONS = 4096
CLOSING_TURNS = 5
"""Turns of the event loop that let accepted connections register, and closed ones leave, before the end."""


class GateServer:
    """One gate, in one event loop. `start` listens; `close` ends all connections."""

    def __init__(self, settings: GateSettings, secret: str) -> None:
        # Fences keep rising across restarts, so that no two leases have the same one.
        self.broker = Broker(settings, first_fence=time.time_ns() // 1000, now=time.monotonic())
        self.refusals: Counter[str] = Counter()
        self.settings = settings
        self._secret = secret
        self._started_at = time.monotonic()
        self._connections: set[Connection] = set()
        self._by_job: dict[JobId, Connection] = {}
        self._generations: dict[JobId, int] = {}
        self._servers: list[asyncio.Server] = []
        self._paths: list[Path] = []
        self._wake: asyncio.TimerHandle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._judge: asyncio.TimerHandle | None = None

    async def start(self, *addresses: GateAddress) -> list[GateAddress]:
        """Listen, and return the addresses; port 0 is replaced by a free port.

        Raises:
            OSError: when the server cannot listen on an address.
        """
        loop = asyncio.get_running_loop()
        bound = []
        for address in addresses:
            if address.path:
                path = Path(address.path)
                path.parent.mkdir(parents=True, exist_ok=True)
                _remove_stale(address)
                mask = os.umask(0o117)
                try:
                    server = await loop.create_unix_server(lambda: Connection(self), path)
                finally:
                    os.umask(mask)
                self._paths.append(path)
                bound.append(address)
            else:
                server = await loop.create_server(lambda: Connection(self), address.host, address.port)
                port = server.sockets[0].getsockname()[1]
                bound.append(GateAddress(host=address.host, port=port))
            self._servers.append(server)
        self._judge = loop.call_later(self.settings.evaluate_seconds, self._judge_again)
        return bound

    @property
    def is_listening(self) -> bool:
        """Whether all sockets are open, and a unix socket's file is still there."""
        return all(server.is_serving() for server in self._servers) and all(
            path.exists() for path in self._paths
        )

    async def close(self) -> None:
        """Stop listening and close all connections; every job then sends without asking."""
        for timer in (self._wake, self._beat, self._judge):
            if timer is not None:
                timer.cancel()
        # Accept no new connections, and give those just accepted time: asyncio leaks a connection whose
        # server is closed before the connection has its transport.
        loop = asyncio.get_running_loop()
        for server in self._servers:
            for listening in server.sockets:
                loop.remove_reader(listening.fileno())
        for _ in range(CLOSING_TURNS):
            for connection in list(self._connections):
                connection.hang_up()
            await asyncio.sleep(0)
        for server in self._servers:
            server.close()
            await server.wait_closed()
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def settle(self) -> None:
        """Send the grants that are due, and set a timer for the next time that some may be due."""
        now = time.monotonic()
        for grant in self.broker.settle(now):
            connection = self._by_job.get(grant.job)
            if connection is not None:
                connection.send(
                    {
                        "op": "grant",
                        "id": grant.id,
                        "fence": grant.fence,
                        "bytes": min(grant.bytes, 1e18),
                        "lease_seconds": grant.lease_seconds,
                        "free_iterations": grant.free_iterations,
                        "overhead_fraction": grant.overhead_fraction,
                    }
                )
        loop = asyncio.get_running_loop()
        wake = self.broker.next_wake(now)
        if self._wake is not None:
            self._wake.cancel()
        self._wake = None if wake is None else loop.call_later(max(0.0, wake - now), self.settle)

    def _beat_all(self) -> None:
        self._beat = None
        for job in list(self._by_job):
            self.say_wait(job)
        self.settle()

    def _judge_again(self) -> None:
        """Settle periodically, so that cards are judged again even without requests."""
        self.settle()
        self._judge = asyncio.get_running_loop().call_later(self.settings.evaluate_seconds, self._judge_again)

    def say_wait(self, job: JobId) -> None:
        """Send a `wait` frame to a job, if it has to wait, and repeat it every beat."""
        seat = self.broker.seats.get(job)
        if seat is not None and seat.ask is not None:
            self._by_job[job].send({"op": "wait", "id": seat.ask.id})
            if self._beat is None:
                loop = asyncio.get_running_loop()
                self._beat = loop.call_later(self.settings.beat_seconds, self._beat_all)

    def admit(self, connection: Connection) -> None:
        """Add a connection, or refuse it if there are too many."""
        self._connections.add(connection)
        if len(self._connections) > MOST_CONNECTIONS:
            connection.refuse("too many connections")

    def seat(
        self, connection: Connection, job: JobId, *, nics: frozenset[str], gpus: int, weight: float
    ) -> None:
        """Add a job that has authenticated itself; close its older connection."""
        older = self._by_job.pop(job, None)
        if older is not None:
            older.job = ""
            older.refuse("the same job connected again")
        self._by_job[job] = connection
        self.broker.join(job, nics=nics, gpus=gpus, weight=weight, now=time.monotonic())
        self.settle()

    def gone(self, connection: Connection) -> None:
        """Remove a connection, and its job."""
        self._connections.discard(connection)
        if connection.job and self._by_job.get(connection.job) is connection:
            del self._by_job[connection.job]
            self.broker.leave(connection.job, time.monotonic())
            self.settle()

    def token_of(self, role: str, job: JobId, generation: int) -> str:
        """Return the token that a caller must have."""
        return issue_token(self._secret, role=role, job=job, generation=generation)

    def newest_generation(self, job: JobId) -> int:
        """Return the newest known generation of a job, from the plan or from its connection."""
        seated = self._by_job.get(job)
        return max(self._generations.get(job, 0), 0 if seated is None else seated.generation)

    def take_plan(self, remaining_gpu_seconds: dict[JobId, float], generations: dict[JobId, int]) -> None:
        """Use the daemon's plan until the next one."""
        self._generations = dict(generations)
        self.broker.take_plan(remaining_gpu_seconds)

    def view(self) -> GateView:
        """Return the gate's links and jobs, for a tick."""
        return view_of(self.broker, time.monotonic())

    def status(self) -> dict[str, Any]:
        """Return the status of the broker and of the server."""
        now = time.monotonic()
        return {
            "uptime_seconds": now - self._started_at,
            "connections": len(self._connections),
            "refusals": dict(self.refusals),
            **status_of(self.broker, now),
        }


def _remove_stale(address: GateAddress) -> None:
    """Remove the socket of a gate that died.

    Raises:
        FileExistsError: when something listens there, or the file is not a socket.
    """
    path = Path(address.path)
    if not path.exists():
        return
    if not path.is_socket():
        raise FileExistsError(f"{path} exists and is no socket")
    try:
        address.connect(timeout_seconds=0.2).close()
    except OSError:
        path.unlink(missing_ok=True)
    else:
        raise FileExistsError(f"another gate listens on {path}")
