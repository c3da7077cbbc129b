"""The job's client of the gate: it asks before sending, and limits the time that asking costs.

The caller's thread asks. A second thread connects, so that connection attempts never delay training. Whatever
goes wrong, the job sends:

    no gate, or the connection is lost       send at once
    no first answer in `answer_seconds`      send; the gate is told that the question is withdrawn
    told to wait, then silence               send after a few missed beats
    waiting longer than `most_wait_seconds`  send

Time lost to the gate (until its first answer, and in silence) is charged to an allowance that grows with
time: less than 1 %, or up to 5 % if the gate expects ordering to save more. While the allowance is used up,
the job does not ask. So a gate that is dead, slow or unreachable costs at most 1 %, plus one timeout.
Standard library only.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from boa_daemon.job.gate import wire
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.allowance import Allowance
from boa_daemon.job.gate.handshake import CONNECT_SECONDS, shake_hands
from boa_daemon.job.gate.token import JOB

LEAST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 0.1, 5.0
MISSED_BEATS = 2.5
MOST_WAIT_SECONDS = 30.0
"""Far below the minutes after which a watchdog of collectives kills the job."""
FREE_WITHOUT_GATE_SECONDS = 0.5
"""How long a job sends freely before it checks whether the gate is back."""


@dataclass(frozen=True)
class SendPermit:
    """Permission to send `bytes` now, and to send freely for `free_iterations` or `free_seconds` after that.

    `fence` identifies the lease, 0 for none. `why` is one of: granted, free, no gate, no answer, silence,
    allowance, waited long enough.
    """

    bytes: float
    free_iterations: int = 0
    free_seconds: float = 0.0
    fence: int = 0
    lease_seconds: float = 0.0
    why: str = "granted"


class GateClient:
    """A job's connection to the gate. Thread-safe: a thread that asks waits while another has a lease."""

    def __init__(
        self,
        address: GateAddress,
        *,
        job: str,
        nics: Sequence[str],
        token: str,
        gpus: int = 1,
        weight: float = 1.0,
        most_wait_seconds: float = MOST_WAIT_SECONDS,
    ) -> None:
        self.address = address
        self.counts: dict[str, int] = {}
        self.round_trip_seconds: float | None = None
        self.passing_seconds = 0.0
        """Seconds to pass an answer on to the other ranks, as measured by the caller."""
        self.refusal = ""
        self._hello = {
            "role": JOB, "job": job, "generation": address.generation,
            "nics": sorted({*nics, *address.uplinks}), "gpus": gpus, "weight": weight,
        }  # fmt: skip
        self._token = token
        self._most_wait_seconds = most_wait_seconds
        self._beat_seconds = 0.1
        self._allowance = Allowance()
        self._turn = threading.Condition()
        self._sender, self._sends_until = 0, 0.0
        self._id = 0
        self._ended: dict[str, Any] = {}
        self._frames = wire.FrameBuffer(wire.MOST_ANSWER_BYTES)
        self._socket: socket.socket | None = None
        self._closing = threading.Event()
        self._wanted = threading.Event()
        self._lock = threading.Lock()
        self._connector = threading.Thread(target=self._keep_connected, name="boa-gate-connect", daemon=True)
        self._wanted.set()
        self._connector.start()

    @property
    def is_connected(self) -> bool:
        """Whether the gate has welcomed this job."""
        return self._socket is not None

    def ask(self, ready_bytes: float, message_bytes: float, **measured: float | None) -> SendPermit:
        """Wait until the job may send, or sends anyway (see the table above); return the permit.

        `ready_bytes` can be sent now, `message_bytes` in the rest of the iteration. `measured` are the
        further fields of `boa_daemon.gate.types.SendRequest`.
        """
        with self._turn:
            me = threading.get_ident()
            while self._sender != me and (left := self._sends_until - time.monotonic()) > 0.0:
                self._turn.wait(left)
            self._sender = me
            go = self._ask(ready_bytes, message_bytes, measured)
            # An expired lease has ended for the gate, so the other threads need not wait longer.
            self._sends_until = time.monotonic() + go.lease_seconds if go.fence else 0.0
            self.counts[go.why] = self.counts.get(go.why, 0) + 1
            return go

    def done(self, fence: int, seconds: float, *, asks_next: bool = False) -> None:
        """Give a lease back; `seconds` is how long the message took.

        With `asks_next`, this is sent together with the next question, so that the gate decides knowing both.
        """
        if fence == 0:
            return
        with self._turn:
            self._ended = {"fence": fence, "seconds": seconds}
            self._sends_until = 0.0
            if not asks_next:
                self._send({"op": "done", **self._ended})
                self._ended = {}
            self._turn.notify()

    @property
    def lost_seconds(self) -> float:
        """Seconds lost to the gate since the start."""
        return self._allowance.lost_seconds

    def charge(self, seconds: float) -> None:
        """Count seconds that the job lost to the gate elsewhere, such as in passing the answer on."""
        self._allowance.charge(seconds)

    def close(self) -> None:
        """Close the connection and stop reconnecting."""
        self._closing.set()
        self._wanted.set()
        self._hang_up()
        self._connector.join(timeout=CONNECT_SECONDS + 1.0)

    def _ask(self, ready_bytes: float, message_bytes: float, measured: dict[str, float | None]) -> SendPermit:
        """Ask, and wait for the grant as long as the gate sends beats."""
        connected = self._socket
        if connected is None:
            self._ended = {}
            return self._without_gate(message_bytes)
        unearned = self._allowance.seconds_to_earn()
        if unearned > 0.0:
            if self._ended:
                self._send({"op": "done", **self._ended})
                self._ended = {}
            return SendPermit(bytes=message_bytes, free_seconds=unearned, why="allowance")
        self._id += 1
        fields = {key: value for key, value in measured.items() if value is not None}
        asked_at = time.monotonic()
        question = {"op": "ask", "id": self._id, "ready_bytes": ready_bytes, "message_bytes": message_bytes}
        ended, self._ended = self._ended, {}
        trip = None if self.round_trip_seconds is None else self.round_trip_seconds + self.passing_seconds
        if not self._send({**question, **fields, **ended, "round_trip_seconds": trip}):
            return self._without_gate(message_bytes)
        return self._await(connected, asked_at, message_bytes)

    def _await(self, connected: socket.socket, asked_at: float, message_bytes: float) -> SendPermit:
        """Wait for the answer to the newest question."""
        heard_at, is_first = asked_at, True
        while True:
            patience = self.address.answer_seconds if is_first else MISSED_BEATS * self._beat_seconds
            frame = self._read(connected, heard_at + patience)
            now = time.monotonic()
            if is_first and frame is not None:
                self._note_round_trip(now - asked_at)
            if frame is None:
                # A silent gate gets the smallest allowance, whatever it granted before.
                self._allowance.set_fraction(0.0)
                self.charge(now - heard_at)
                self._send({"op": "cancel", "id": self._id})
                # Report the debt in this answer: one more question would mean one more broadcast.
                unearned = self._allowance.seconds_to_earn()
                return SendPermit(
                    bytes=message_bytes, free_seconds=unearned, why="no answer" if is_first else "silence"
                )
            if frame.get("op") == "gone":
                return self._without_gate(message_bytes)
            if frame.get("op") == "grant":
                try:
                    return self._granted(frame)
                except (KeyError, TypeError, ValueError, OverflowError):
                    # A malformed grant must not stop training.
                    self._hang_up()
                    return self._without_gate(message_bytes)
            is_first, heard_at = False, now
            if now - asked_at > self._most_wait_seconds:
                self._send({"op": "cancel", "id": self._id})
                return SendPermit(bytes=message_bytes, why="waited long enough")

    def _without_gate(self, message_bytes: float) -> SendPermit:
        """Return the permit for a job without a connection to the gate."""
        return SendPermit(bytes=message_bytes, free_seconds=FREE_WITHOUT_GATE_SECONDS, why="no gate")

    def _granted(self, frame: dict[str, Any]) -> SendPermit:
        self._allowance.set_fraction(float(frame["overhead_fraction"]))
        fence = int(frame["fence"])
        return SendPermit(
            bytes=float(frame["bytes"]),
            free_iterations=int(frame["free_iterations"]),
            fence=fence,
            lease_seconds=float(frame["lease_seconds"]),
            why="granted" if fence else "free",
        )

    def _read(self, connected: socket.socket, deadline: float) -> dict[str, Any] | None:
        """Return the next frame about the newest question; `gone` if disconnected, None at the deadline."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0.0:
                return None
            try:
                connected.settimeout(left)
                data = connected.recv(65536)
                frames = self._frames.feed(data)
            except socket.timeout:  # TimeoutError only from Python 3.10 on.
                return None
            except (OSError, wire.MalformedFrame):
                data, frames = b"", []
            for frame in frames:
                if frame.get("op") == "refused":
                    self.refusal = str(frame.get("reason"))
            current = [frame for frame in frames if frame.get("id") == self._id]
            if current:
                return current[-1]
            if not data:
                self._hang_up()
                return {"op": "gone"}

    def _note_round_trip(self, seconds: float) -> None:
        """Charge the time to the first answer, and update its moving mean."""
        self.charge(seconds)
        old = self.round_trip_seconds
        self.round_trip_seconds = seconds if old is None else old + 0.1 * (seconds - old)

    def _send(self, frame: dict[str, Any]) -> bool:
        """Send a frame; return whether that worked within `answer_seconds`."""
        connected = self._socket
        if connected is None:
            return False
        try:
            connected.settimeout(self.address.answer_seconds)
            connected.sendall(wire.encode(frame))
        except OSError:
            self._hang_up()
            return False
        return True

    def _hang_up(self) -> None:
        """Close the connection, and let the connector thread make a new one."""
        with self._lock:
            dropped, self._socket = self._socket, None
        if dropped is not None:
            dropped.close()
        self._wanted.set()

    def _keep_connected(self) -> None:
        """Connect whenever there is no connection, with growing pauses between attempts."""
        pause = LEAST_PAUSE_SECONDS
        while not self._closing.is_set():
            self._wanted.wait()
            self._wanted.clear()
            while not self._closing.is_set() and self._socket is None:
                if self._connect():
                    pause = LEAST_PAUSE_SECONDS
                    break
                self._closing.wait(pause * random.uniform(0.7, 1.3))
                pause = min(MOST_PAUSE_SECONDS, 2.0 * pause)

    def _connect(self) -> bool:
        """Try to connect; return whether the gate has welcomed this job."""
        connected: socket.socket | None = None
        try:
            connected = self.address.connect(timeout_seconds=CONNECT_SECONDS)
            frames = wire.FrameBuffer(wire.MOST_ANSWER_BYTES)
            welcome = shake_hands(connected, frames, self._hello, token=self._token)
            beat_seconds = wire.number(welcome, "beat_seconds", least=0.001, most=10.0)
        except (OSError, wire.MalformedFrame) as fault:
            self.refusal = str(fault)
            if connected is not None:
                connected.close()
            return False
        self._beat_seconds = beat_seconds
        with self._lock:
            if self._closing.is_set():
                connected.close()
                return False
            self._frames, self._socket, self.refusal = frames, connected, ""
        return True
