"""While no new plan can be made, running jobs keep their GPUs and limits, and waiting jobs do not start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_time import pass_time

from boa_daemon.daemon.service.orders import resize
from boa_daemon.daemon.service.replay import replay
from boa_daemon.dashboard.overview import queue_rows
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from policies.errors import InvalidProblem

SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 10.0},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
}


@pytest.fixture
def play(tmp_path: Path) -> Iterator[DaemonInAFolder]:
    """Yield a daemon in a folder."""
    found = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0), SETTINGS)
    yield found
    found.close()


def submit(play: DaemonInAFolder, **changes: Any) -> str:
    """Submit one job, and return its id."""
    return str(play.service.submit([job_content(**changes)], user="ann")["jobs"][0])


def plan_no_more(play: DaemonInAFolder) -> None:
    """Make every later attempt to plan fail."""

    def record(*_: Any, **__: Any) -> Any:
        raise InvalidProblem("nothing fits")

    play.daemon.planner.record = record  # type: ignore[method-assign]


def test_a_running_job_without_a_plan_for_its_class_keeps_its_gpus_until_max_usd(
    play: DaemonInAFolder,
) -> None:
    """A job resized after planning failed keeps its GPUs and fails once it has cost its `max_usd` of 0.5."""
    job = submit(play, hours=4.0, max_usd=0.5, max_gpus=2)
    pass_time(play, 600.0)
    before = play.storage.queue.active[job]
    plan_no_more(play)
    resize(play.daemon, before, 1 if len(before.slots) == 2 else 2)
    pass_time(play, 300.0)

    seen, decision = play.storage.queue.active[job], play.daemon.standing.decision
    assert decision is not None
    assert seen.class_name != before.class_name
    assert (seen.slots, seen.generation) == (before.slots, before.generation)
    assert set(decision.state.unplanned) == {job}
    assert "the last one lacks its class" in play.service.explain(job)["text"]
    pass_time(play, 3600.0)
    over = play.service.job(job)
    assert (over["status"], over["cause"]) == ("failed", "max_usd reached")
    assert 0.5 <= over["usd"] < 0.6
    assert play.service.instances()["instances"] == []
    for row in play.service.decisions(limit=200, acting=True)["decisions"]:
        assert replay(json.loads(json.dumps(play.service.decision(row["tick"])))).is_same


def test_without_a_plan_waiting_jobs_do_not_start_but_fail_with_their_dependency(
    play: DaemonInAFolder,
) -> None:
    """A waiting job fails when its `after` job is cancelled; an independent waiting job is not started."""
    first = submit(play, hours=1.0)
    pass_time(play, 300.0)
    plan_no_more(play)
    after = submit(play, max_gpus=2, after=[first])
    fine = submit(play, max_gpus=2)
    play.daemon.cancel(first)
    pass_time(play, 600.0)

    assert play.service.job(after)["cause"].startswith(f"it was to run after {first}")
    waits = play.storage.queue.active[fine]
    assert (waits.generation, waits.slots) == (0, ())
    said = play.service.explain(fine)
    assert "it holds no GPUs" in said["text"]
    assert "keeps its GPUs" not in said["text"]
    assert "InvalidProblem: nothing fits" in said["text"]
    assert said["reason"] == "unplanned"
    (row,) = queue_rows(play.service, play.daemon.standing.decision)
    assert row["why"] == "no new plan can be made, and the last one lacks its class"
