"""How much a grant covers: few requests, and no better-ranked job waits for it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from boa_daemon.gate.grant_sizes import MOST_GRANT_SECONDS, allows_overlap, bucket_bytes, undisturbed_bytes
from boa_daemon.gate.job_state import JobAtGate
from boa_daemon.gate.types import GateSettings
from policies.links.contention import Link

LINK = Link(latency_seconds=0.0, seconds_per_byte=1e-9, contention_seconds_per_byte=0.0)


def a_seat(left: float = 10.0, **changes: Any) -> JobAtGate:
    """Return a job with so many GPU-seconds left by the plan."""
    values: dict[str, Any] = {"job": "a", "nics": frozenset("A"), "gpus": 1, "weight": 1.0, "joined_at": 0.0}
    return JobAtGate(**(values | {"planned_gpu_seconds": left} | changes))


@pytest.mark.parametrize(
    ("trips", "size"), [((), 5e6), ((None,), 5e6), ((1e-4,), 5e6), ((1e-3, None, 3e-3, 9e-3), 6e7)]
)
def test_a_bucket_takes_as_long_as_twenty_median_requests(
    trips: tuple[float | None, ...], size: float
) -> None:
    """It is never smaller than it is set."""
    settings = GateSettings(link=LINK, policy="ada-srsf-buckets", bucket_bytes=5e6)
    seats = [a_seat(round_trip_seconds=trip) for trip in trips]
    assert bucket_bytes(settings, seats, LINK) == pytest.approx(size)


def test_a_policy_of_whole_messages_has_no_bucket() -> None:
    """However long a request takes."""
    settings = GateSettings(link=LINK, policy="srsf-1")
    assert bucket_bytes(settings, [a_seat(round_trip_seconds=1.0)], LINK) == math.inf


@pytest.mark.parametrize(
    ("others", "seconds"),
    [
        ([], MOST_GRANT_SECONDS),
        ([a_seat(20.0)], MOST_GRANT_SECONDS),
        ([a_seat(10.0)], MOST_GRANT_SECONDS),
        ([a_seat(5.0)], 0.0),
        ([a_seat(20.0, weight=4.0)], 0.0),
        ([a_seat(5.0, compute_seconds=1.0, computes_since=99.1)], 0.1),
        ([a_seat(5.0, compute_seconds=9.0, computes_since=99.1)], MOST_GRANT_SECONDS),
        ([a_seat(5.0, compute_seconds=0.5, computes_since=99.0)], 0.0),
        (
            [
                a_seat(5.0, compute_seconds=1.0, computes_since=99.1),
                a_seat(6.0, compute_seconds=1.0, computes_since=99.05),
            ],
            0.05,
        ),
    ],
)
def test_a_grant_lasts_until_a_better_job_may_be_back(others: list[JobAtGate], seconds: float) -> None:
    """A better job whose computing is not known may be back at once."""
    assert undisturbed_bytes(a_seat(10.0), others, LINK, 100.0) == pytest.approx(seconds * 1e9)


@pytest.mark.parametrize(("eta", "policy", "may"), [
    (0.0, "ada-srsf-buckets", True),
    (1e-10, "ada-srsf-buckets", True),
    (1.1e-10, "ada-srsf-buckets", False),
    (0.0, "srsf-1", False),
])  # fmt: skip
def test_messages_overlap_where_that_slows_the_link_down_by_a_tenth_at_most(
    eta: float, policy: str, may: bool
) -> None:
    """Only buckets end soon enough for it."""
    link = Link(latency_seconds=0.0, seconds_per_byte=1e-9, contention_seconds_per_byte=eta)
    assert allows_overlap(GateSettings(link=link, policy=policy), link) is may
