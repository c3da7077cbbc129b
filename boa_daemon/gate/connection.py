"""One connection to the gate: frames in and out, and limits on callers.

Limits bound what a stranger or a broken job can do: the time to say hello, the length of a frame, frames per
second, and unread bytes. A caller that exceeds a limit gets one `refused` frame with the reason, and is
disconnected.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from typing import Any, Protocol

from boa_daemon.gate.broker import Broker
from boa_daemon.gate.types import GateSettings, SendRequest
from boa_daemon.job.gate import wire
from boa_daemon.job.gate.bucket import TokenBucket
from boa_daemon.job.gate.token import JOB, PLANNER, as_gate, is_proof, new_nonce, prove
from policies.model import JobId

_LOG = logging.getLogger("boa.gate")
HELLO_SECONDS = 2.0
MOST_UNREAD_BYTES = 1 << 16
MOST_GPUS = 1_000_000
FRAMES_PER_SECOND = 5000.0
"""Twice the frames of a job that sends a message every half millisecond; also the size of a burst."""


class Host(Protocol):
    """The server, as its connections see it."""

    broker: Broker
    settings: GateSettings
    refusals: Counter[str]

    def admit(self, connection: Connection) -> None:
        """Add a connection, or refuse it if there are too many."""

    def seat(
        self, connection: Connection, job: JobId, *, nics: frozenset[str], gpus: int, weight: float
    ) -> None:
        """Add a job that has authenticated itself."""

    def gone(self, connection: Connection) -> None:
        """Remove a connection, and its job."""

    def token_of(self, role: str, job: JobId, generation: int) -> str:
        """Return the token that a caller must have."""
        ...

    def newest_generation(self, job: JobId) -> int:
        """Return the newest known generation of a job."""
        ...

    def take_plan(self, remaining_gpu_seconds: dict[JobId, float], generations: dict[JobId, int]) -> None:
        """Take over the daemon's plan."""

    def settle(self) -> None:
        """Send the grants that are due."""

    def say_wait(self, job: JobId) -> None:
        """Send a `wait` frame to a job, if it has to wait."""

    def status(self) -> dict[str, Any]:
        """Return the gate's status."""
        ...


class Connection(asyncio.Protocol):
    """The connection of one caller: unauthenticated at first, then a job or the planner."""

    def __init__(self, server: Host) -> None:
        self.job: JobId = ""
        self.generation = 0
        self._server = server
        self._role = ""
        self._nonce = new_nonce()
        self._frames = wire.FrameBuffer()
        self._rate = TokenBucket(FRAMES_PER_SECOND, FRAMES_PER_SECOND)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send a challenge, which the caller must answer within `HELLO_SECONDS`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        _keep_alive(transport.get_extra_info("socket"))
        transport.set_write_buffer_limits(high=MOST_UNREAD_BYTES)
        self._deadline = asyncio.get_running_loop().call_later(HELLO_SECONDS, self.refuse, "no hello in time")
        self.send({"op": "challenge", "nonce": self._nonce, "version": wire.VERSION})
        self._server.admit(self)

    def data_received(self, data: bytes) -> None:
        """Handle the frames in order; the first invalid one ends the connection."""
        try:
            frames = self._frames.feed(data)
            now = time.monotonic()
            for frame in frames:
                if self._transport is None or self._transport.is_closing():
                    return
                if self._rate.take() > 0.0:
                    raise wire.MalformedFrame("flood: too many frames per second")
                self._obey(frame, now)
        except wire.MalformedFrame as fault:
            self.refuse(str(fault))
        except Exception as fault:
            # An unexpected fault ends only this connection.
            _LOG.exception("a frame could not be obeyed")
            self.refuse(f"malformed: {type(fault).__name__}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the server, which ends the caller's lease."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._transport = None
        self._server.gone(self)

    def pause_writing(self) -> None:
        """Disconnect a caller that does not read its frames."""
        if self._role != PLANNER and self._transport is not None:
            self._server.refusals["does not read"] += 1
            self._transport.abort()

    def send(self, frame: dict[str, Any]) -> None:
        """Send a frame, if the connection is still open."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(wire.encode(frame))

    def refuse(self, reason: str) -> None:
        """Send a `refused` frame with the reason, and close the connection."""
        self._server.refusals[reason.split(":", maxsplit=1)[0]] += 1
        self.send({"op": "refused", "reason": reason})
        if self._transport is not None:
            self._transport.close()

    def hang_up(self) -> None:
        """Close the connection without a frame."""
        if self._transport is not None:
            self._transport.abort()

    def _obey(self, frame: dict[str, Any], now: float) -> None:
        """Handle a frame, if its sender may send it."""
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
            self._server.take_plan(*_plan(frame))
        else:
            raise wire.MalformedFrame(f"a {self._role} cannot {verb!r}")

    def _greet(self, frame: dict[str, Any]) -> None:
        """Authenticate the caller; add it if it is a job."""
        if frame.get("version") != wire.VERSION:
            raise wire.MalformedFrame(
                f"this gate speaks version {wire.VERSION}; got {frame.get('version')!r}"
            )
        role, proof, nonce = (wire.word(frame, key) for key in ("role", "proof", "nonce"))
        job = wire.word(frame, "job") if role == JOB else ""
        generation = wire.whole(frame, "generation") if role == JOB else 0
        token = self._server.token_of(role, job, generation)
        if role not in (JOB, PLANNER) or not is_proof(proof, token=token, nonce=self._nonce):
            raise wire.MalformedFrame("wrong token")
        if role == JOB:
            if generation < self._server.newest_generation(job):
                raise wire.MalformedFrame("older generation: a later start of the job is known")
            nics, gpus = wire.words(frame, "nics"), wire.whole(frame, "gpus", least=1)
            weight = wire.number(frame, "weight", least=1e-9, most=1e9)
            if gpus > MOST_GPUS:
                raise wire.MalformedFrame(f"gpus must be at most {MOST_GPUS}")
        if self._deadline is not None:
            self._deadline.cancel()
        self._role = role
        settings = self._server.settings
        own_proof = prove(token, as_gate(self._nonce, nonce))
        self.send(
            {
                "op": "welcome",
                "proof": own_proof,
                "policy": settings.policy,
                "beat_seconds": settings.beat_seconds,
            }
        )
        if role == JOB:
            self.job, self.generation = job, generation
            self._server.seat(self, job, nics=nics, gpus=gpus, weight=weight)

    def _obey_job(self, verb: str, frame: dict[str, Any], now: float) -> None:
        broker = self._server.broker
        if verb == "cancel":
            broker.cancel(self.job, now)
            return
        if verb == "done" or frame.get("fence") is not None:
            broker.done(self.job, wire.whole(frame, "fence"), wire.maybe_number(frame, "seconds"), now)
        if verb == "ask":
            broker.ask(self.job, _ask(frame), now)


def _keep_alive(line: Any) -> None:
    """Let the kernel detect within a minute that a TCP peer has disappeared (keepalive)."""
    if line is not None and line.family in (socket.AF_INET, socket.AF_INET6):
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _ask(frame: dict[str, Any]) -> SendRequest:
    return SendRequest(
        id=wire.whole(frame, "id"),
        ready_bytes=wire.number(frame, "ready_bytes"),
        message_bytes=wire.number(frame, "message_bytes"),
        is_whole=frame.get("is_whole") is True,
        iteration_bytes=wire.maybe_number(frame, "iteration_bytes") or 0.0,
        iterations_left=wire.maybe_number(frame, "iterations_left"),
        compute_seconds=wire.maybe_number(frame, "compute_seconds"),
        exposed_seconds=wire.maybe_number(frame, "exposed_seconds"),
        round_trip_seconds=wire.maybe_number(frame, "round_trip_seconds"),
    )


def _plan(frame: dict[str, Any]) -> tuple[dict[JobId, float], dict[JobId, int]]:
    """Return each job's remaining GPU-seconds and newest generation from a `plan` frame."""
    left, generations = frame.get("remaining_gpu_seconds"), frame.get("generations", {})
    if not isinstance(left, dict) or not isinstance(generations, dict):
        raise wire.MalformedFrame("remaining_gpu_seconds and generations must be objects of numbers by job")
    return {job: wire.number(left, job) for job in left}, {
        job: wire.whole(generations, job) for job in generations
    }
