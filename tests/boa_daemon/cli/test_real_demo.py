"""``boa demo --real``: jobs that really run, in short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engine_bench import numpy_loss
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.daemon.real_run import KINDS, RealRun, uninterrupted_loss
from boa_daemon.learning.exploring import Exploring
from boa_daemon.learning.speedups import Exploration
from boa_daemon.testing import Wishes, a_job
from policies.model import Budget


def test_one_job_really_runs_and_the_figures_are_one_document() -> None:
    """A single vision job goes through its phases, is resized, and ends with the loss of a run in peace."""
    result = CliRunner().invoke(app, ["demo", "--real", "--jobs", "1", "--json"])
    document = json.loads(result.stdout)

    assert result.exit_code == 0, document
    (row,) = document["jobs"]
    assert row["finished"]
    assert row["loss"] == pytest.approx(numpy_loss(100), rel=1e-9)
    assert (row["steps"], document["lost_steps"]) == (100, 0)
    assert document["same_loss_as_uninterrupted"]
    assert document["spent_usd"] > 0.0
    assert document["wall_seconds"] < 110.0


def test_a_budget_in_gpus_is_refused() -> None:
    """Real jobs are paid in pretended dollars."""
    result = CliRunner().invoke(app, ["demo", "--real", "--budget", "gpus:4"])

    assert result.exit_code != 0


def test_the_reference_loss_is_the_trainers() -> None:
    """Computed twice, in two places, from the same definition."""
    assert uninterrupted_loss(30) == pytest.approx(numpy_loss(30), rel=1e-12)


def test_the_plan_widens_the_first_kind_half_way(tmp_path: Path) -> None:
    """What the demo shows follows from its figures: its first half scales badly, its second does not."""
    allocator = RealRun(tmp_path, jobs=2, budget=Budget(amount=20.0))._controller.allocator
    phases = [a_job("a", class_name="vision", phase=phase, draw=0.5) for phase in (0, 1)]
    widths = [allocator.allocate([job], now=0.0).widths["a"].gpus for job in phases]

    assert widths[0] < widths[1]
    assert [len(kind.phase_ends) for kind in KINDS] == [2, 1]


def test_a_job_tries_a_width_and_the_others_do_not() -> None:
    """Only jobs that hold something by plan try anything, and the reason says so."""
    base = Wishes(widths={"a": 4, "b": 4})
    tried = Exploration(gpus=2, gpu_seconds=1.0, reason="2 GPUs are tried")
    jobs = [a_job("a"), a_job("b")]
    found = Exploring(base=base, tries={"a": tried, "z": tried}).allocate(jobs, now=0.0)

    assert {job: width.gpus for job, width in found.widths.items()} == {"a": 2, "b": 4}
    assert found.reasons["a"] == "2 GPUs are tried"
    assert Exploring(base=base).allocate(jobs, now=0.0) == base.allocate(jobs, now=0.0)
