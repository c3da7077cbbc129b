"""The caller's side of the gate's handshake, and single requests of the planner."""

from __future__ import annotations

import socket
from typing import Any

from boa_daemon.job.gate import wire
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.token import PLANNER, as_gate, is_proof, new_nonce, prove

CONNECT_SECONDS = 1.0


def next_frame(connected: socket.socket, frames: wire.FrameBuffer) -> dict[str, Any]:
    """Return the next frame, in an exchange where the other side sends one frame at a time.

    Raises:
        ConnectionError: when the connection is closed.
    """
    while True:
        data = connected.recv(65536)
        if not data:
            raise ConnectionError("the gate hung up")
        found = frames.feed(data)
        if found:
            return found[0]


def shake_hands(
    connected: socket.socket, frames: wire.FrameBuffer, hello: dict[str, Any], *, token: str
) -> dict[str, Any]:
    """Return the gate's welcome once both sides have proved that they know the token.

    Raises:
        ConnectionError: when the gate refuses, or does not prove that it knows the token.
        MalformedFrame: when the other side does not follow the protocol.
    """
    nonce, own = wire.word(next_frame(connected, frames), "nonce"), new_nonce()
    said = {"op": "hello", "version": wire.VERSION, **hello, "proof": prove(token, nonce), "nonce": own}
    connected.sendall(wire.encode(said))
    welcome = next_frame(connected, frames)
    if welcome.get("op") != "welcome":
        raise ConnectionError(str(welcome.get("reason", "the gate did not say welcome")))
    if not is_proof(str(welcome.get("proof")), token=token, nonce=as_gate(nonce, own)):
        raise ConnectionError("the process at the gate's address does not know the gate's secret")
    return welcome


def call_as_planner(address: GateAddress, token: str, frame: dict[str, Any]) -> dict[str, Any]:
    """Send one frame as the planner, on a connection of its own; return the gate's answer.

    Raises:
        OSError: when no gate answers, or the gate refuses.
    """
    with address.connect(timeout_seconds=CONNECT_SECONDS) as connected:
        frames = wire.FrameBuffer(wire.MOST_ANSWER_BYTES)
        shake_hands(connected, frames, {"role": PLANNER}, token=token)
        connected.sendall(wire.encode(frame))
        return next_frame(connected, frames)
