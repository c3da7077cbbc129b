"""Boots as seen: what plans assume, and what `boa status` shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.learning.boot_times import LEAST_SEEN, LONGEST_SECONDS, MOST_KEPT, STEP, BootTimes


def seen(*seconds: float, kind: str = "g5.xlarge") -> BootTimes:
    boots = BootTimes()
    for number, each in enumerate(seconds):
        boots.take(f"{kind}-{number}", kind, launched_at=1000.0, ready_at=1000.0 + each)
    return boots


@given(seconds=st.floats(min_value=5.0, max_value=1500.0))
def test_plans_go_by_what_was_seen_within_a_step(seconds: float) -> None:
    """Three boots count; the plan knows them to 12 %."""
    boots = seen(*[seconds] * LEAST_SEEN)
    planned = boots.planned_seconds(["g5.xlarge"], otherwise=180.0)
    assert seconds / STEP**0.5 * (1 - 1e-9) <= planned <= seconds * STEP**0.5 * (1 + 1e-9)
    assert seen(seconds).planned_seconds(["g5.xlarge"], otherwise=180.0) == 180.0


def test_a_boot_that_is_a_little_longer_changes_no_plan() -> None:
    """Or each boot would make a new policy."""
    assert seen(100.0, 100.0, 100.0).planned_seconds(["g5.xlarge"], otherwise=180.0) == (
        seen(100.0, 104.0, 101.0).planned_seconds(["g5.xlarge"], otherwise=180.0)
    )


def test_each_node_counts_once_and_what_never_came_up_not_at_all() -> None:
    """A node that is listed at every tick has booted once; one that took an hour went back."""
    boots = seen(100.0)
    for _ in range(5):
        boots.take("g5.xlarge-0", "g5.xlarge", launched_at=1000.0, ready_at=1100.0)
        boots.take("slow", "g5.xlarge", launched_at=1000.0, ready_at=1001.0 + LONGEST_SECONDS)
        boots.take("booting", "g5.xlarge", launched_at=1000.0, ready_at=None)
    assert boots.document() == {"g5.xlarge": {"boots": 1, "p50_seconds": 100.0, "p90_seconds": 100.0}}


def test_the_newest_are_kept_and_the_distribution_is_shown() -> None:
    """Of a hundred the last fifty, by type."""
    boots = seen(*range(1, 2 * MOST_KEPT + 1))
    assert boots.document()["g5.xlarge"] == {"boots": 50, "p50_seconds": 75.5, "p90_seconds": 95.1}


def test_a_type_that_nobody_saw_boot_is_taken_at_its_word() -> None:
    """The mean of what was seen of one, and of what is said of the other."""
    planned = seen(60.0, 60.0, 60.0).planned_seconds(["g5.xlarge", "p4d.24xlarge"], otherwise=180.0)
    assert planned == pytest.approx(120.0, rel=0.12)
