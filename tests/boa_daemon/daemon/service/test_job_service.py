"""What the service says about a job is up to date: after a restart, after an end, and while ticks fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from daemon_time import pass_time

from boa_daemon.daemon.service.finish_forecast import FinishForecast, forecast_finishes
from boa_daemon.errors import BoaError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.state import ClusterState

SETTINGS = {
    "budget": {"usd_per_hour": 10.0, "max_instances": 1},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": 30.0},
}


def test_a_running_job_is_not_called_new_after_a_restart(tmp_path: Path) -> None:
    """Before the first tick of the new process, a running job is "running" and a waiting job is "new"."""
    clock = ManualClock(1_800_000_000.0)
    play = DaemonInAFolder(tmp_path, clock, SETTINGS)
    jobs = play.service.submit([job_content(hours=4.0) for _ in range(9)], user="ann")["jobs"]
    pass_time(play, 600.0)
    runs = next(job for job in jobs if play.storage.queue.active[job].slots)
    waits = next(job for job in jobs if not play.storage.queue.active[job].slots)
    play.close()
    play = DaemonInAFolder(tmp_path, clock, SETTINGS)

    said = play.service.explain(runs)
    assert said["reason"] == "running"
    assert "and no tick of this daemon has looked at it yet" in said["text"]
    said = play.service.explain(waits)
    assert said["reason"] == "new"
    assert "has been taken and no tick has looked at it yet" in said["text"]
    play.close()


def test_a_cancelled_job_waits_for_nothing(tmp_path: Path) -> None:
    """A job cancelled between two ticks loses its `waits_for`, although the last plan has it waiting."""
    play = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0), SETTINGS)
    job = play.service.submit([job_content()], user="ann")["jobs"][0]
    play.daemon.tick()
    assert play.service.job(job)["waits_for"] == "nodes-to-come"
    play.service.cancel(job, user="ann", is_admin=False)

    assert play.service.job(job)["waits_for"] is None
    play.close()


def test_while_ticks_fail_an_explanation_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the cloud does not answer, the explanation of a job names the error."""
    play = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0), SETTINGS)
    job = play.service.submit([job_content()], user="ann")["jobs"][0]
    play.daemon.tick()

    def nodes() -> None:
        raise BoaError("EC2 does not answer")

    monkeypatch.setattr(play.cloud, "nodes", nodes)
    play.daemon.tick()
    assert "No tick can be done now: BoaError: EC2 does not answer." in play.service.explain(job)["text"]
    play.close()


def test_a_job_that_released_its_gpus_since_the_last_tick_is_not_called_running(tmp_path: Path) -> None:
    """The explanation says that the job has released its GPUs since then."""
    clock = ManualClock(1_800_000_000.0)
    play = DaemonInAFolder(tmp_path, clock, SETTINGS)
    job = play.service.submit([job_content(hours=1.0)], user="ann")["jobs"][0]
    pass_time(play, 600.0)
    record = play.storage.queue.active[job]
    assert record.slots
    play.storage.queue.release(record, at=clock.now(), end="stopped", status="queued")

    said = play.service.explain(job)
    assert said["reason"] == "new"
    assert "Since then it has let go of its GPUs." in said["text"]
    play.close()


def test_the_status_stays_small_with_many_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the ends of those that end first, and sums up those of all."""
    monkeypatch.setattr("boa_daemon.daemon.service.job_forecasts.MOST_FINISHES", 2)
    play = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0), SETTINGS)
    play.service.submit([job_content(hours=hours) for hours in (5.0, 1.0, 3.0)], user="ann")
    play.daemon.tick()
    status, ends = play.service.status(), play.service.outlook.finishes()

    assert (
        sorted(found["at"] for found in status["finishes"].values())
        == sorted(found.at for found in ends.values())[:2]
    )
    assert status["ends"] == {
        "jobs": 3,
        "at": max(found.at for found in ends.values()),
        "high": max(found.high for found in ends.values()),
        "usd": pytest.approx(sum(found.usd for found in ends.values())),
    }
    play.close()


def test_no_request_computes_the_ends_of_many_jobs_once_ticks_prepare_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests get the last prepared forecast, of a tick before; few jobs are always up to date."""
    computed: list[int] = []

    def counted(state: ClusterState, *given: Any, **more: Any) -> dict[str, FinishForecast]:
        computed.append(state.tick)
        return forecast_finishes(state, *given, **more)

    monkeypatch.setattr("boa_daemon.daemon.service.job_forecasts.forecast_finishes", counted)
    monkeypatch.setattr("boa_daemon.daemon.service.job_forecasts.MOST_AT_ONCE", 2)
    monkeypatch.setattr("boa_daemon.daemon.service.job_forecasts.MOST_OF_TIME", 1e-9)
    play = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0), SETTINGS)
    jobs = play.service.submit([job_content(hours=hours) for hours in (5.0, 1.0, 3.0)], user="ann")["jobs"]
    play.daemon.tick()
    assert play.service.status()["ends"]["jobs"] == 3  # Nobody prepares them yet.
    play.daemon.after_ticks()
    first = list(computed)
    assert len(first) == 1

    play.daemon.tick()
    play.service.jobs(limit=10)
    assert play.service.status()["ends"]["jobs"] == 3
    assert computed == first
    play.daemon.after_ticks()
    assert computed == first  # They would take more than their part of the time.
    play.service.outlook._next_at = 0.0
    play.daemon.after_ticks()
    assert len(computed) == 2

    play.service.cancel(jobs[0], user="ann", is_admin=False)
    play.daemon.tick()
    assert play.service.status()["ends"]["jobs"] == 2
    assert len(computed) == 3
    play.close()


def test_nodes_are_listed_in_pages(tmp_path: Path) -> None:
    """The pages together hold each node once, with its jobs, as the whole list does."""
    settings = {**SETTINGS, "budget": {"usd_per_hour": 100.0, "max_instances": 5}}
    play = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0), settings)
    play.service.submit([job_content(hours=50.0, min_gpus=1, max_gpus=1) for _ in range(40)], user="ann")
    pass_time(play, 600.0)
    whole = play.service.instances()
    assert len(whole["instances"]) > 2
    assert whole["next"] is None
    found, after = [], ""
    while after is not None:
        page = play.service.instances(limit=2, after=after)
        assert len(page["instances"]) <= 2
        found += page["instances"]
        after = page["next"]
    assert found == whole["instances"]
    assert any(node["jobs"] for node in found)
    play.close()
