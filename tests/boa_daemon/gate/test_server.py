"""`boa_daemon.gate.server`: authentication, and the end of connections that break the rules."""

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


def test_a_job_with_a_wrong_token_is_refused(start: Start) -> None:
    """The refusal is counted, and the job is not added."""
    bench = start()
    line = bench.raw()

    assert "wrong token" in line.hello(proof="0" * 64)["reason"]
    assert line.end() == ""
    assert bench.gate.status()["jobs"] == []
    assert bench.gate.status()["refusals"] == {"wrong token": 1}


def test_a_jobs_token_is_valid_neither_for_another_job_nor_for_the_planner(start: Start) -> None:
    """A job may not send the planner's frames either."""
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


def test_a_proof_is_valid_for_one_connection(start: Start) -> None:
    """Each connection has a new challenge, so an overheard proof is worthless."""
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
def test_a_malformed_frame_ends_its_connection_with_the_reason(
    start: Start, bytes_sent: bytes, reason: str
) -> None:
    """The gate goes on serving other connections."""
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
def test_a_request_with_a_wrong_field_ends_its_connection(start: Start, field: str, value: object) -> None:
    """The reason names the field."""
    bench = start()
    line = bench.raw()
    line.hello()
    line.say({"op": "ask", "id": 1, "ready_bytes": 1, "message_bytes": 1, field: value})

    assert field in line.end()


@settings(max_examples=sampled(40), deadline=None)
@given(junk=st.binary(max_size=400))
def test_no_bytes_stop_the_gate(junk: bytes) -> None:
    """After any bytes of a stranger, the next caller is welcomed."""
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


def test_no_frames_of_an_authenticated_job_stop_the_gate(start: Start) -> None:
    """The frames may end the job's own connection; other jobs are served."""
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
def test_a_number_that_is_not_a_finite_float_is_refused(value: object) -> None:
    """The error names the field, also for integers of 400 digits."""
    with pytest.raises(wire.MalformedFrame, match="ready_bytes must"):
        wire.number({"ready_bytes": value}, "ready_bytes")


def test_a_flood_of_frames_ends_its_connection_only(start: Start) -> None:
    """More than 5000 frames per second end the connection; other jobs are granted."""
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


def test_a_caller_that_does_not_read_is_disconnected(start: Start) -> None:
    """Unread answers are limited."""
    bench = start()
    line = bench.raw()
    line.hello()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        # Below the limit on frames per second, so that only the unread answers end the connection.
        for number in range(4900):
            line.say({"op": "ask", "id": number, "ready_bytes": 1, "message_bytes": 1})

    until(lambda: bench.gate.status()["jobs"] == [])
    assert bench.gate.status()["refusals"] == {"does not read": 1}
    line.socket.close()


def test_a_caller_without_a_hello_is_disconnected(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit is `HELLO_SECONDS`."""
    monkeypatch.setattr(connection_module, "HELLO_SECONDS", 0.05)
    assert start().raw().end() == "no hello in time"


def test_the_number_of_connections_is_limited(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection beyond the limit is refused."""
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 1)
    bench = start()
    first, second = bench.raw(), bench.raw()

    assert second.end() == "too many connections"
    first.socket.close()


def test_a_second_connection_of_a_job_replaces_the_first(start: Start) -> None:
    """The old connection's lease ends, and other jobs are granted."""
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
    """Return the gate's answer to a hello on a new connection, and disconnect."""
    line = bench.raw()
    answer = line.hello("a", **hello)
    line.socket.close()
    return str(answer.get("reason", answer["op"]))


def test_an_older_generation_is_refused(start: Start) -> None:
    """The gate learns the newest generation from the plan or from a hello."""
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


def test_a_token_is_valid_for_one_generation(start: Start) -> None:
    """Tokens of generations 1 and 2, and of a job named `a:1`, differ."""
    token = issue_token(SECRET, job="a", generation=1)
    assert len({token, issue_token(SECRET, job="a", generation=2), issue_token(SECRET, job="a:1")}) == 3
    line = start().raw()
    assert "wrong token" in line.hello("a", generation=2, proof=prove(token, line.nonce))["reason"]
    line.end()


def test_the_gate_proves_that_it_knows_the_secret(start: Start) -> None:
    """The gate's proof covers both nonces and is never a valid proof of a job."""
    line = start().raw()
    token, own = issue_token(SECRET, job="a"), "1" * 32
    welcome = line.hello(nonce=own)
    assert is_proof(welcome["proof"], token=token, nonce=as_gate(line.nonce, own))
    assert not is_proof(welcome["proof"], token=token, nonce=own)
    line.socket.close()


def test_a_killed_holder_frees_its_cards_before_its_lease_ends(start: Start) -> None:
    """The kernel closes the connection of a dead client."""
    bench = start(least_lease_seconds=60.0)
    line = bench.raw()
    line.hello("a")
    line.say({"op": "ask", "id": 1, "ready_bytes": 1e6, "message_bytes": 1e6})
    assert line.read()["lease_seconds"] == 60.0
    line.socket.close()
    other = bench.client("b", nics="A")

    assert other.ask(1e3, 1e3).why == "granted"
    other.close()


def test_the_planner_sends_the_plan_and_reads_the_status(start: Start) -> None:
    """A wrong token of the planner is refused."""
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


def test_a_gate_also_listens_on_tcp(tmp_path: Path) -> None:
    """Port 0 becomes a free port."""
    with GateThread(GateSettings(link=LINK), SECRET, GateAddress(host="127.0.0.1", port=0)) as gate:
        (bound,) = gate.addresses
        client = GateClient(bound, job="a", nics=["A", "B"], token=issue_token(SECRET, job="a"))
        until(lambda: client.is_connected)
        assert client.ask(1e3, 1e3).why in ("free", "no answer")
        client.close()


def test_the_socket_is_private_and_a_stale_one_is_replaced(tmp_path: Path) -> None:
    """The socket has mode 0660; a live gate's socket and a file that is no socket are not replaced."""
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
