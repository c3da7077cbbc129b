"""`boa demo --real`: jobs that really run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engine_bench import numpy_loss
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.service.real_run import JOB_KINDS, PACE, SHARDS, RealRun, uninterrupted_loss
from policies.model import Budget


@pytest.mark.exhaustive
def test_one_job_runs_and_reaches_the_uninterrupted_loss() -> None:
    """The answer is one JSON document."""
    result = CliRunner().invoke(app, ["demo", "--real", "--jobs", "1", "--json"])
    document = json.loads(result.stdout)

    assert result.exit_code == 0, document
    (row,) = document["jobs"]
    assert row["finished"]
    assert row["loss"] == pytest.approx(numpy_loss(120), rel=1e-9)
    assert (row["steps"], document["lost_steps"]) == (120, 0)
    assert document["same_loss_as_uninterrupted"]
    assert document["spent_usd"] > 0.0
    assert document["wall_seconds"] < 110.0


def test_a_budget_in_gpus_is_refused() -> None:
    """Real jobs are paid in pretended dollars."""
    result = CliRunner().invoke(app, ["demo", "--real", "--budget", "gpus:4"])

    assert result.exit_code != 0


def test_two_implementations_of_the_reference_loss_agree() -> None:
    """One is in `daemon/service/real_run.py` and one in the tests."""
    assert uninterrupted_loss(30) == pytest.approx(numpy_loss(30), rel=1e-12)


def test_the_demo_runs_a_daemon_with_wrong_beliefs_about_its_classes(tmp_path: Path) -> None:
    """One kind of job scales better than believed, the other worse."""
    run = RealRun(tmp_path, jobs=2, budget=Budget(amount=20.0))
    try:
        assert isinstance(run.daemon, Daemon)
        assert run.daemon.settings.budget.mean_usd_per_hour == 20.0
        classes = run.daemon.planner.classes
        for kind, is_flattered in zip(JOB_KINDS, (False, True), strict=True):
            believed = classes[kind.name].phases[0].speedups["worker"].speed_at(4)
            alone = SHARDS * kind.shard_seconds + kind.serial_seconds
            truth = alone / (SHARDS * kind.shard_seconds / 4.0 + kind.serial_seconds)
            assert (believed > truth) == is_flattered
            assert classes[kind.name].size_gpu_hours == pytest.approx(kind.steps * alone * PACE / 3600.0)
        assert (tmp_path / "boa.sqlite").exists()
        assert not run.is_over
    finally:
        run.close()
