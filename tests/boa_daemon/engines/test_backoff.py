"""`engines/backoff.py`: refused orders are retried after growing pauses."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.engines.backoff import Backoff
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.ports import Accepted, RunReport
from boa_daemon.tick.facts.rests import Refusal

START = 1_800_057_600.0


def test_a_refused_order_rests_until_it_is_due_or_forgotten() -> None:
    """A refusal records its first and its latest time; `forget` starts both anew."""
    patience = Backoff()
    for now, why in ((100.0, "no"), (260.0, "no"), (9100.0, "not now")):
        patience.refused("a", why, now=now)
    assert patience.of("a") == Refusal(since=100.0, at=9100.0)
    assert patience.why_not_yet("a", now=9159.0) == patience.last("a") == "not now"
    assert patience.why_not_yet("a", now=9160.0) == patience.why_not_yet("b", now=0.0) == ""
    patience.forget("a")
    patience.refused("a", "no", now=9200.0)
    assert patience.of("a") == Refusal(since=9200.0, at=9200.0)


def test_a_job_whose_start_is_refused_pauses_and_shows_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In five minutes of refusals the daemon makes at most eight starts, and the job shows the reason."""
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
    # Eight failed starts count as a loop, which gets a longer pause.
    assert 2 <= started[job] <= 8
    assert rested > 10
