"""Whom a request may concern, and what is said of a name that is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from boa_daemon.daemon.service.service_base import NotAllowed, NotReady, UnknownJob
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonInAFolder]:
    """A daemon that does not tick."""
    found = DaemonInAFolder(tmp_path_factory.mktemp("play"), ManualClock(NOW))
    yield found
    found.close()


def test_a_job_is_changed_by_its_user_or_an_administrator(play: DaemonInAFolder) -> None:
    """Nobody else, and the error says whose it is."""
    (job,) = play.service.submit([job_content("train")], user="ann")["jobs"]
    assert play.service.owned(job, "ann", False).id == job
    assert play.service.owned(job, "root", True).id == job
    with pytest.raises(NotAllowed, match=f"job {job} is of user ann; you are bob"):
        play.service.owned(job, "bob", False)


def test_a_mistyped_name_gets_the_nearest_one(play: DaemonInAFolder) -> None:
    """Of jobs among jobs, and of groups among groups."""
    answer = play.service.submit([job_content("sweep", count=2)], user="ann")
    job, (group,) = answer["jobs"][0], answer["groups"]
    with pytest.raises(UnknownJob, match=f"no job '{job}x'.*{job}"):
        play.service.job(f"{job}x")
    with pytest.raises(UnknownJob, match=f"no group 'swep-g9'.*{group}"):
        play.service.group("swep-g9")


def test_the_reasons_of_refused_launches_are_told_by_reason(
    play: DaemonInAFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest of the offers counts for the time; five of them are named."""
    offers = {f"m{number}/z/": (NOW - number, "no capacity") for number in range(1, 8)}
    refused = {**offers, "p/": (NOW - 60.0, "quota")}
    monkeypatch.setattr(play.storage.store, "refused_launches", lambda _now: refused)
    monkeypatch.setattr(play.daemon.fleet, "failures", lambda: {"g/spot": (NOW - 9.0, "bad disk")})
    notes = play.service.condition()["notes"]
    assert (
        "the last launch of m1/z, m2/z, m3/z, m4/z, m5/z and 2 more offers was refused 1 s ago: no capacity"
        in notes
    )
    assert "the last launch of p was refused 60 s ago: quota" in notes
    assert "the last node of g/spot failed at its start 9 s ago: bad disk" in notes


def test_an_answer_is_of_the_last_decision_or_of_the_start(play: DaemonInAFolder) -> None:
    """The figures of a daemon that has not ticked are those of its start."""
    clock = play.clock
    assert isinstance(clock, ManualClock)
    assert play.service.condition()["as_of"] == NOW
    clock.instant = NOW + 30.0
    assert play.service.condition()["as_of"] == NOW
    play.daemon.tick()
    clock.instant = NOW + 45.0
    assert (play.service.condition()["as_of"], play.service.condition()["now"]) == (NOW + 30.0, NOW + 45.0)


def test_an_order_is_in_the_log_with_who_gave_it(play: DaemonInAFolder) -> None:
    """Decisions and orders are read together."""
    play.service.note_order("ann", "cap", "day", "lowered")
    order = play.service.decisions()["orders"][0]
    assert (order["user"], order["what"], order["target"]) == ("ann", "cap", "day")


def test_a_daemon_without_a_database_answers_with_its_fault(
    play: DaemonInAFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks learns why nothing can be written."""
    monkeypatch.setattr(play.daemon, "storage", None)
    monkeypatch.setattr(play.daemon.standing, "fault", "the disk is full")
    with pytest.raises(NotReady, match="the disk is full"):
        play.service.owned("a-1", "ann", True)
