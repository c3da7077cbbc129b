"""A daemon that is started again at any tick sees and decides what the running one does."""

from __future__ import annotations

import shutil
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any

import pytest

from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.decide.decision import Decision
from policies.online.estimates import SPREAD

TICK_SECONDS = 60.0
CLASSES = """
gpu_types: {t4: {instance_type: g4dn.12xlarge}}
classes:
  - name: default
    arrivals_per_hour: 6
    startup_hours: 0.02
    rescale_hours: 0.01
    phases: [{size_gpu_hours: 1.0, speedup: {amdahl: {parallel_fraction: 0.97, max_gpus: 8}}}]
"""
SITES: tuple[dict[str, Any], ...] = (
    {"usd_per_hour": 16.0, "max_instances": 3},
    {"usd_per_hour": 40.0, "max_instances": 8, "usd_per_hour_ceiling": 16.0},
    {"usd_per_hour": 8.0, "max_instances": 6, "usd_per_day_cap": 12.0},
)


def opened(folder: Path, clock: ManualClock, budget: dict[str, Any]) -> DaemonInAFolder:
    """Open a folder with its own class file; nothing is learned, as a start estimates everything anew.

    All jobs are of one class: a start knows one tick sooner that the last job of a class has ended.
    """
    (folder / "classes.yaml").write_text(CLASSES, encoding="utf-8")
    settings = {
        "budget": budget,
        "cloud": {"instance_types": ["g4dn.12xlarge"], "boot_seconds": 120.0},
        "workload": {"classes": str(folder / "classes.yaml"), "explore_fraction": 0.0},
        "learning": {"rates": False, "sizes": False},
        "daemon": {"tick_seconds": TICK_SECONDS},
    }
    return DaemonInAFolder(folder, clock, settings)


def told(decision: Decision | None) -> dict[str, Any]:
    """Return what a decision saw of jobs, nodes and claims, and what it does, in its order."""
    assert decision is not None
    state, jobs = decision.state, decision.plan.jobs
    columns = {one.name: getattr(jobs, one.name) for one in fields(jobs)}
    return {
        "jobs": list(state.jobs.items()),
        "nodes": dict(state.nodes),
        "claims": list(state.claims.items()),
        "plan": {name: dict(one) if hasattr(one, "items") else one for name, one in columns.items()},
        "actions": decision.actions,
    }


@pytest.mark.first_set(1)
@pytest.mark.parametrize(
    ("seed", "ticks"),
    [(1, 40), (2, 40), (3, 40), *(pytest.param(n, 90, marks=pytest.mark.exhaustive) for n in range(4, 24))],
)
def test_a_restart_at_any_tick_changes_no_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, ticks: int
) -> None:
    """Jobs come and are cancelled, nodes are interrupted with and without notice, jobs hold lent GPUs."""
    monkeypatch.setattr("boa_daemon.learning.beliefs.Beliefs.spread_of", lambda _self, _name: SPREAD)
    draw, clock, budget = Random(seed), ManualClock(1_800_000_000.0), SITES[seed % len(SITES)]
    first = tmp_path / "first"
    first.mkdir()
    play, jobs = opened(first, clock, budget), list[str]()
    for tick in range(ticks):
        if draw.random() < 0.35:
            content = job_content(hours=draw.lognormvariate(-0.5, 1.0), max_gpus=8)
            jobs += play.service.submit([content], user="ann")["jobs"]
        if jobs and draw.random() < 0.05:
            play.service.hold(draw.choice(jobs), is_held=draw.random() < 0.5, user="ann", is_admin=True)
        live = [node for node in play.cloud.nodes() if node.ended_at is None]
        if live and draw.random() < 0.08:
            end = play.cloud.interrupt if draw.random() < 0.5 else play.cloud.rehearse_end
            end(draw.choice(live).id)
        second = tmp_path / f"restart-{tick}"
        shutil.copytree(first, second)
        again = opened(second, clock, budget)
        found, other = play.daemon.tick(), again.daemon.tick()
        again.close()
        shutil.rmtree(second)
        assert told(other) == told(found), f"tick {tick}"
        clock.instant += TICK_SECONDS
    play.close()
    assert len(jobs) > 5
