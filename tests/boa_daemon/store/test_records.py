"""`store/records.py`: ids of jobs and groups, and what a job's content says to an engine."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import integers, text

from boa_daemon.store.records import NODE_KEY, JobRecord, first_of_group, group_id, job_id
from boa_daemon.testing.daemon_in_a_folder import job_content


def a_record(**content: Any) -> JobRecord:
    """Return job 7, of ann."""
    return JobRecord(
        id="job-7",
        seq=7,
        user="ann",
        class_name="default",
        content=job_content() | content,
        arrived_at=1.5,
        remaining_gpu_hours=1.0,
        size_gpu_hours=2.5,
    )


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Train_BERT v2", "train-bert-v2"),
        ("--x--", "x"),
        ("a--b", "a--b"),
        ("語", "job"),
        ("", "job"),
        ("a" * 60, "a" * 40),
    ],
)
def test_an_id_is_the_name_in_small_letters_and_the_number(name: str, slug: str) -> None:
    """A name without a letter that fits is called job."""
    assert (job_id(name, 3), group_id(name, 3)) == (f"{slug}-3", f"{slug}-g3")


@given(name=text("aG-0_ é/\n", max_size=50), number=integers(1, 10**12))
def test_a_group_is_found_by_its_id_and_no_job_has_such_an_id(name: str, number: int) -> None:
    """Ids are safe in paths and units' names."""
    assert first_of_group(group_id(name, number)) == number
    assert first_of_group(job_id(name, number)) is None
    assert re.fullmatch(r"[a-z0-9-]{1,60}", job_id(name, number))


@pytest.mark.parametrize("text", ["a-g0", "a-g01", "a-g", "-g1x", "A-g1", "a-g1\n", "g1", "a-g" + "9" * 17])
def test_other_text_is_no_group(text: str) -> None:
    """People type such words where an id is asked for."""
    assert first_of_group(text) is None


def test_a_place_in_a_group_counts_back_to_its_first_job() -> None:
    """The job sees its place in its environment, and cannot have written another one there."""
    place = {"index": 2, "size": 4}
    job = a_record(group=place, environment={"BOA_INDEX": "9", "MINE": "1"})
    assert (job.group, a_record().group) == ("job-g5", "")
    wanted = {"MINE": "1", "BOA_GROUP": "job-g5", "BOA_INDEX": "2", "BOA_GROUP_SIZE": "4"}
    assert job.spec.environment == wanted
    assert "BOA_GROUP" not in a_record().spec.environment


@pytest.mark.parametrize(
    ("elastic", "has_reported", "is_rigid"),
    [
        (None, False, True),
        (None, True, False),
        (True, False, False),
        (True, True, False),
        (False, True, True),
        (False, False, True),
    ],
)
def test_a_job_is_rigid_as_its_file_says_or_until_it_reports(
    elastic: bool | None, has_reported: bool, is_rigid: bool
) -> None:
    """What it does would be lost, unless it is known to keep its work."""
    job = replace(a_record(elastic=elastic), has_reported=has_reported)
    assert (job.is_rigid, job.spec.is_rigid) == (is_rigid, is_rigid)


def test_a_job_waits_or_runs_while_it_is_active() -> None:
    """The other three states are ends."""
    states = ("queued", "running", "finished", "failed", "cancelled")
    assert [replace(a_record(), status=status).is_active for status in states] == [True, True] + [False] * 3


def test_a_node_of_slurm_is_started_as_root_and_other_jobs_as_their_user() -> None:
    """It starts the jobs of all users; no job file can have its key."""
    assert [job.spec.user for job in (a_record(), a_record(**{NODE_KEY: "n1"}))] == ["ann", "root"]


def test_an_engine_keeps_the_job_as_it_was_submitted() -> None:
    """A lost record is made again from it."""
    job = a_record(code={"digest": "abc", "bytes": 5}, team="vision")
    kept = json.loads(job.spec.record)
    assert kept == {"content": job.content, "size_gpu_hours": 2.5, "arrived_at": 1.5}
    assert (job.spec.job, job.spec.class_name, job.spec.code) == ("job-7", "default", "abc")
    assert (job.team, a_record(team=None).team, a_record().spec.code) == ("vision", "", "")


def test_the_draw_of_a_job_is_fixed_and_even() -> None:
    """On [0, 1), the same after a restart: half of many jobs are in each half."""
    draws = [replace(a_record(), id=f"j-{number}").draw for number in range(400)]
    assert all(0.0 <= draw < 1.0 for draw in draws)
    assert 160 < sum(draw < 0.5 for draw in draws) < 240
    assert a_record().draw == a_record().draw
