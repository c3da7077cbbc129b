"""The gate in PyTorch with real ranks over gloo, while the gate is alive, silent, killed and restarted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.engines.local import free_port
from boa_daemon.gate.thread import GateThread
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.token import issue_token
from boa_daemon.job.inject import hooked
from policies.links.contention import Link

pytestmark = pytest.mark.frameworks

RANKS = 3
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = GateSettings(
    policy="ada-srsf-buckets",
    link=Link(latency_seconds=0.0, seconds_per_byte=1e-9, contention_seconds_per_byte=0.0),
    bucket_bytes=9_000.0,
    is_always_on=True,
)


class Ranks:
    """The ranks of one job, each with a node name of its own."""

    def __init__(self, script: list[str], *, gate: str, ranks: int = RANKS, hook: bool = False) -> None:
        port = str(free_port())
        self.processes = []
        for rank in range(ranks):
            place = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "GLOO_SOCKET_IFNAME": "lo",
                "BOA_NODE_ID": f"node-{rank}",
                "BOA_JOB_ID": "j1",
                "BOA_GATE": gate,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
            }
            environment = {**os.environ, **place}
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, *script],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=hooked(environment, gate=gate) if hook else environment,
                )
            )

    def train(self, iterations: int) -> list[dict[str, Any]]:
        """Train on all ranks, and return what each prints."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{iterations}\n")
            process.stdin.flush()
        return [self._hear(process) for process in self.processes]

    @staticmethod
    def _hear(process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        return dict(json.loads(process.stdout.readline()))

    def end(self) -> list[int]:
        """End all ranks, and return their exit codes."""
        codes = []
        for process in self.processes:
            process.communicate(timeout=180.0)
            codes.append(process.returncode)
        return codes

    def kill(self) -> None:
        """Kill the remaining ranks."""
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, Path]:
    """Return a job's BOA_GATE, and the socket's path."""
    token = tmp_path / "j1.token"
    token.write_text(issue_token("s", job="j1"), encoding="utf-8")
    # The wait for an answer is long because the ranks share busy cores.
    return f"unix:{tmp_path / 'gate.sock'}?token_file={token}&answer_ms=50", tmp_path / "gate.sock"


@pytest.fixture
def ranks(place: tuple[str, Path]) -> Iterator[Ranks]:
    """Start the ranks of a training run."""
    started = Ranks([str(Path(__file__).parent / "gate_training.py")], gate=place[0])
    yield started
    started.kill()


@pytest.mark.exhaustive
def test_training_goes_on_while_the_gate_is_silent_dead_and_restarted(
    place: tuple[str, Path], ranks: Ranks
) -> None:
    """Gradients equal those without a gate, and all ranks send the same pieces."""
    address = GateAddress(path=str(place[1]))
    with GateThread(SETTINGS, "s", address) as gate:
        alive = until_counted(ranks, "granted")
        mute_from(gate)
        # On a busy machine the job must first make up for the time that earlier answers cost.
        mute = until_counted(ranks, "no answer", "silence")
    dead = ranks.train(30)
    with GateThread(SETTINGS, "s", address):
        # The job asks again only after it has made up for the time lost to the silent gate.
        back = until_counted(ranks, "granted", more_than=dead[0]["counts"]["granted"])

    assert dead[0]["questions"] - mute[0]["questions"] < 30, "a dead gate is not asked at every iteration"
    for answers in (alive, mute, dead, back):
        assert all(answer["off"] < 1e-6 for answer in answers)
        assert all(answer["pieces"] == answers[0]["pieces"] for answer in answers)
        assert len({answer["questions"] for answer in answers}) == 1
    assert ranks.end() == [0] * RANKS


def until_counted(ranks: Ranks, *answers: str, more_than: int = 0) -> list[dict[str, Any]]:
    """Train until more than `more_than` questions have had one of these answers."""
    deadline = time.monotonic() + 120.0
    while True:
        said = ranks.train(5)
        if sum(said[0]["counts"].get(answer, 0) for answer in answers) > more_than:
            return said
        assert time.monotonic() < deadline, said[0]


def mute_from(gate: GateThread) -> None:
    """Let the gate stop answering."""
    gate.server.settle = lambda: None  # type: ignore[method-assign]
    gate.server.say_wait = lambda job: None  # type: ignore[method-assign,misc]
