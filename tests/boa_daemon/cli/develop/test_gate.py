"""`boa gate`: serving, status and tokens, and its errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from verbs import exit_code

from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.client import GateClient

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Return a function that runs the program in a runtime folder of its own."""
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))

    def program(*arguments: object) -> tuple[int, str, str]:
        code = exit_code(monkeypatch, *map(str, arguments))
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return program


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Run a gate as a process, and yield it with its first output."""
    process = subprocess.Popen(
        [sys.executable, "-m", "boa_daemon", "gate", "--policy", "srsf-1", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RUNTIME_DIRECTORY": str(tmp_path)},
    )
    assert process.stdout is not None
    yield process, json.loads(process.stdout.readline())
    process.kill()
    process.communicate()


def test_a_gate_serves_a_job_until_sigterm(
    gate: tuple[subprocess.Popen[str], dict[str, Any]], run: Run, tmp_path: Path
) -> None:
    """It makes a secret, issues a token, shows its status and exits with 143."""
    process, said = gate
    assert said == {
        "listening": [f"unix:{tmp_path / 'gate.sock'}"],
        "policy": "srsf-1",
        "secret_file": str(tmp_path / "gate.secret"),
    }
    code, out, _ = run("gate", "token", "j1", tmp_path / "j1.token", "--json")
    environment = json.loads(out)
    assert code == 0
    address = GateAddress.parse(environment["BOA_GATE"])
    client = GateClient(address, job="j1", nics=["n1", "n2"], token=address.read_token())
    deadline = time.monotonic() + 120.0
    while not client.is_connected:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    client.ask(1e6, 1e6)

    status = json.loads(run("gate", "status", "--json")[1])
    assert [job["job"] for job in status["jobs"]] == ["j1"]
    assert {nic["why"] for nic in status["nics"]} == {"one job sends here: nothing to order"}
    table = run("gate", "status")[1]
    assert "srsf-1, up" in table
    assert "nothing to order" in table
    assert run("gate", "status", "-o", "csv")[1].startswith("nic,is_on,why,jobs")
    client.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(120.0) == 143
    assert not (tmp_path / "gate.sock").exists()
    code, _, err = run("gate", "status")
    assert code == 5
    assert "Start one with `boa gate`" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gate", "--listen", "gate.sock"], "unix:PATH or tcp:HOST:PORT"),
        (["gate", "--link", "{tmp}/none.json"], "Expected the output of `boa network fit"),
        (["gate", "--secret-file", "{tmp}"], "the secret can be neither read nor made"),
        (["gate", "status", "--secret-file", "{tmp}/none"], "cannot read the gate's secret"),
        (["gate", "token", "j1", "{tmp}/taken", "--secret-file", "{tmp}/secret"], "the file exists already"),
        (
            ["gate", "token", "j1", "{tmp}/no/folder", "--secret-file", "{tmp}/secret"],
            "cannot write the token",
        ),
        (["gate", "--policy", "srsf-preemptive"], "srsf-preemptive"),
    ],
)
def test_wrong_arguments_of_gate_exit_with_2(
    run: Run, tmp_path: Path, arguments: list[str], says: str
) -> None:
    """Standard output is empty, and an existing file is unchanged."""
    (tmp_path / "secret").write_text("x\n")
    (tmp_path / "taken").write_text("y\n")
    code, out, err = run(*(word.format(tmp=tmp_path) for word in arguments))

    assert (code, out) == (2, "")
    assert says in " ".join(err.split())
    assert (tmp_path / "taken").read_text() == "y\n"


def test_a_socket_path_that_is_another_file_exits_with_1(run: Run, tmp_path: Path) -> None:
    """The file is unchanged."""
    (tmp_path / "gate.sock").write_text("mine")
    code, _, err = run("gate")

    assert code == 1
    assert "is no socket" in err
    assert (tmp_path / "gate.sock").read_text() == "mine"
