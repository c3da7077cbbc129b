"""`boa_daemon.job.gate.client`: no failure of the gate stops training, and asking costs at most 1 %."""

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
    """The second client is granted when the first is done."""
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
    """Without a connection the client answers in microseconds, because it asks nothing."""
    client = GateClient(GateAddress(path=str(tmp_path / "none")), job="a", nics=["A", "B"], token="t")
    began = time.perf_counter()
    answers = {client.ask(1e3, 1e3).why for _ in range(1000)}

    assert answers == {"no gate"}
    assert time.perf_counter() - began < 30.0, "waiting even a little for each would take a minute"
    assert client.lost_seconds == 0.0
    client.close()


def test_a_waiting_job_sends_when_the_gate_is_killed(start: Start) -> None:
    """The closed connection ends the wait."""
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


def test_a_restarted_gate_is_used_again(start: Start) -> None:
    """The job sends freely in between, and fences go on rising."""
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
    """Let the gate answer nothing, as after a network partition or a stopped process."""
    server = bench.gate.server
    settle, say_wait = server.settle, server.say_wait
    server.settle, server.say_wait = (lambda: None), (lambda job: None)
    try:
        yield
    finally:
        server.settle, server.say_wait = settle, say_wait


def test_a_mute_gate_costs_no_more_than_the_allowance(start: Start) -> None:
    """Timeouts are charged to the allowance; while the allowance is used up, the client does not ask."""
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
    # Timeouts are counted, because their duration depends on other work on this machine.
    assert 0.004 * (answers.count("no answer") - 1) <= BURST_SECONDS + 0.05 * elapsed
    assert answers.count("allowance") > answers.count("no answer")
    client.close()


def test_a_slow_gate_costs_no_more_than_the_allowance(start: Start) -> None:
    """Late answers within the timeout are charged in full."""
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


def test_a_waiting_job_sends_after_missed_beats(start: Start) -> None:
    """The wait ends when the gate sends no more beats."""
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


def test_no_wait_is_longer_than_its_limit(start: Start) -> None:
    """The job sends without a grant, and its request is withdrawn."""
    # With slow beats a stalled machine cannot miss several within the limit.
    bench = start(least_lease_seconds=60.0, beat_seconds=0.3)
    a, b = bench.client("a"), bench.client("b", most_wait_seconds=0.1)
    a.ask(1e3, 1e3)

    assert b.ask(1e3, 1e3).why == "waited long enough"
    until(lambda: all(job["state"] != "waiting" for job in bench.gate.status()["jobs"]))
    a.close()
    b.close()


def test_a_late_grant_does_not_answer_the_next_request(start: Start) -> None:
    """A request that timed out is withdrawn, and a later grant of it is ignored."""
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


def test_connecting_does_not_delay_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client connects in the background, and the job sends meanwhile."""
    monkeypatch.setattr(client_module, "CONNECT_SECONDS", 5.0)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        client = GateClient(GateAddress(path=str(tmp_path / "s")), job="a", nics=["A", "B"], token="t")
        began = time.perf_counter()
        assert client.ask(1e3, 1e3).why == "no gate"
        assert time.perf_counter() - began < 4.5
    # The listener is closed, so the client does not wait for it.
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
def test_an_invalid_grant_counts_as_no_gate(tmp_path: Path, grant: dict[str, object]) -> None:
    """The job sends without a grant."""
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


def test_a_gate_without_the_secret_is_rejected(tmp_path: Path) -> None:
    """An impostor that echoes the job's own proof is disconnected."""
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


def test_a_job_with_a_wrong_token_sends_without_a_grant(start: Start) -> None:
    """The client keeps the gate's reason for the refusal."""
    bench = start()
    client = GateClient(bench.address, job="a", nics=["A", "B"], token=issue_token(SECRET, job="b"))
    until(lambda: "wrong token" in client.refusal)

    assert client.ask(1e3, 1e3).why == "no gate"
    client.close()


def test_the_client_imports_no_heavy_package() -> None:
    """A training process does not import numpy, pydantic, torch, rich or scipy through it."""
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
def test_addresses_survive_parsing_and_printing(text: str) -> None:
    """Every field of `BOA_GATE` is kept."""
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
def test_a_malformed_address_is_an_error_with_its_reason(text: str, reason: str) -> None:
    """The error names the wrong part."""
    with pytest.raises(BadAddress, match=reason.replace("(", r"\(")):
        GateAddress.parse(text)


def test_the_gates_address_may_come_from_a_file(tmp_path: Path) -> None:
    """Without the file or its `address` field there is no gate; a malformed file is an error."""
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


def test_the_secret_is_created_once_with_mode_0600(tmp_path: Path) -> None:
    """A second start reads the same secret; an empty file is an error."""
    path = tmp_path / "state" / "gate.secret"
    secret = read_or_make_secret(path)

    assert path.stat().st_mode & 0o777 == 0o600
    assert read_or_make_secret(path) == read_token(path) == secret
    assert len(secret) == 64
    path.write_text(" \n")
    with pytest.raises(ValueError, match="is empty"):
        read_token(path)
