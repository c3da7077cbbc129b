"""`boa_daemon.gate.server`: who may speak, and what becomes of those who break the rules."""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.gate import connection as connection_module
from boa_daemon.gate import server as server_module
from boa_daemon.gate.thread import GateThread
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate import wire
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.client import GateClient
from boa_daemon.job.gate.handshake import call_as_planner
from boa_daemon.job.gate.token import as_gate, is_proof, issue_token, prove

from .conftest import LINK, SECRET, Bench, until

Start = Callable[..., Bench]


def test_a_stranger_is_refused(start: Start) -> None:
    """Without the token there is no welcome, whatever else is right."""
    bench = start()
    line = bench.raw()

    assert "wrong token" in line.hello(proof="0" * 64)["reason"]
    assert line.end() == ""
    assert bench.gate.status()["jobs"] == []
    assert bench.gate.status()["refusals"] == {"wrong token": 1}


def test_a_job_cannot_speak_for_another_and_not_as_the_planner(start: Start) -> None:
    """A token proves one job."""
    bench = start()
    for frame in ({"job": "b"}, {"role": "planner"}):
        line = bench.raw()
        assert (
            "wrong token"
            in line.hello(**frame, proof=prove(issue_token(SECRET, job="a"), line.nonce))["reason"]
        )
        line.end()
    line = bench.raw()
    assert line.hello("a")["op"] == "welcome"
    line.say({"op": "status"})

    assert "a job cannot 'status'" in line.end()


def test_a_proof_works_once(start: Start) -> None:
    """An overheard hello is worth nothing on another line: the challenge is new each time."""
    bench = start()
    first, second = bench.raw(), bench.raw()
    proof = prove(issue_token(SECRET, job="a"), first.nonce)

    assert "wrong token" in second.hello(proof=proof)["reason"]
    first.socket.close()
    second.end()


@pytest.mark.parametrize(
    ("bytes_sent", "reason"),
    [
        (b"not json\n", "a frame is not JSON"),
        (b"[1, 2]\n", "a frame is a JSON object; got list"),
        (b"{}\n", "op must be a name"),
        (b'{"op":"ask"}\n', "say hello first"),
        (b"x" * 9000, "a frame is longer than 8192 bytes"),
        (b'{"op":"hello","version":1}\n', "this gate speaks version 2; got 1"),
        (b"\xff\xfe\n", "a frame is not JSON"),
        (b"[" * 8000 + b"\n", "a frame is not JSON"),
        (b'{"op":"hello","version":2,"role":"job","proof":"\\ud800","job":"a"}\n', "proof must be a name"),
    ],
)
def test_malformed_frames_end_the_line_with_the_reason(start: Start, bytes_sent: bytes, reason: str) -> None:
    """One sentence, then the line is cut; the gate lives on."""
    bench = start()
    line = bench.raw()
    line.socket.sendall(bytes_sent)

    assert reason in line.end()
    after = bench.raw()
    assert after.hello()["op"] == "welcome"
    after.socket.close()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ready_bytes", -1),
        ("ready_bytes", "much"),
        ("message_bytes", None),
        ("id", 1.5),
        ("id", True),
        ("compute_seconds", -0.1),
        ("iterations_left", 1e30),
        ("fence", "x"),
    ],
)
def test_a_question_with_a_wrong_field_ends_the_line(start: Start, field: str, value: object) -> None:
    """Numbers are finite, within bounds, and of their kind."""
    bench = start()
    line = bench.raw()
    line.hello()
    line.say({"op": "ask", "id": 1, "ready_bytes": 1, "message_bytes": 1, field: value})

    assert field in line.end()


@settings(max_examples=sampled(40), deadline=None)
@given(junk=st.binary(max_size=400))
def test_no_bytes_bring_the_gate_down(junk: bytes) -> None:
    """Whatever a stranger sends, the next caller is served."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gate.sock"
        with GateThread(GateSettings(link=LINK), SECRET, GateAddress(path=str(path))) as gate:
            bench = Bench(gate, path)
            stranger, line = bench.raw(), bench.raw()
            stranger.socket.sendall(junk + b"\n")
            stranger.socket.close()

            assert line.hello()["op"] == "welcome"
            line.socket.close()


FIELDS = (
    "op", "id", "ready_bytes", "message_bytes", "iteration_bytes", "iterations_left", "compute_seconds",
    "exposed_seconds", "round_trip_seconds", "fence", "seconds", "nics", "gpus", "weight", "role", "job",
)  # fmt: skip
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from([10**400, -1, 2**63, [], {}, ["A"], "ask", "done", "cancel", "status", "plan", "hello"]),
)
FRAMES = st.lists(
    st.dictionaries(st.sampled_from(FIELDS), ODD).map(lambda odd: {"op": "ask", "id": 1, **odd}), max_size=6
)


def test_no_frame_of_a_job_brings_the_gate_down(start: Start) -> None:
    """A job with its token sends what it likes: its own line may end, and the others are served."""
    bench = start(policy="ada-srsf-buckets")

    @settings(max_examples=sampled(300), deadline=None)
    @given(frames=FRAMES)
    def send(frames: list[dict[str, object]]) -> None:
        line = bench.raw()
        assert line.hello("odd")["op"] == "welcome"
        with contextlib.suppress(OSError, ValueError):
            for frame in frames:
                line.say(frame)
        line.socket.close()

    send()
    assert bench.client("good").is_connected
    assert "malformed" not in bench.gate.status()["refusals"]


@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf"), float("nan"), 2e18, True, "1"])
def test_a_number_is_one_that_a_float_can_hold(value: object) -> None:
    """Refused by its name, and no error of ours: also a whole number of four hundred digits."""
    with pytest.raises(wire.MalformedFrame, match="ready_bytes must"):
        wire.number({"ready_bytes": value}, "ready_bytes")


def test_a_flood_is_cut_off_and_the_others_do_not_notice(start: Start) -> None:
    """More than 5000 frames a second from one line end it."""
    bench = start()
    with_others = bench.client("b", nics="B")
    line = bench.raw()
    line.hello()
    frame = wire.encode({"op": "cancel", "id": 1})
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(40):
            line.socket.sendall(frame * 1000)
    line.end()

    assert with_others.ask(1e3, 1e3).why == "granted"
    assert bench.gate.status()["refusals"] == {"flood": 1}
    with_others.close()


def test_who_does_not_read_is_cut_off(start: Start) -> None:
    """Answers pile up to a limit, then the line is cut."""
    bench = start()
    line = bench.raw()
    line.hello()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        # Below the limit on frames: it is not the flood that is to be noticed here.
        for number in range(4900):
            line.say({"op": "ask", "id": number, "ready_bytes": 1, "message_bytes": 1})

    until(lambda: bench.gate.status()["jobs"] == [])
    assert bench.gate.status()["refusals"] == {"does not read": 1}
    line.socket.close()


def test_who_says_nothing_is_cut_off(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line without a hello is closed after a while."""
    monkeypatch.setattr(connection_module, "HELLO_SECONDS", 0.05)
    assert start().raw().end() == "no hello in time"


def test_there_is_a_limit_on_lines(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is refused."""
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 1)
    bench = start()
    first, second = bench.raw(), bench.raw()

    assert second.end() == "too many connections"
    first.socket.close()


def test_a_job_that_connects_again_replaces_its_dead_line(start: Start) -> None:
    """After a partition the old line may look alive; its lease ends, the new line works."""
    bench = start()
    old = bench.raw()
    old.hello("a")
    old.say({"op": "ask", "id": 1, "ready_bytes": 1e6, "message_bytes": 1e6})
    assert old.read()["op"] == "grant"
    new = bench.client("a")
    other = bench.client("b")

    assert old.end() == "the same job connected again"
    assert other.ask(1e3, 1e3).why == "granted"
    assert [job["job"] for job in bench.gate.status()["jobs"]] == ["a", "b"]
    new.close()
    other.close()


def said(bench: Bench, **hello: Any) -> str:
    """Return what the gate says to a hello on a line of its own, and hang up."""
    line = bench.raw()
    answer = line.hello("a", **hello)
    line.socket.close()
    return str(answer.get("reason", answer["op"]))


def test_a_generation_that_ended_speaks_no_more(start: Start) -> None:
    """Its token was good once; from the plan, or from its successor's hello, the gate knows better."""
    bench = start()
    assert said(bench, generation=1) == "welcome"
    bench.gate.take_plan({"a": 1.0}, {"a": 2})
    until(lambda: "older generation" in said(bench, generation=1))
    successor = bench.raw()
    assert successor.hello("a", generation=3)["op"] == "welcome"

    assert "older generation" in said(bench, generation=2)
    assert "wrong token" in said(bench, generation=3, proof=prove("old", "nonce"))
    assert [job["job"] for job in bench.gate.status()["jobs"]] == ["a"]
    successor.socket.close()


def test_a_token_is_for_one_generation(start: Start) -> None:
    """The token of the first start proves nothing about the second; `a:1` of generation 0 is another job."""
    token = issue_token(SECRET, job="a", generation=1)
    assert len({token, issue_token(SECRET, job="a", generation=2), issue_token(SECRET, job="a:1")}) == 3
    line = start().raw()
    assert "wrong token" in line.hello("a", generation=2, proof=prove(token, line.nonce))["reason"]
    line.end()


def test_the_gate_proves_itself_too(start: Start) -> None:
    """Its answer fits both nonces of this line, and no job's answer could be mistaken for it."""
    line = start().raw()
    token, own = issue_token(SECRET, job="a"), "1" * 32
    welcome = line.hello(nonce=own)
    assert is_proof(welcome["proof"], token=token, nonce=as_gate(line.nonce, own))
    assert not is_proof(welcome["proof"], token=token, nonce=own)
    line.socket.close()


def test_a_killed_holder_frees_its_cards_at_once(start: Start) -> None:
    """The kernel closes a dead client's line; nobody waits for the lease."""
    bench = start(least_lease_seconds=60.0)
    line = bench.raw()
    line.hello("a")
    line.say({"op": "ask", "id": 1, "ready_bytes": 1e6, "message_bytes": 1e6})
    assert line.read()["lease_seconds"] == 60.0
    line.socket.close()
    other = bench.client("b", nics="A")

    assert other.ask(1e3, 1e3).why == "granted"
    other.close()


def test_the_planner_tells_what_is_left_and_reads_the_status(start: Start) -> None:
    """The daemon's plan reaches the gate over the same socket."""
    bench = start()
    client = bench.client("a")
    token = issue_token(SECRET, role="planner")
    bench.gate.take_plan({"a": 77.0})
    status = call_as_planner(bench.address, token, {"op": "status"})["status"]

    assert status["jobs"][0]["remaining_gpu_seconds"] == 77.0
    assert status["nics"][0] == {**status["nics"][0], "nic": "A", "is_on": True, "jobs": 1}
    assert json.dumps(status)
    with pytest.raises(ConnectionError, match="wrong token"):
        call_as_planner(bench.address, "no token", {"op": "status"})
    client.close()


def test_tcp_is_the_same(tmp_path: Path) -> None:
    """A gate listens on TCP as well; a port of 0 becomes a free one."""
    with GateThread(GateSettings(link=LINK), SECRET, GateAddress(host="127.0.0.1", port=0)) as gate:
        (bound,) = gate.addresses
        client = GateClient(bound, job="a", nics=["A", "B"], token=issue_token(SECRET, job="a"))
        until(lambda: client.is_connected)
        assert client.ask(1e3, 1e3).why in ("free", "no answer")
        client.close()


def test_the_socket_is_private_and_a_stale_one_is_replaced(tmp_path: Path) -> None:
    """Only the owner and the group may connect; a dead gate's socket does not stop the next."""
    path = tmp_path / "gate.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with GateThread(GateSettings(link=LINK), SECRET, GateAddress(path=str(path))):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with (
            pytest.raises(FileExistsError, match="another gate listens"),
            GateThread(GateSettings(link=LINK), SECRET, GateAddress(path=str(path))),
        ):
            pass
        assert path.exists()
    assert not path.exists()
    path.write_text("no socket")
    with (
        pytest.raises(FileExistsError, match="is no socket"),
        GateThread(GateSettings(link=LINK), SECRET, GateAddress(path=str(path))),
    ):
        pass
    assert path.read_text() == "no socket"
