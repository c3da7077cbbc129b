"""`store/job_rows.py`: a job comes back from its row as it was, whatever the database calls true."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.store.job_rows import instance_of, job_of, row_of
from boa_daemon.store.records import JobRecord
from boa_daemon.testing import a_node
from boa_daemon.tick.facts.codec import dumps

FULL = JobRecord(
    id="train-7",
    seq=7,
    user="ann",
    class_name="bert",
    content={"name": "train", "team": "vision", "note": 'a "quoted" word, é'},
    arrived_at=1.5,
    remaining_gpu_hours=2.5,
    size_gpu_hours=3.5,
    status="running",
    generation=4,
    started_at=5.5,
    ended_at=6.5,
    step=8,
    cause="preempted",
    is_cancelled=True,
    failures=9,
    starts=(10.5, 11.5),
    micro_dollars=12,
    begun_step=13,
    lost_steps=14,
    settled_generation=15,
    failed=((16.5, 17, "oom"), (18.5, 19, "lost")),
    not_before=20.5,
    exit_code=21,
    last_lines=("one", "two"),
    first_started_at=22.5,
    ran_seconds=23.5,
    lost_gpu_hours=24.5,
    has_reported=True,
    width_before=("h100", 8),
    checkpoint_bytes=25,
)
"""A job in which every field that a row keeps has a value of its own."""
ELSEWHERE = {"width", "slots", "stalled_since"}
"""Fields that come from the GPUs that a job holds, and from watching it."""


def from_row(row: dict[str, Any]) -> JobRecord:
    """Return the job of a row, as a database gives it: flags are numbers."""
    given = {name: int(value) if isinstance(value, bool) else value for name, value in row.items()}
    return job_of(SimpleNamespace(**given))


def test_the_example_gives_every_kept_field_another_value_than_its_default() -> None:
    """A new field has to be added to the example, so that the next test speaks of it."""
    default = JobRecord(id="", seq=0, user="", class_name="", content={}, arrived_at=0.0,
                        remaining_gpu_hours=0.0, size_gpu_hours=0.0)  # fmt: skip
    same = {
        each.name for each in fields(JobRecord) if getattr(FULL, each.name) == getattr(default, each.name)
    }
    assert same == ELSEWHERE


@pytest.mark.parametrize(
    "job", [FULL, replace(FULL, width_before=None, failed=(), starts=(), last_lines=(), is_cancelled=False)]
)
def test_a_job_comes_back_from_its_row_as_it_was(job: JobRecord) -> None:
    """Tuples are tuples again, and flags are flags."""
    found = from_row(row_of(job))
    assert found == job
    assert hash((found.starts, found.failed, found.last_lines, found.width_before))
    assert found.is_cancelled is job.is_cancelled


def test_a_row_has_the_columns_that_jobs_are_found_by() -> None:
    """The owner and the team are columns of their own."""
    row = row_of(FULL)
    assert (row["name"], row["user_name"], row["team_name"]) == ("train", "ann", "vision")
    assert row_of(replace(FULL, content={"name": "train"}))["team_name"] == ""


def test_a_row_of_an_earlier_version_lacks_what_came_later() -> None:
    """Its defaults stand in; the width before may be missing or null."""
    row = row_of(FULL)
    short = '{"content":{"name":"train"},"size_gpu_hours":3.5,"starts":[],"last_lines":[],"failed":[]}'
    found = from_row(row | {"spec": short})
    assert (found.width_before, found.checkpoint_bytes, found.lost_steps) == (None, None, 0)


def test_a_node_comes_back_with_what_the_daemon_noted_of_it() -> None:
    """Each of its own columns stands for itself."""
    node = a_node("n1")
    row = SimpleNamespace(node=dumps(node), ready_at=2.0, idle_since=3.0, was_used=1, last_seen_at=4.0)
    found = instance_of(row)
    assert (found.node, found.ready_at, found.idle_since, found.last_seen_at) == (node, 2.0, 3.0, 4.0)
    assert found.was_used is True
