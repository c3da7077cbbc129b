"""Warnings about running jobs, and the limits from which they are given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.daemon.jobs.job_warnings import grace_warning, silence_warning, stall_warning
from boa_daemon.store.records import JobRecord
from boa_daemon.tick.facts.ports import RunReport
from boa_daemon.tick.facts.retries import Silence

JOB = JobRecord(
    id="a",
    seq=1,
    user="ann",
    class_name="c",
    content={"name": "a", "stop_grace_seconds": 100.0},
    arrived_at=0.0,
    remaining_gpu_hours=1.0,
    size_gpu_hours=1.0,
    generation=2,
)
REPORT = RunReport(job="a", generation=2, phase="running")


@pytest.mark.parametrize(("seconds", "is_said"), [(None, False), (70.0, False), (70.1, True)])
def test_a_save_that_takes_more_than_70_percent_of_the_grace_gives_a_warning(
    seconds: float | None, is_said: bool
) -> None:
    """A stop is noticed up to one step late, so a longer save may not end in time."""
    found = grace_warning(JOB, replace(REPORT, save_seconds=seconds))
    assert (found is not None) == is_said
    assert found is None or (found[0], "and has 100 s" in found[1]) == ("grace:a", True)


@pytest.mark.parametrize(("seconds", "is_said"), [(None, False), (100.0, False), (100.1, True)])
def test_a_gap_between_steps_that_is_longer_than_the_grace_gives_a_warning(
    seconds: float | None, is_said: bool
) -> None:
    """A stop that comes at the beginning of the gap is not seen in time; the warning comes before a stop."""
    found = grace_warning(JOB, replace(REPORT, gap_seconds=seconds))
    assert (found is not None) == is_said
    assert found is None or (found[0], "and has 100 s" in found[1]) == ("gap:a", True)


@pytest.mark.parametrize(
    ("kind", "now", "is_said"),
    [
        ("no-report-no-print", 1800.0, False),
        ("no-report-no-print", 1801.0, True),
        ("no-report-no-print", 3600.0, True),
        ("no-report-no-print", 3601.0, False),
        ("no-report", 1801.0, False),
    ],
)
def test_a_silent_job_gives_a_warning_after_half_of_its_limit(kind: str, now: float, is_said: bool) -> None:
    """The warning comes between half and all of the limit, and only if the job printed nothing either."""
    silence = Silence(kind=kind, since=0.0, limit_seconds=3600.0)  # type: ignore[arg-type]
    found = silence_warning(JOB, silence, now)
    assert (found is not None) == is_said
    assert found is None or "printed nothing within 30.0 min: it is ended after 1.00 h" in found[1]


def test_a_stall_warning_names_the_generation_and_the_last_step() -> None:
    """The key has the generation, the sentence has the last step."""
    stall = Silence(kind="no-step", since=100.0, limit_seconds=600.0)
    said = "job a has made no step for 300 s, after step 7"
    assert stall_warning(JOB, stall, 400.0, step=7) == ("stalled:a:2", said)
