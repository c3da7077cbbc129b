"""`daemon/service/slurm_comments.py`: a site's own comments stay, and old ones of ours are cleared."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.daemon.service.slurm_comments import WaitComments, merged
from boa_daemon.slurm.commands import SlurmJob
from boa_daemon.testing.fake_slurm import FakeSlurm


@pytest.mark.parametrize(
    ("before", "shown", "after", "cleared"),
    [
        ("", "", "boa: new", ""),
        ("boa: old", "boa: old", "boa: new", ""),
        ("boa: old", "", "boa: new", ""),
        ("grant 17", "", "grant 17 | boa: new", "grant 17"),
        ("grant 17 | boa: old", "", "grant 17 | boa: new", "grant 17"),
        ("boa: old | grant 17", "", "grant 17 | boa: new", "grant 17"),
        ("boa: old; grant 17", "boa: old", "; grant 17 | boa: new", "; grant 17"),
        ("a | b", "", "a | b | boa: new", "a | b"),
        ("boa: old|seen by ann", "boa: old", "seen by ann | boa: new", "seen by ann"),
        ("über 9000\nlines", "", "über 9000\nlines | boa: new", "über 9000\nlines"),
        ("a|b", "", "a|b | boa: new", "a|b"),
        ('{"key": "a|b"}|c | boa: old', "boa: old", '{"key": "a|b"}|c | boa: new', '{"key": "a|b"}|c'),
        ("a|boa: old|b", "", "a|b | boa: new", "a|b"),
        ("boa: one | boa: two|a  |  b", "", "a  |  b | boa: new", "a  |  b"),
        ("grant 17, boa: old", "boa: old", "grant 17, | boa: new", "grant 17,"),
        ("aboa: not ours", "", "aboa: not ours | boa: new", "aboa: not ours"),
    ],
)
def test_only_our_part_is_replaced(before: str, shown: str, after: str, cleared: str) -> None:
    """Whatever stands before or behind it, and whoever wrote that."""
    assert merged(before, "boa: new", shown=shown) == after
    assert merged(before, "", shown=shown) == cleared


def test_a_sites_own_comment_survives_the_wait() -> None:
    """Ours is behind it while the job waits, and only ours goes."""
    slurm = FakeSlurm(jobs=[SlurmJob(id="7", state="CONFIGURING", nodes="c1")])
    slurm.comments["7"] = "grant 17"
    comments = WaitComments(slurm)
    comments.show({"c1": "the cap | is reached"})
    assert slurm.comments["7"] == "grant 17 | boa: the cap; is reached"
    slurm.queue = [SlurmJob(id="7", state="RUNNING", nodes="c1")]
    comments.show({})
    assert slurm.comments["7"] == "grant 17"


@pytest.mark.parametrize("host", ["c1", "n1"])
def test_what_an_earlier_daemon_said_is_cleared_when_the_job_runs(host: str) -> None:
    """On its rented node, or on another that it got meanwhile; a job that waits keeps it."""
    slurm = FakeSlurm(
        jobs=[
            SlurmJob(id="7", state="RUNNING", nodes=host),
            SlurmJob(id="8", state="PENDING"),
            SlurmJob(id="9", state="RUNNING", nodes=host),
        ]
    )
    slurm.comments = {"7": "grant 17 | boa: the cap", "8": "boa: the cap", "9": "grant 17"}
    WaitComments(slurm).show({})
    assert slurm.comments == {"7": "grant 17", "8": "boa: the cap", "9": "grant 17"}


def test_what_somebody_added_to_an_earlier_daemons_part_stays() -> None:
    """Also without spaces around the bar."""
    slurm = FakeSlurm(jobs=[SlurmJob(id="7", state="RUNNING", nodes="c1")])
    slurm.comments = {"7": "a|b | boa: the cap|seen by ann"}
    WaitComments(slurm).show({})
    assert slurm.comments == {"7": "a|b|seen by ann"}


def test_a_comment_that_is_longer_than_what_is_read_is_left_alone() -> None:
    """It could only be cut."""
    slurm = FakeSlurm(jobs=[SlurmJob(id="7", state="CONFIGURING", nodes="c1")])
    slurm.comments["7"] = "x" * 2000
    WaitComments(slurm).show({"c1": "the cap"})
    assert slurm.comments["7"] == "x" * 2000


def test_tasks_of_an_array_that_run_get_what_its_waiting_tasks_were_told_and_lose_it(tmp_path: Path) -> None:
    """Slurm changes all tasks by the number of the array."""
    waiting = SlurmJob(id="7", state="CONFIGURING", nodes="c1", is_task=True)
    running = SlurmJob(id="9", state="RUNNING", nodes="c2", is_task=True)
    slurm = FakeSlurm(jobs=[waiting, running])
    comments = WaitComments(slurm)
    comments.show({"c1": "the cap"})
    slurm.comments["9"] = slurm.comments["7"]
    comments.show({"c1": "the cap"})
    assert slurm.comments == {"7": "boa: the cap", "9": ""}
