"""What goes on while no new plan can be made: the last one, and the limits of jobs that it does not know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_time import pass_time

from boa_daemon.daemon.orders import resize
from boa_daemon.daemon.replay import replay
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
    """A daemon that has made one plan."""
    found = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0), SETTINGS)
    yield found
    found.close()


def submit(play: DaemonInAFolder, **changes: Any) -> str:
    """Submit one job, and return its id."""
    return str(play.service.submit([job_content(**changes)], user="ann")["jobs"][0])


def plan_no_more(play: DaemonInAFolder) -> None:
    """Let no new plan be made from now on."""

    def record(*_: Any, **__: Any) -> Any:
        raise InvalidProblem("nothing fits")

    play.daemon.planner.record = record  # type: ignore[method-assign]


def test_a_running_job_of_a_class_that_the_plan_lacks_keeps_its_gpus_and_ends_at_its_limit(
    play: DaemonInAFolder,
) -> None:
    """It was resized when no plan could be made: an hour costs 1.006, and 0.5 USD is all that it may cost."""
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


def test_a_waiting_job_of_such_a_class_is_given_up_and_never_started(play: DaemonInAFolder) -> None:
    """What it was to run after has failed; another one that nothing is wrong with waits."""
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
