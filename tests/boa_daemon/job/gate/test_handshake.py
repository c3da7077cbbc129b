"""`job/gate/handshake.py`: both sides prove that they know the token, or nothing is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from boa_daemon.job.gate import wire
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.handshake import call_as_planner, next_frame, shake_hands
from boa_daemon.job.gate.token import as_gate, is_proof, prove
from boa_daemon.job.gate.wire import FrameBuffer, MalformedFrame

TOKEN, NONCE = "token", "challenge"


class Gate:
    """A socket whose other end answers each frame by a function of it; at first it sends a challenge."""

    def __init__(self, *answers: Callable[[dict[str, Any]], dict[str, Any] | bytes]) -> None:
        self.answers, self.heard = list(answers), list[dict[str, Any]]()
        self.out = [wire.encode({"op": "challenge", "nonce": NONCE})]

    def sendall(self, data: bytes) -> None:
        """Take a frame, and have it answered."""
        self.heard.append(json.loads(data))
        if self.answers:
            answer = self.answers.pop(0)(self.heard[-1])
            self.out.append(answer if isinstance(answer, bytes) else wire.encode(answer))

    def recv(self, most: int) -> bytes:
        """Return the next bytes, in two pieces; none once all is said."""
        assert most >= 4096
        data = self.out.pop(0) if self.out else b""
        if len(data) > 1:
            self.out.insert(0, data[-1:])
            return data[:-1]
        return data

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.heard.append({"op": "closed"})


def welcome(hello: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a gate that knows the token."""
    return {"op": "welcome", "proof": prove(TOKEN, as_gate(NONCE, hello["nonce"])), "policy": "srsf-1"}


def shaken(*answers: Callable[[dict[str, Any]], Any]) -> tuple[Gate, Callable[[], dict[str, Any]]]:
    """Return a gate, and what shakes hands with it."""
    gate = Gate(*answers)
    return gate, lambda: shake_hands(cast(Any, gate), FrameBuffer(), {"role": "job", "job": "a"}, token=TOKEN)


def test_a_hello_proves_the_token_without_telling_it() -> None:
    """It carries what the caller says of itself, and a challenge of its own."""
    gate, shake = shaken(welcome)
    assert shake()["policy"] == "srsf-1"
    (hello,) = gate.heard
    assert is_proof(hello["proof"], token=TOKEN, nonce=NONCE)
    assert (hello["op"], hello["version"], hello["role"], hello["job"]) == ("hello", wire.VERSION, "job", "a")
    assert TOKEN not in json.dumps(hello)
    assert shaken(welcome)[1]()["proof"] != shaken(welcome)[1]()["proof"]


@pytest.mark.parametrize(
    "proof",
    [
        None,
        "",
        "x",
        "\ud800",
        prove("other", NONCE),
        prove(TOKEN, NONCE),
        prove(TOKEN, as_gate(NONCE, "old")),
    ],
)
def test_a_process_that_does_not_know_the_secret_is_no_gate(proof: str | None) -> None:
    """Also one that sends back our own proof, or one that it heard before."""
    _, shake = shaken(lambda hello: {"op": "welcome", "proof": proof})
    with pytest.raises(ConnectionError, match="does not know the gate's secret"):
        shake()
    _, echo = shaken(lambda hello: {"op": "welcome", "proof": prove(TOKEN, hello["nonce"])})
    with pytest.raises(ConnectionError, match="does not know the gate's secret"):
        echo()


@pytest.mark.parametrize(
    ("answer", "why"),
    [({"op": "refused", "reason": "wrong token"}, "wrong token"), ({}, "the gate did not say welcome")],
)
def test_a_refusal_is_told_in_the_gates_words(answer: dict[str, Any], why: str) -> None:
    """A gate that says nothing useful is refused, too."""
    with pytest.raises(ConnectionError, match=why):
        shaken(lambda hello: answer)[1]()


def test_a_gate_that_hangs_up_or_talks_nonsense_is_an_error() -> None:
    """Before its challenge, or after our hello."""
    gate, shake = shaken()
    with pytest.raises(ConnectionError, match="the gate hung up"):
        shake()
    gate.out = [b"nonsense\n"]
    with pytest.raises(MalformedFrame):
        shake()
    gate.out = [b'{"op":"challenge"}\n']
    with pytest.raises(MalformedFrame, match="nonce"):
        shake()
    with pytest.raises(ConnectionError, match="the gate hung up"):
        next_frame(cast(Any, gate), FrameBuffer())


def test_the_planner_asks_one_thing_on_a_connection_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is closed afterwards, whatever the answer."""
    gate = Gate(welcome, lambda frame: {"op": "status", "of": frame["op"]})
    monkeypatch.setattr(GateAddress, "connect", lambda self, timeout_seconds: gate)
    answer = call_as_planner(GateAddress(path="/a"), TOKEN, {"op": "status"})
    assert answer == {"op": "status", "of": "status"}
    assert [frame["op"] for frame in gate.heard] == ["hello", "status", "closed"]
    assert gate.heard[0]["role"] == "planner"
