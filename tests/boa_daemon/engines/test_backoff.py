"""`engines/backoff.py`: what is refused is asked again, ever more seldom, and rests meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.engines.backoff import Backoff
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.actions import StartJob
from boa_daemon.tick.ports import Accepted, RunReport
from boa_daemon.tick.rests import Refusal

START = 1_800_057_600.0


def test_what_is_refused_rests_until_it_is_asked_again_or_forgotten() -> None:
    """The time counts from the first refusal; forgotten when it was done."""
    patience = Backoff()
    for now, why in ((100.0, "no"), (260.0, "no"), (9100.0, "not now")):
        patience.refused("a", why, now=now)
    assert patience.of("a") == Refusal(since=100.0, at=9100.0)
    assert patience.why_not_yet("a", now=9159.0) == patience.last("a") == "not now"
    assert patience.why_not_yet("a", now=9160.0) == patience.why_not_yet("b", now=0.0) == ""
    patience.forget("a")
    patience.refused("a", "no", now=9200.0)
    assert patience.of("a") == Refusal(since=9200.0, at=9200.0)


def test_a_job_whose_start_is_refused_rests_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five minutes of a refusing SSM: few generations, and the reason with the job."""
    clock = ManualClock(START)
    play = DaemonInAFolder(
        tmp_path, clock, {"cloud": {"boot_seconds": 30.0}, "daemon": {"tick_seconds": 10.0}}
    )
    runner, started = play.daemon.work._runner, dict[str, int]()

    def start(action: StartJob) -> Accepted:
        started[action.job] = action.generation
        return Accepted()

    def poll() -> dict[str, RunReport]:
        return {
            job: RunReport(job=job, generation=number, phase="stopped", was_refused=True, evidence="SSM: no")
            for job, number in started.items()
        }

    monkeypatch.setattr(runner, "start", start)
    monkeypatch.setattr(runner, "poll", poll)
    [job] = play.service.submit([job_content(hours=1.0)], user="ann")["jobs"]
    rested = 0
    for _ in range(60):
        play.daemon.tick()
        row = play.service.job(job)
        rested += (row["not_before"] or 0.0) > clock.instant
        clock.instant += 5.0
    play.close()

    assert row["cause"] == "SSM: no"
    assert row["status"] == "queued"
    # Eight starts that lead nowhere are a loop, which is paused for longer.
    assert 2 <= started[job] <= 8
    assert rested > 10
