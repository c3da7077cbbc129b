"""The overview and job documents of the page, with many running and waiting jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.dashboard.job_page import job_document
from boa_daemon.dashboard.overview import MOST_JOBS, overview_document, standing_document
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content


def test_the_queue_shows_running_and_waiting_jobs_half_each(tmp_path: Path) -> None:
    """With more of each than rows, each row has a reason, and running jobs are ordered by their end."""
    clock = ManualClock(1_800_000_000.0)
    settings = {"budget": {"usd_per_hour": 1e4, "usd_per_day_cap": 1e6, "max_instances": 120}}
    play = DaemonInAFolder(tmp_path, clock, settings)
    play.service.submit([job_content(hours=5.0 + n) for n in range(300)], user="ann")
    for _ in range(4):
        play.daemon.tick()
        clock.instant += 600.0
    found = overview_document(play.service)
    states = [row["status"] for row in found["queue"]]

    assert len(states) == MOST_JOBS
    assert states.count("running") == MOST_JOBS // 2
    ends = [row["seconds_left"] for row in found["queue"] if row["status"] == "running"]
    assert ends == sorted(ends)
    assert all(row["why"] for row in found["queue"])
    assert found["running"] + found["waiting"] == 300
    assert sum(row[6] for row in found["fleet"]["rows"]) == found["gpus_used"] == found["running"]
    # Each GPU says whose it is.
    fleet = found["fleet"]
    for row in fleet["rows"]:
        node = dict(zip(fleet["columns"], row, strict=True))
        assert len(node["jobs"]) == node["gpus"]
        holders = {gpu: fleet["jobs"][at][0] for gpu, at in enumerate(node["jobs"]) if at >= 0}
        assert holders == play.storage.queue.holders().get(node["id"], {})
    play.close()


def test_a_job_that_never_started_has_a_document(tmp_path: Path) -> None:
    """The document has no starts and no trail, and hides the command from another user."""
    play = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0))
    (job,) = play.service.submit([job_content()], user="ann")["jobs"]
    found = job_document(play.service, job, may_read=lambda owner: owner == "bob")

    assert (found["generations"], found["trail"]) == ([], [])
    assert found["speedups"][0]["gpus"] == 1
    assert found["file"]["run"] != "true"
    play.close()


def test_the_time_left_of_a_running_job_shrinks_with_its_progress(tmp_path: Path) -> None:
    """A job of three hours that has run for an hour has between 1.9 and 2.9 hours left.

    After less work a size that nobody knows is no nearer: its belief is wide.
    """
    clock = ManualClock(1_800_000_000.0)
    play = DaemonInAFolder(tmp_path, clock, {"budget": {"usd_per_hour": 50.0}})
    play.service.submit([job_content(hours=3.0)], user="ann")
    while not any(job.slots for job in play.storage.queue.active.values()):
        play.daemon.tick()
        clock.instant += 30.0
    clock.instant += 3600.0
    play.daemon.tick()
    (row,) = overview_document(play.service)["queue"]

    assert 1.9 * 3600.0 < row["seconds_left"] < 2.9 * 3600.0
    play.close()


def test_what_stands_above_each_view_takes_no_whole_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each view asks for it every few seconds, and a status prices the plan when an hour begins."""
    play = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0))
    status = play.service.status()
    monkeypatch.setattr(type(play.service), "status", lambda _self: pytest.fail("a whole status"))
    found = standing_document(play.service)
    assert (
        found.items()
        >= {name: status[name] for name in ("as_of", "now", "fault", "is_down", "notes")}.items()
    )
    play.close()
