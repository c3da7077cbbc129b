"""The gate's server: frames in and out over a unix socket and TCP, one broker behind them.

Everything a stranger or a broken job can do is bounded: time to say hello, length of a frame, frames per second,
connections, bytes not read. Whoever breaks a rule gets one `refused` frame with the reason, and is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from boa_daemon.gate import wire
from boa_daemon.gate.address import GateAddress
from boa_daemon.gate.broker import Broker
from boa_daemon.gate.guard import Rate
from boa_daemon.gate.nouns import Ask, GateSettings
from boa_daemon.gate.status import status_of
from boa_daemon.gate.token import JOB, PLANNER, is_proof, issue_token, new_nonce
from policies.model import JobId

HELLO_SECONDS = 2.0
MOST_CONNECTIONS = 4096
MOST_UNREAD_BYTES = 1 << 16
MOST_GPUS = 1_000_000


class GateServer:
    """One gate. `start` listens; `close` ends everything. Belongs to one event loop."""

    def __init__(self, settings: GateSettings, secret: str) -> None:
        # Fences go on rising over a restart, so that no two leases ever share one.
        self.broker = Broker(settings, first_fence=time.time_ns() // 1000, now=time.monotonic())
        self.refusals: Counter[str] = Counter()
        self.settings = settings
        self._secret = secret
        self._started_at = time.monotonic()
        self._connections: set[Connection] = set()
        self._by_job: dict[JobId, Connection] = {}
        self._servers: list[asyncio.Server] = []
        self._paths: list[Path] = []
        self._wake: asyncio.TimerHandle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._judge: asyncio.TimerHandle | None = None

    async def start(self, *addresses: GateAddress) -> list[GateAddress]:
        """Listen, and return where: a port of 0 becomes a free one.

        Raises:
            OSError: when an address cannot be had.
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

    async def close(self) -> None:
        """Stop listening and hang up: every job then sends without asking."""
        for timer in (self._wake, self._beat, self._judge):
            if timer is not None:
                timer.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.hang_up()
        for server in self._servers:
            await server.wait_closed()
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def settle(self) -> None:
        """Send the grants that are due, and set the alarm for what happens next by itself."""
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
        if self._beat is None and any(seat.ask is not None for seat in self.broker.seats.values()):
            self._beat = loop.call_later(self.settings.beat_seconds, self._beat_all)

    def _beat_all(self) -> None:
        """Tell all who wait that the gate is alive."""
        self._beat = None
        for job in list(self._by_job):
            self.say_wait(job)
        self.settle()

    def _judge_again(self) -> None:
        """Look at the cards again now and then, also when nobody asks."""
        self.settle()
        self._judge = asyncio.get_running_loop().call_later(self.settings.evaluate_seconds, self._judge_again)

    def say_wait(self, job: JobId) -> None:
        """Tell a job that it has to wait, if it has."""
        seat = self.broker.seats.get(job)
        if seat is not None and seat.ask is not None:
            self._by_job[job].send({"op": "wait", "id": seat.ask.id})

    def admit(self, connection: Connection) -> None:
        """Take in a connection, or refuse it where there are too many."""
        self._connections.add(connection)
        if len(self._connections) > MOST_CONNECTIONS:
            connection.refuse("too many connections")

    def seat(
        self, connection: Connection, job: JobId, *, nics: frozenset[str], gpus: int, weight: float
    ) -> None:
        """Seat a job whose proof was good; its older connection is cut."""
        older = self._by_job.pop(job, None)
        if older is not None:
            older.job = ""
            older.refuse("the same job connected again")
        self._by_job[job] = connection
        self.broker.join(job, nics=nics, gpus=gpus, weight=weight, now=time.monotonic())
        self.settle()

    def gone(self, connection: Connection) -> None:
        """Forget a connection, and the job behind it."""
        self._connections.discard(connection)
        if connection.job and self._by_job.get(connection.job) is connection:
            del self._by_job[connection.job]
            self.broker.leave(connection.job, time.monotonic())
            self.settle()

    def token_of(self, role: str, job: JobId) -> str:
        """Return the token that a caller must hold."""
        return issue_token(self._secret, role=role, job=job)

    def status(self) -> dict[str, Any]:
        """Return the status: the broker's, and the server's own."""
        now = time.monotonic()
        return {
            "uptime_seconds": now - self._started_at,
            "connections": len(self._connections),
            "refusals": dict(self.refusals),
            **status_of(self.broker, now),
        }


class Connection(asyncio.Protocol):
    """One caller: a stranger until its proof is good, then a job or the planner."""

    def __init__(self, server: GateServer) -> None:
        self.job: JobId = ""
        self._server = server
        self._role = ""
        self._nonce = new_nonce()
        self._frames = wire.FrameBuffer()
        self._rate = Rate()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Challenge the caller, who has little time to answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=MOST_UNREAD_BYTES)
        self._deadline = asyncio.get_running_loop().call_later(HELLO_SECONDS, self.refuse, "no hello in time")
        self.send({"op": "challenge", "nonce": self._nonce, "version": wire.VERSION})
        self._server.admit(self)

    def data_received(self, data: bytes) -> None:
        """Obey the frames, one after another; the first wrong one ends the connection."""
        try:
            frames = self._frames.feed(data)
            now = time.monotonic()
            for frame in frames:
                if self._transport is None or self._transport.is_closing():
                    return
                if not self._rate.allows(now):
                    raise wire.MalformedFrame("flood: too many frames per second")
                self._obey(frame, now)
        except wire.MalformedFrame as fault:
            self.refuse(str(fault))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the server; a lease that the caller held ends."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._transport = None
        self._server.gone(self)

    def pause_writing(self) -> None:
        """Cut off a caller who does not read."""
        if self._role != PLANNER and self._transport is not None:
            self._server.refusals["does not read"] += 1
            self._transport.abort()

    def send(self, frame: dict[str, Any]) -> None:
        """Send a frame, if the caller is still there."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(wire.encode(frame))

    def refuse(self, reason: str) -> None:
        """Say why, and hang up."""
        self._server.refusals[reason.split(":", maxsplit=1)[0]] += 1
        self.send({"op": "refused", "reason": reason})
        if self._transport is not None:
            self._transport.close()

    def hang_up(self) -> None:
        """Close without a word."""
        if self._transport is not None:
            self._transport.abort()

    def _obey(self, frame: dict[str, Any], now: float) -> None:
        """Do what a frame asks for, if its sender may ask for it."""
        verb = wire.word(frame, "op")
        if not self._role:
            if verb != "hello":
                raise wire.MalformedFrame("say hello first")
            self._greet(frame)
        elif self._role == JOB and verb in ("ask", "done", "cancel"):
            self._obey_job(verb, frame, now)
            self._server.settle()
            if verb == "ask":
                self._server.say_wait(self.job)
        elif self._role == PLANNER and verb == "status":
            self.send({"op": "status", "status": self._server.status()})
        elif self._role == PLANNER and verb == "plan":
            self._server.broker.take_plan(_plan(frame))
        else:
            raise wire.MalformedFrame(f"a {self._role} cannot {verb!r}")

    def _greet(self, frame: dict[str, Any]) -> None:
        """Check who calls; seat a job."""
        if frame.get("version") != wire.VERSION:
            raise wire.MalformedFrame(
                f"this gate speaks version {wire.VERSION}; got {frame.get('version')!r}"
            )
        role, proof = wire.word(frame, "role"), wire.word(frame, "proof")
        job = wire.word(frame, "job") if role == JOB else ""
        token = self._server.token_of(role, job)
        if role not in (JOB, PLANNER) or not is_proof(proof, token=token, nonce=self._nonce):
            raise wire.MalformedFrame("wrong token")
        if role == JOB:
            nics, gpus = wire.words(frame, "nics"), wire.whole(frame, "gpus", least=1)
            weight = wire.number(frame, "weight", least=1e-9, most=1e9)
            if gpus > MOST_GPUS:
                raise wire.MalformedFrame(f"gpus must be at most {MOST_GPUS}")
        if self._deadline is not None:
            self._deadline.cancel()
        self._role = role
        settings = self._server.settings
        self.send({"op": "welcome", "policy": settings.policy, "beat_seconds": settings.beat_seconds})
        if role == JOB:
            self.job = job
            self._server.seat(self, job, nics=nics, gpus=gpus, weight=weight)

    def _obey_job(self, verb: str, frame: dict[str, Any], now: float) -> None:
        """Pass a job's frame on to the broker."""
        broker = self._server.broker
        if verb == "cancel":
            broker.cancel(self.job, now)
            return
        if verb == "done" or frame.get("fence") is not None:
            broker.done(self.job, wire.whole(frame, "fence"), wire.maybe_number(frame, "seconds"), now)
        if verb == "ask":
            broker.ask(self.job, _ask(frame), now)


def _ask(frame: dict[str, Any]) -> Ask:
    """Return the question in a frame."""
    return Ask(
        id=wire.whole(frame, "id"),
        ready_bytes=wire.number(frame, "ready_bytes"),
        message_bytes=wire.number(frame, "message_bytes"),
        iteration_bytes=wire.maybe_number(frame, "iteration_bytes") or 0.0,
        iterations_left=wire.maybe_number(frame, "iterations_left"),
        compute_seconds=wire.maybe_number(frame, "compute_seconds"),
        exposed_seconds=wire.maybe_number(frame, "exposed_seconds"),
        round_trip_seconds=wire.maybe_number(frame, "round_trip_seconds"),
    )


def _plan(frame: dict[str, Any]) -> dict[JobId, float]:
    """Return what the daemon's plan says is left of each job, GPU-seconds."""
    left = frame.get("remaining_gpu_seconds")
    if not isinstance(left, dict):
        raise wire.MalformedFrame("remaining_gpu_seconds must be an object of numbers by job")
    return {job: wire.number(left, job) for job in left}


def _remove_stale(address: GateAddress) -> None:
    """Remove the socket of a gate that died.

    Raises:
        FileExistsError: when something listens there, or the file is no socket.
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
