"""Learned boot times: what plans assume, and what `boa status` shows."""

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
def test_plans_use_observed_boot_times_after_three_boots(seconds: float) -> None:
    """The planned time is rounded to steps of 12 %; with one boot, the stated time is used."""
    boots = seen(*[seconds] * LEAST_SEEN)
    planned = boots.planned_seconds(["g5.xlarge"], otherwise=180.0)
    assert seconds / STEP**0.5 * (1 - 1e-9) <= planned <= seconds * STEP**0.5 * (1 + 1e-9)
    assert seen(seconds).planned_seconds(["g5.xlarge"], otherwise=180.0) == 180.0


def test_a_slightly_longer_boot_does_not_change_the_planned_time() -> None:
    """Otherwise each boot would lead to a new policy."""
    assert seen(100.0, 100.0, 100.0).planned_seconds(["g5.xlarge"], otherwise=180.0) == (
        seen(100.0, 104.0, 101.0).planned_seconds(["g5.xlarge"], otherwise=180.0)
    )


def test_each_node_counts_once_and_failed_boots_do_not_count() -> None:
    """A boot longer than `LONGEST_SECONDS` or without an end is left out."""
    boots = seen(100.0)
    for _ in range(5):
        boots.take("g5.xlarge-0", "g5.xlarge", launched_at=1000.0, ready_at=1100.0)
        boots.take("slow", "g5.xlarge", launched_at=1000.0, ready_at=1001.0 + LONGEST_SECONDS)
        boots.take("booting", "g5.xlarge", launched_at=1000.0, ready_at=None)
    assert boots.document() == {"g5.xlarge": {"boots": 1, "p50_seconds": 100.0, "p90_seconds": 100.0}}


def test_the_newest_fifty_boots_give_the_distribution() -> None:
    """Median and 90th percentile are of the last fifty boots of a type."""
    boots = seen(*range(1, 2 * MOST_KEPT + 1))
    assert boots.document()["g5.xlarge"] == {"boots": 50, "p50_seconds": 75.5, "p90_seconds": 95.1}


def test_a_type_without_boots_counts_with_its_stated_time() -> None:
    """The planned time is the mean of the observed and the stated one."""
    planned = seen(60.0, 60.0, 60.0).planned_seconds(["g5.xlarge", "p4d.24xlarge"], otherwise=180.0)
    assert planned == pytest.approx(120.0, rel=0.12)
