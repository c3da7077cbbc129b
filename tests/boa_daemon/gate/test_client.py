"""`boa_daemon.job.gate.client`: whatever happens to the gate, training goes on, and loses at most 1 %."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boa_daemon.job.gate import client as client_module
from boa_daemon.job.gate import wire
from boa_daemon.job.gate.address import BadAddress, GateAddress
from boa_daemon.job.gate.address_file import find_address
from boa_daemon.job.gate.allowance import BURST_SECONDS
from boa_daemon.job.gate.client import GateClient
from boa_daemon.job.gate.token import as_gate, issue_token, prove, read_or_make_secret, read_token

from .conftest import SECRET, Bench, until

Start = Callable[..., Bench]


def test_two_clients_take_turns(start: Start) -> None:
    """The second is granted when the first gives back."""
    bench = start(least_lease_seconds=30.0)
    a, b = bench.client("a"), bench.client("b")
    first = a.ask(1e3, 1e3)
    answers: list[str] = []
    waiter = threading.Thread(target=lambda: answers.append(b.ask(1e3, 1e3).why))
    waiter.start()
    until(lambda: any(job["state"] == "waiting" for job in bench.gate.status()["jobs"]))
    assert answers == []
    a.done(first.fence, 0.001)
    waiter.join(60.0)

    assert answers == ["granted"]
    a.close()
    b.close()


def test_without_a_gate_a_job_sends_at_once(tmp_path: Path) -> None:
    """Nobody listens: the answer takes microseconds, as nothing is asked."""
    client = GateClient(GateAddress(path=str(tmp_path / "none")), job="a", nics=["A", "B"], token="t")
    began = time.perf_counter()
    answers = {client.ask(1e3, 1e3).why for _ in range(1000)}

    assert answers == {"no gate"}
    assert time.perf_counter() - began < 30.0, "waiting even a little for each would take a minute"
    assert client.lost_seconds == 0.0
    client.close()


def test_a_gate_killed_while_a_job_waits_lets_it_go(start: Start) -> None:
    """The line is cut, and the waiting job sends."""
    bench = start(least_lease_seconds=60.0)
    a, b = bench.client("a"), bench.client("b")
    a.ask(1e3, 1e3)
    answers: list[str] = []
    waiter = threading.Thread(target=lambda: answers.append(b.ask(1e3, 1e3).why))
    waiter.start()
    until(lambda: any(job["state"] == "waiting" for job in bench.gate.status()["jobs"]))
    bench.gate.close()
    waiter.join(60.0)

    assert answers == ["no gate"]
    a.close()
    b.close()


def test_a_gate_that_comes_back_is_used_again(start: Start) -> None:
    """A restart: free in between, then granted, and fences go on rising."""
    bench = start()
    client = bench.client("a")
    before = client.ask(1e3, 1e3)
    bench.gate.close()
    until(lambda: client.ask(1e3, 1e3).why == "no gate")
    again = start()
    until(lambda: client.is_connected)
    after = client.ask(1e3, 1e3)

    assert after.why == "granted"
    assert after.fence > before.fence
    assert again.gate.status()["jobs"][0]["job"] == "a"
    client.close()


@contextlib.contextmanager
def mute(bench: Bench) -> Iterator[None]:
    """Let the gate answer nothing: a partition, a stopped process, a machine that hangs."""
    server = bench.gate.server
    settle, say_wait = server.settle, server.say_wait
    server.settle, server.say_wait = (lambda: None), (lambda job: None)
    try:
        yield
    finally:
        server.settle, server.say_wait = settle, say_wait


def test_a_mute_gate_costs_one_percent_and_the_allowance(start: Start) -> None:
    """Each silence costs the patience, and no more of them are suffered than the allowance pays for."""
    bench = start()
    client = bench.client("a", answer_seconds=0.004)
    with mute(bench):
        began = time.monotonic()
        answers = []
        while time.monotonic() - began < 1.0:
            answers.append(client.ask(1e3, 1e3).why)
            time.sleep(0.001)
        elapsed = time.monotonic() - began

    assert set(answers) == {"no answer", "allowance"}
    # By their number: how long each one lasts is up to other work on this machine.
    assert 0.004 * (answers.count("no answer") - 1) <= BURST_SECONDS + 0.05 * elapsed
    assert answers.count("allowance") > answers.count("no answer")
    client.close()


def test_a_slow_gate_costs_no_more_than_the_allowance(start: Start) -> None:
    """Answers that come late, but within the patience, are counted in full."""
    bench = start()
    client = bench.client("a", answer_seconds=0.5)
    server = bench.gate.server
    settle = server.settle
    server.settle = lambda: asyncio.get_running_loop().call_later(0.01, settle)  # type: ignore[method-assign]
    server.say_wait = lambda job: None  # type: ignore[method-assign]
    began = time.monotonic()
    answers = []
    while time.monotonic() - began < 1.0:
        answers.append(client.ask(1e3, 1e3).why)
        time.sleep(0.001)
    elapsed = time.monotonic() - began
    server.settle = settle  # type: ignore[method-assign]

    assert 0.01 * (answers.count("granted") - 1) <= BURST_SECONDS + 0.05 * elapsed
    assert answers.count("allowance") > answers.count("granted") >= 1
    client.close()


def test_a_gate_that_falls_silent_while_a_job_waits_lets_it_go(start: Start) -> None:
    """The beat stops; a few missed ones are enough."""
    bench = start(least_lease_seconds=60.0, beat_seconds=0.2)
    a, b = bench.client("a"), bench.client("b")
    a.ask(1e3, 1e3)
    answers: list[str] = []
    waiter = threading.Thread(target=lambda: answers.append(b.ask(1e3, 1e3).why))
    waiter.start()
    until(lambda: any(job["state"] == "waiting" for job in bench.gate.status()["jobs"]))
    with mute(bench):
        waiter.join(60.0)

    assert answers == ["silence"]
    a.close()
    b.close()


def test_no_wait_is_longer_than_the_bound(start: Start) -> None:
    """Far below a collective's timeout the job goes without the grant, and its question is withdrawn."""
    # Beats so slow that a stalled machine cannot miss a few of them within the bound.
    bench = start(least_lease_seconds=60.0, beat_seconds=0.3)
    a, b = bench.client("a"), bench.client("b", most_wait_seconds=0.1)
    a.ask(1e3, 1e3)

    assert b.ask(1e3, 1e3).why == "waited long enough"
    until(lambda: all(job["state"] != "waiting" for job in bench.gate.status()["jobs"]))
    a.close()
    b.close()


def test_a_late_grant_is_not_taken_for_the_next_one(start: Start) -> None:
    """A question that timed out is withdrawn; its grant, if it still comes, is ignored."""
    bench = start()
    client = bench.client("a", answer_seconds=1.0)
    with mute(bench):
        assert client.ask(1e3, 1e3).why == "no answer"
    client.charge(-10.0)
    second = client.ask(1e3, 1e3)

    assert second.why == "granted"
    assert bench.gate.status()["counts"]["grants"] in (1, 2)
    client.done(second.fence, 0.001)
    until(lambda: bench.gate.status()["jobs"][0]["state"] == "computing")
    client.close()


def test_a_port_that_never_answers_delays_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting happens in the background; meanwhile the job sends."""
    monkeypatch.setattr(client_module, "CONNECT_SECONDS", 5.0)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        client = GateClient(GateAddress(path=str(tmp_path / "s")), job="a", nics=["A", "B"], token="t")
        began = time.perf_counter()
        assert client.ask(1e3, 1e3).why == "no gate"
        assert time.perf_counter() - began < 4.5
    # The listener is gone, so that the client need not wait for it any more.
    client.close()


@pytest.mark.parametrize(
    "grant",
    [
        {"op": "grant", "id": 1},
        {
            "op": "grant",
            "id": 1,
            "fence": "x",
            "bytes": 1,
            "lease_seconds": 1,
            "free_iterations": 0,
            "overhead_fraction": 0,
        },
        {
            "op": "grant",
            "id": 1,
            "fence": 1,
            "bytes": None,
            "lease_seconds": 1,
            "free_iterations": 0,
            "overhead_fraction": 0,
        },
    ],
)
def test_a_gate_that_talks_nonsense_is_no_gate(tmp_path: Path, grant: dict[str, object]) -> None:
    """Whatever listens there: training goes on."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()

        def pretend() -> None:
            line, _ = listener.accept()
            with line:
                line.sendall(wire.encode({"op": "challenge", "nonce": "n"}))
                hello = json.loads(line.recv(4096))
                proof = prove("t", as_gate("n", hello["nonce"]))
                welcome = {"op": "welcome", "proof": proof, "policy": "srsf-1", "beat_seconds": 0.1}
                line.sendall(wire.encode(welcome))
                line.recv(4096)
                line.sendall(wire.encode(grant))
                line.recv(4096)

        pretender = threading.Thread(target=pretend)
        pretender.start()
        address = GateAddress(path=str(tmp_path / "s"), answer_seconds=1.0)
        client = GateClient(address, job="a", nics=["A", "B"], token="t")
        until(lambda: client.is_connected)
        assert client.ask(1e3, 1e3).why == "no gate"
        client.close()
        pretender.join(60.0)


def test_a_job_obeys_nobody_who_does_not_know_the_secret(tmp_path: Path) -> None:
    """Who took the gate's place gives the job its own answer back, and is hung up on."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        heard: list[bytes] = []

        def pretend() -> None:
            line, _ = listener.accept()
            with line:
                line.sendall(wire.encode({"op": "challenge", "nonce": "n"}))
                hello = json.loads(line.recv(4096))
                line.sendall(wire.encode({**hello, "op": "welcome", "policy": "p", "beat_seconds": 0.1}))
                heard.append(line.recv(4096))

        pretender = threading.Thread(target=pretend)
        pretender.start()
        client = GateClient(GateAddress(path=str(tmp_path / "s")), job="a", nics=["A", "B"], token="t")
        until(lambda: "does not know the gate's secret" in client.refusal)
        assert not client.is_connected
        assert client.ask(1e3, 1e3).why == "no gate"
        client.close()
        pretender.join(60.0)
    assert heard == [b""]


def test_a_wrong_token_says_so_and_training_goes_on(start: Start) -> None:
    """The refusal can be read; the answer is to send."""
    bench = start()
    client = GateClient(bench.address, job="a", nics=["A", "B"], token=issue_token(SECRET, job="b"))
    until(lambda: "wrong token" in client.refusal)

    assert client.ask(1e3, 1e3).why == "no gate"
    client.close()


def test_the_client_imports_nothing_heavy() -> None:
    """A training process pays for the standard library alone."""
    heavy = ("numpy", "pydantic", "torch", "rich", "scipy")
    script = f"import sys, boa_daemon.job.gate.client; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "text",
    [
        "unix:/run/boa/gate.sock?token_file=/x/j1.token",
        "tcp:10.0.0.5:7411?token_file=/x/j1.token&answer_ms=8",
        "tcp:[::1]:7411",
        "unix:/with%20space/gate.sock?token_file=/a%26b",
        "tcp:10.0.0.5:7411?token_file=/x/gate.token&generation=7&uplinks=rack-a,core",
    ],
)
def test_addresses_read_as_they_are_written(text: str) -> None:
    """`BOA_GATE` survives parsing and printing."""
    assert GateAddress.parse(str(GateAddress.parse(text))) == GateAddress.parse(text)
    assert str(GateAddress.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("/run/gate.sock", "unix:PATH or tcp:HOST:PORT"),
        ("tcp:host", "unix:PATH or tcp:HOST:PORT"),
        ("tcp:host:99999", "unix:PATH or tcp:HOST:PORT"),
        ("unix:/s?tokenfile=/t", "'tokenfile'"),
        ("unix:/s?answer_ms=soon", "answer_ms must be a number"),
        ("unix:/s?answer_ms=0", "between 0 and 1000"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(text: str, reason: str) -> None:
    """One sentence, with the value."""
    with pytest.raises(BadAddress, match=reason.replace("(", r"\(")):
        GateAddress.parse(text)


def test_a_file_may_hold_the_address(tmp_path: Path) -> None:
    """`BOA_GATE` may be a path: no file is no gate, a wrong one says so."""
    address, path = GateAddress(path="/run/boa/gate.sock", token_file="/t"), tmp_path / "gate.json"
    assert find_address("") is None
    assert find_address(str(path)) is None
    path.write_text(f'{{"address": "{address}"}}\n', encoding="utf-8")
    assert find_address(str(path)) == find_address(str(address)) == address
    path.write_text('{"node-1": ["j1", "j2"]}', encoding="utf-8")
    assert find_address(str(path)) is None
    for content in ("[]", "not json", '{"address": 3}'):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(BadAddress, match="hold"):
            find_address(str(path))


def test_the_secret_is_made_once_and_is_private(tmp_path: Path) -> None:
    """The second start finds the first one's secret."""
    path = tmp_path / "state" / "gate.secret"
    secret = read_or_make_secret(path)

    assert path.stat().st_mode & 0o777 == 0o600
    assert read_or_make_secret(path) == read_token(path) == secret
    assert len(secret) == 64
    path.write_text(" \n")
    with pytest.raises(ValueError, match="is empty"):
        read_token(path)
