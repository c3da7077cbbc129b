"""A connection obeys whom it knows: first a hello with the right token, then what its role may say."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from boa_daemon.gate import connection
from boa_daemon.gate.connection import MOST_GPUS, Connection, Host
from boa_daemon.gate.types import GateSettings, SendRequest
from boa_daemon.job.gate import wire
from boa_daemon.job.gate.bucket import TokenBucket
from boa_daemon.job.gate.token import as_gate, is_proof, prove
from policies.links.contention import ETHERNET_10G

TOKEN = "the token"


class Line(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[dict[str, Any]] = []
        self.buffer, self.is_closed, self.was_aborted = wire.FrameBuffer(), False, False

    def write(self, data: Any) -> None:
        self.frames += self.buffer.feed(data)

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.was_aborted = True

    def is_closing(self) -> bool:
        return self.is_closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low


class Server:
    """A host that notes what its connections tell it."""

    def __init__(self) -> None:
        self.settings, self.refusals = GateSettings(link=ETHERNET_10G), Counter[str]()
        self.told: list[Any] = []
        note = self.told.append
        self.broker = SimpleNamespace(
            ask=lambda job, ask, _now: note(("ask", job, ask)),
            done=lambda job, fence, seconds, _now: note(("done", job, fence, seconds)),
            cancel=lambda job, _now: note(("cancel", job)),
        )

    def admit(self, _connection: Connection) -> None:
        self.told.append("admit")

    def seat(self, _connection: Connection, job: str, **words: Any) -> None:
        self.told.append(("seat", job, words))

    def gone(self, _connection: Connection) -> None:
        self.told.append("gone")

    def token_of(self, role: str, job: str, generation: int) -> str:
        return f"{TOKEN} {role} {job} {generation}"

    def newest_generation(self, _job: str) -> int:
        return 3

    def take_plan(self, left: dict[str, float], generations: dict[str, int]) -> None:
        self.told.append(("plan", left, generations))

    def settle(self) -> None:
        self.told.append("settle")

    def say_wait(self, job: str) -> None:
        self.told.append(("wait", job))

    def status(self) -> dict[str, Any]:
        return {"jobs": []}


class Call:
    """A connection with its line and its server."""

    def __init__(self) -> None:
        self.server, self.line = Server(), Line()
        self.connection = Connection(cast(Host, self.server))
        self.connection.connection_made(self.line)
        self.nonce = self.line.frames[0]["nonce"]

    def say(self, **frame: Any) -> dict[str, Any] | None:
        """Send a frame; return the answer to it, if there is one."""
        before = len(self.line.frames)
        self.connection.data_received(wire.encode(frame))
        return self.line.frames[before] if len(self.line.frames) > before else None

    def hello(self, role: str = "job", **changes: Any) -> dict[str, Any] | None:
        """Say hello as a job of generation 3, or as the planner."""
        job = (
            {"job": "a", "generation": 3, "nics": ["A", "B"], "gpus": 4, "weight": 2.0}
            if role == "job"
            else {}
        )
        said: dict[str, Any] = {"op": "hello", "version": wire.VERSION, "role": role, "nonce": "mine", **job}
        said |= changes
        token = f"{TOKEN} {role} {said.get('job', '')} {said.get('generation', 0)}"
        return self.say(**{"proof": prove(token, self.nonce), **said})


def a_call(run: Any) -> None:
    """Run a function with a new call, on a loop."""

    async def body() -> None:
        run(Call())

    asyncio.run(body())


def test_a_job_with_the_right_token_gets_a_seat_and_the_gates_own_proof() -> None:
    """So each knows the other."""

    def run(call: Call) -> None:
        welcome = call.hello()
        assert welcome is not None
        assert welcome["op"] == "welcome"
        assert is_proof(welcome["proof"], token=f"{TOKEN} job a 3", nonce=as_gate(call.nonce, "mine"))
        words = {"nics": frozenset("AB"), "gpus": 4, "weight": 2.0}
        assert call.server.told == ["admit", ("seat", "a", words)]
        assert (call.connection.job, call.connection.generation) == ("a", 3)

    a_call(run)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"op": "ask"}, "say hello first"),
        ({"version": 0}, "this gate speaks version"),
        ({"proof": "0" * 64}, "wrong token"),
        ({"role": "admin"}, "wrong token"),
        ({"generation": 2}, "older generation"),
        ({"gpus": 0}, "gpus"),
        ({"gpus": MOST_GPUS + 1}, f"gpus must be at most {MOST_GPUS}"),
        ({"weight": 0.0}, "weight"),
        ({"nics": "AB"}, "nics"),
    ],
)
def test_a_wrong_hello_is_refused_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    """The refusal is counted by its first words, and the line is closed."""

    def run(call: Call) -> None:
        answer = call.hello(**changes)
        assert answer is not None
        assert answer["op"] == "refused"
        assert reason in answer["reason"]
        assert call.line.is_closed
        assert call.server.refusals == {answer["reason"].split(":")[0]: 1}
        assert call.server.told == ["admit"]
        assert call.hello() is None

    a_call(run)


def test_a_job_asks_sends_and_cancels() -> None:
    """A question that gives a message back as well does both, in that order; then what is due is granted."""

    def run(call: Call) -> None:
        call.hello()
        del call.server.told[:]
        call.say(op="ask", id=1, ready_bytes=5.0, message_bytes=9.0, fence=7, seconds=0.5, is_whole=1)
        ask = SendRequest(id=1, ready_bytes=5.0, message_bytes=9.0)
        assert call.server.told == [("done", "a", 7, 0.5), ("ask", "a", ask), "settle", ("wait", "a")]
        del call.server.told[:]
        call.say(op="done", fence=8)
        call.say(op="cancel")
        assert call.server.told == [("done", "a", 8, None), "settle", ("cancel", "a"), "settle"]

    a_call(run)


@pytest.mark.parametrize(
    ("role", "op"),
    [("job", "plan"), ("job", "status"), ("job", "hello"), ("planner", "ask"), ("planner", "done")],
)
def test_nobody_does_what_the_other_role_does(role: str, op: str) -> None:
    """A job that could plan would put itself first."""

    def run(call: Call) -> None:
        call.hello(role)
        answer = call.say(op=op, fence=1, remaining_gpu_seconds={})
        assert answer is not None
        assert answer["reason"] == f"a {role} cannot {op!r}"

    a_call(run)


def test_the_planner_plans_and_reads_the_status() -> None:
    """A plan that is none is refused."""

    def run(call: Call) -> None:
        call.hello("planner")
        call.say(op="plan", remaining_gpu_seconds={"a": 5}, generations={"a": 2})
        assert call.server.told[-1] == ("plan", {"a": 5.0}, {"a": 2})
        assert call.say(op="status") == {"op": "status", "status": {"jobs": []}}
        answer = call.say(op="plan", remaining_gpu_seconds=[5])
        assert answer is not None
        assert "must be objects" in answer["reason"]

    a_call(run)


def test_a_flood_of_frames_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of five thousand is allowed, however slow this machine is."""
    still = partial(TokenBucket, monotonic=lambda: 1.0)
    monkeypatch.setattr(connection, "TokenBucket", still)

    def run(call: Call) -> None:
        call.hello()
        call.connection.data_received(wire.encode({"op": "cancel"}) * 4990)
        assert not call.line.is_closed
        call.connection.data_received(wire.encode({"op": "cancel"}) * 11)
        assert call.server.refusals == {"flood": 1}

    a_call(run)


def test_a_job_that_does_not_read_is_dropped_and_the_planner_is_not() -> None:
    """The daemon's own line may be slow."""
    for role, is_dropped in (("job", True), ("planner", False)):

        def run(call: Call, role: str = role, is_dropped: bool = is_dropped) -> None:
            call.hello(role)
            call.connection.pause_writing()
            assert call.line.was_aborted is is_dropped
            assert call.server.refusals["does not read"] == is_dropped

        a_call(run)


def test_a_fault_of_the_gate_itself_ends_one_connection_alone() -> None:
    """The caller learns its kind."""

    def run(call: Call) -> None:
        call.hello()
        call.server.broker.cancel = lambda *_: 1 / 0
        answer = call.say(op="cancel")
        assert answer is not None
        assert answer["reason"] == "malformed: ZeroDivisionError"
        call.connection.connection_lost(None)
        assert call.server.told[-1] == "gone"

    a_call(run)
