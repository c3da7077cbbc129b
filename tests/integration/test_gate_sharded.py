"""Sharded training asks the gate and ends with the same weights, to the bit; sends do not ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.test_gate_torch import SETTINGS, Ranks

from boa_daemon.gate.thread import GateThread
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.token import issue_token

pytestmark = pytest.mark.frameworks

SCRIPT = Path(__file__).with_name("gate_sharded.py")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[tuple[GateThread, str]]:
    """Run a gate that gates every job, and return it with the job's BOA_GATE."""
    token = tmp_path / "j1.token"
    token.write_text(issue_token("s", job="j1"), encoding="utf-8")
    path = tmp_path / "gate.sock"
    # Leases are long because the ranks share busy cores: a rank that waits for a core is not stalled.
    settings = replace(SETTINGS, least_lease_seconds=30.0)
    with GateThread(settings, "s", GateAddress(path=str(path))) as running:
        yield running, f"unix:{path}?token_file={token}&answer_ms=1000"


def train(way: str, gate: str) -> list[dict[str, Any]]:
    """Train with this method and return what each rank prints at its end."""
    job = Ranks([str(SCRIPT), way], gate=gate, ranks=2, hook=True)
    try:
        said = [process.communicate(timeout=300.0)[0] for process in job.processes]
        assert [process.returncode for process in job.processes] == [0, 0]
    finally:
        job.kill()
    return [json.loads(text.splitlines()[-1]) for text in said]


@pytest.mark.exhaustive  # Two jobs of two ranks each, which import PyTorch: some ten seconds.
@pytest.mark.parametrize("way", ["fsdp2", "fsdp1", "zero"])
def test_sharded_training_asks_and_ends_the_same_to_the_bit(gate: tuple[GateThread, str], way: str) -> None:
    """The collectives of FSDP and ZeRO ask the gate; the script does not mention the gate."""
    plain, ordered = train(way, ""), train(way, gate[1])

    assert [one["weights"] for one in ordered] == [one["weights"] for one in plain]
    assert all(sum(one["questions"]) == 0 for one in plain)
    assert len({tuple(one["questions"]) for one in ordered}) == 1, "all ranks count alike"
    assert sum(ordered[0]["questions"]) >= 2
    asked = gate[0].status()["counts"]
    assert asked["asks"] >= asked["grants"] >= 2
    assert asked["stalled"] == 0


@pytest.mark.exhaustive  # Two ranks import PyTorch: some five seconds.
def test_sends_between_pipeline_stages_do_not_ask_the_gate(gate: tuple[GateThread, str]) -> None:
    """The receiving rank gets the value, and the gate counts no question."""
    said = train("sends", gate[1])

    assert [one["value"] for one in said] == [0.0, 0.0]
    assert all(one["questions"] == [] for one in said)
    assert gate[0].status()["counts"]["asks"] == 0
