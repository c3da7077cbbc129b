"""`boa blocks`: comparing blocks with on-demand prices and the plan, and buying them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from aws_fixtures import credentials
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_terms import Block, Terms
from boa_daemon.testing.fronts import mocked

__all__ = ["credentials"]

CLASSES = """
gpu_types: {a100: {instance_type: p4d.24xlarge}}
classes: [{name: c, arrivals_per_hour: 1.0, phases: [{size_gpu_hours: 4.0, speedup: {table: {1: 1.0}}}]}]
"""


@pytest.mark.usefixtures("credentials")
def test_blocks_are_compared_with_the_plan_and_bought_at_the_exact_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("classes.yaml").write_text(CLASSES)
    begins = time.time() + 3600.0
    block = Block("p4d.24xlarge", "us-east-1a", 1, begins, begins + 24 * 3600.0, 250.0)
    fake = FakeCloud(time.time, Terms(blocks={"off-1": block}))

    def run(*words: str) -> object:
        return CliRunner().invoke(app, ["blocks", "p4d.24xlarge", *words])

    with mocked(fake):
        found = run("--classes", "classes.yaml", "--budget", "20/h", "--json")
        printed = run()
        one_alone = run("--buy", "off-1")
        dearer = run("--buy", "off-1", "--usd", "249")
        unknown = run("--buy", "off-2", "--usd", "250")
        part_of_a_day = run("--hours", "30")
        backwards = run("--from", "2026-12-09", "--until", "2026-12-01")
        before = block.bought
        bought = run("--buy", "off-1", "--usd", "250.00", "--json")

    assert "prices are older than 30 days" in found.stderr.replace("\n", " ")  # type: ignore[attr-defined]
    (row,) = json.loads(found.stdout)["offerings"]  # type: ignore[attr-defined]
    assert row["on_demand_usd"] == pytest.approx(21.957642 * 23.5, rel=0.01)
    assert row["break_even_use"] == pytest.approx(250.0 / row["on_demand_usd"])
    # Four of the eight GPUs are in use on average.
    assert row["plan_instances"] == pytest.approx(0.5)
    assert row["plan_usd"] == pytest.approx(0.5 * row["on_demand_usd"])
    assert "Nothing is bought without --buy" in printed.output  # type: ignore[attr-defined]
    refused = (one_alone, dearer, unknown, part_of_a_day, backwards)
    faults = [result.exception for result in refused]  # type: ignore[attr-defined]
    assert all(isinstance(fault, InputError) for fault in faults)
    assert "--hours 30: EC2 has blocks of whole days" in str(faults[3])
    assert "--until 2026-12-01 is not after --from 2026-12-09" in str(faults[4])
    assert before == 0
    assert json.loads(bought.stdout)["reservation"] == "cr-off-1"  # type: ignore[attr-defined]
    assert block.bought == 1
