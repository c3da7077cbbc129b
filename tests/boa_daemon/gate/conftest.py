"""Fixtures: a gate on a unix socket, clients, and raw connections to it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.gate.thread import GateThread
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate import wire
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.client import GateClient
from boa_daemon.job.gate.token import issue_token, prove
from policies.links.contention import Link

SECRET = "a secret"
LINK = Link(latency_seconds=0.0, seconds_per_byte=1e-8, contention_seconds_per_byte=0.0)


@dataclass(frozen=True)
class Bench:
    """A running gate, and ways to connect to it. Timeouts are long, because tests share busy cores."""

    gate: GateThread
    path: Path

    @property
    def address(self) -> GateAddress:
        """Where the gate listens."""
        return GateAddress(path=str(self.path), answer_seconds=1.0)

    def client(self, job: str, *, nics: str = "AB", answer_seconds: float = 1.0, **more: Any) -> GateClient:
        """Return a client that is connected."""
        client = GateClient(
            GateAddress(path=str(self.path), answer_seconds=answer_seconds),
            job=job,
            nics=list(nics),
            token=issue_token(SECRET, job=job),
            **more,
        )
        until(lambda: client.is_connected)
        return client

    def raw(self) -> RawLine:
        """Return a raw connection to the gate."""
        return RawLine(self.address.connect(timeout_seconds=60.0))


class RawLine:
    """A connection that can send valid and invalid frames."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._frames = wire.FrameBuffer(1 << 20)
        self._found: list[dict[str, Any]] = []
        self.nonce = str(self.read()["nonce"])

    def read(self) -> dict[str, Any]:
        """Return the next frame, or {} if the gate has disconnected."""
        while not self._found:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return {}
            if not data:
                return {}
            self._found = self._frames.feed(data)
        return self._found.pop(0)

    def say(self, frame: dict[str, Any]) -> None:
        """Send a frame."""
        self.socket.sendall(wire.encode(frame))

    def hello(self, job: str = "a", *, generation: int = 0, **changes: Any) -> dict[str, Any]:
        """Say hello as a job, and return the answer."""
        proof = prove(issue_token(SECRET, job=job, generation=generation), self.nonce)
        frame = {
            "op": "hello",
            "version": wire.VERSION,
            "role": "job",
            "job": job,
            "generation": generation,
            "proof": proof,
            "nonce": "0" * 32,
            "nics": ["A"],
            "gpus": 1,
        }
        self.say({**frame, "weight": 1.0, **changes})
        return self.read()

    def end(self) -> str:
        """Return the gate's reason for disconnecting."""
        reason = ""
        while frame := self.read():
            reason = str(frame.get("reason", reason))
        self.socket.close()
        return reason


def until(is_so: Callable[[], bool], *, seconds: float = 120.0) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Start gates; all are closed at the end."""
    gates: list[GateThread] = []

    def begin(path: Path | None = None, **changes: Any) -> Bench:
        path = path or tmp_path / "gate.sock"
        settings = GateSettings(**{"link": LINK, "policy": "srsf-1", "is_always_on": True, **changes})
        gate = GateThread(settings, SECRET, GateAddress(path=str(path)))
        gate.__enter__()
        gates.append(gate)
        return Bench(gate, path)

    yield begin
    for gate in gates:
        gate.close()
