"""Submissions are checked whole, against limits of users too, and accepted all or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from boa_daemon.daemon.service.service_base import NotAllowed, UnknownJob
from boa_daemon.daemon.service.submissions import MOST_JOBS_AT_ONCE
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

SETTINGS = {
    "users": {"bob": {"max_jobs": 3}, "eve": {"usd_per_day_cap": 5.0}},
    "teams": {"vision": {"members": ["cat"]}},
}


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonInAFolder]:
    """A daemon that does not tick."""
    found = DaemonInAFolder(tmp_path_factory.mktemp("play"), ManualClock(1_800_000_000.0), SETTINGS)
    yield found
    found.close()


def active(play: DaemonInAFolder) -> list[str]:
    """Return the jobs that wait."""
    return list(play.storage.queue.active)


def test_one_wrong_job_keeps_all_out(play: DaemonInAFolder) -> None:
    """The error names its place in the submission."""
    before = active(play)
    with pytest.raises(InputError, match="job 1"):
        play.service.submit([job_content("good"), job_content("bad", max_gpus=0)], user="ann")
    assert active(play) == before


def test_a_submission_has_a_job_and_no_more_than_the_limit(play: DaemonInAFolder) -> None:
    """The members of groups count."""
    many = job_content(count=MOST_JOBS_AT_ONCE)
    for contents, said in (([], "1 to 10000 jobs; got 0"), ([many, job_content()], "groups included")):
        with pytest.raises(InputError, match=said):
            play.service.submit(contents, user="ann")
    with pytest.raises(InputError, match="1 to 10000 jobs; got 10001"):
        play.service.submit([None] * (MOST_JOBS_AT_ONCE + 1), user="ann")


def test_text_that_cannot_be_stored_is_refused(play: DaemonInAFolder) -> None:
    """Half of a surrogate pair is no character."""
    with pytest.raises(InputError, match="not Unicode"):
        play.service.submit([job_content("\ud800")], user="ann")


def test_a_user_has_no_more_jobs_than_allowed(play: DaemonInAFolder) -> None:
    """A submission that would exceed the limit adds nothing; others' jobs do not count."""
    play.service.submit([job_content()], user="ann")
    play.service.submit([job_content("b"), job_content("b")], user="bob")
    with pytest.raises(NotAllowed, match="user bob has 2 jobs and may have 3; 2 more would be too many"):
        play.service.submit([job_content("b"), job_content("b")], user="bob")
    play.service.submit([job_content("b")], user="bob")
    assert len([name for name in active(play) if name.startswith("b-")]) == 3


def test_a_user_who_has_spent_the_days_money_submits_nothing(
    play: DaemonInAFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the cent: who has spent just the cap has nothing left."""
    for spent, is_refused in ((4.99, False), (5.0, True)):
        monkeypatch.setattr(play.service, "spent_today", lambda _user, spent=spent: spent)
        if is_refused:
            with pytest.raises(NotAllowed, match=r"user eve has spent \$5\.00 today; the cap is \$5\.00"):
                play.service.submit([job_content()], user="eve")
        else:
            play.service.submit([job_content()], user="eve")


@pytest.mark.parametrize(
    ("contents", "user", "is_taken"),
    [
        ([job_content()] * 8, "ann", True),
        ([job_content()] * 9, "ann", False),
        ([job_content()], "bob", False),
        ([job_content(count=2)], "ann", False),
        ([job_content(), job_content(matrix={"a": [1, 2]})], "ann", False),
    ],
)
def test_a_small_plain_submission_is_taken_without_waiting(
    play: DaemonInAFolder, contents: list[Any], user: str, is_taken: bool
) -> None:
    """Groups, many jobs and users with limits take the long way."""
    ticket = play.service.entered(contents, user=user)
    assert (ticket is not None) is is_taken
    if ticket is not None:
        assert len(play.service.settled(ticket)["jobs"]) == len(contents)


def test_a_job_waits_for_jobs_and_groups_that_there_are(play: DaemonInAFolder) -> None:
    """A wrong id would keep it from ever starting."""
    answer = play.service.submit([job_content("sweep", count=2)], user="ann")
    (group,) = answer["groups"]
    after = [f"{answer['jobs'][0]}:end", group]
    (last,) = play.service.submit([job_content("last", after=after)], user="ann")["jobs"]
    assert play.storage.queue.active[last].content["after"] == after
    with pytest.raises(UnknownJob, match="no job 'sweep-99'"):
        play.service.submit([job_content(after=["sweep-99"])], user="ann")


def test_a_job_of_the_daemons_own_is_its_users_and_its_teams(play: DaemonInAFolder) -> None:
    """It counts against the user's limits, all `count` of them."""
    content, user, class_name, _ = play.service.checked_for(job_content(), user="cat", team=None, count=1)
    assert (content["team"], user, class_name.partition("[")[0]) == ("vision", "cat", "default")
    assert play.service.checked_for(job_content(), user="ann", team="vision", count=1)[0]["team"] == "vision"
    with pytest.raises(InputError, match="no team 'audio'"):
        play.service.checked_for(job_content(), user="ann", team="audio", count=1)
    with pytest.raises(NotAllowed, match="4 more would be too many"):
        play.service.checked_for(job_content(), user="bob", team=None, count=4)


def test_code_needs_an_engine_that_delivers_it(play: DaemonInAFolder) -> None:
    """The simulated one does not; bytes that are no archive are refused before."""
    with pytest.raises(InputError, match="this engine cannot deliver code"):
        play.service.has_code("0" * 64)
    with pytest.raises(InputError):
        play.service.take_code("0" * 64, b"no archive")


def test_who_may_run_jobs_as_the_daemons_own_user(
    play: DaemonInAFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Administrators, and everybody where jobs run as others."""
    play.service.check_may_submit("ann", is_admin=False)
    monkeypatch.setattr(play.runner, "runs_jobs_as_daemon", True, raising=False)
    play.service.check_may_submit("root", is_admin=True)
    with pytest.raises(NotAllowed, match="only administrators may submit; you are ann"):
        play.service.check_may_submit("ann", is_admin=False)
