"""What the gate knows of a job: moving means, the time of an iteration, and what is left."""

from __future__ import annotations

import math
from typing import Any

import pytest

from boa_daemon.gate.job_state import LEAST_TIMED, JobAtGate, Lease, smooth
from boa_daemon.gate.types import SendRequest
from policies.links.contention import Link

LINK = Link(latency_seconds=0.1, seconds_per_byte=1e-6, contention_seconds_per_byte=0.0)


def a_seat(**changes: Any) -> JobAtGate:
    """Return a job of two GPUs that joined at instant 100."""
    values: dict[str, Any] = {
        "job": "a",
        "nics": frozenset("A"),
        "gpus": 2,
        "weight": 1.0,
        "joined_at": 100.0,
    }
    return JobAtGate(**(values | changes))


def an_ask(message_bytes: float = 1e6, **changes: Any) -> SendRequest:
    """Return a request."""
    values: dict[str, Any] = {"id": 1, "ready_bytes": message_bytes, "message_bytes": message_bytes}
    return SendRequest(**(values | changes))


@pytest.mark.parametrize(
    ("old", "new", "mean"), [(None, None, None), (4.0, None, 4.0), (None, 4.0, 4.0), (4.0, 9.0, 5.0)]
)
def test_a_moving_mean_takes_a_fifth_of_the_newest_value(
    old: float | None, new: float | None, mean: float | None
) -> None:
    """A missing value changes nothing."""
    assert smooth(old, new) == mean


def test_a_lease_counts_down_to_its_end() -> None:
    """What is estimated to be sent is never more than there was."""
    lease = Lease(
        fence=1, bytes=10.0, servers=frozenset("A"), bytes_left=10.0, deadline=9.0, updated_at=1.0,
        seconds_per_byte=0.5, crowd=1,
    )  # fmt: skip
    assert lease.ends_at == 6.0
    lease.advance(2.0)
    assert (lease.bytes_left, lease.ends_at) == (8.0, 6.0)
    lease.advance(99.0)
    assert (lease.bytes_left, lease.ends_at) == (0.0, 99.0)


def test_the_time_of_an_iteration_is_that_between_two_whole_messages() -> None:
    """Requests for the rest of a message are of the same iteration."""
    seat = a_seat()
    for at, size in ((0.0, 8e6), (1.0, 4e6), (2.0, 8e6), (5.0, 8e6)):
        seat.learn(an_ask(size), at)
    assert seat.timed[True] == 2
    assert seat.paces[True] == pytest.approx(2.5)
    assert not seat.has_shown(in_order=True)


def test_iterations_that_went_without_asking_count_each() -> None:
    """By the job's own count where it has one; they were sent at once, not in order."""
    seat = a_seat()
    seat.learn(an_ask(iterations_left=20.0), 0.0)
    seat.answered(3)
    seat.learn(an_ask(iterations_left=16.0), 8.0)
    assert (seat.timed[False], seat.timed[True]) == (LEAST_TIMED, 0)
    assert seat.paces[False] == pytest.approx(2.0)
    assert seat.has_shown(in_order=False)
    seat.forget_pace(in_order=False)
    assert not seat.has_shown(in_order=False)
    without_count = a_seat()
    without_count.learn(an_ask(), 0.0)
    without_count.answered(3)
    without_count.learn(an_ask(), 6.0)
    assert without_count.paces[False] == pytest.approx(2.0)


def test_new_neighbours_make_the_times_of_old_ones_worthless() -> None:
    """The iteration that is under way began beside the old ones."""
    seat = a_seat()
    for at in (0.0, 1.0):
        seat.learn(an_ask(), at)
    seat.forget_paces()
    seat.learn(an_ask(), 50.0)
    assert seat.paces == {}
    seat.learn(an_ask(), 52.0)
    assert seat.paces[True] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("known", "seconds"),
    [
        ({}, 20.0),
        ({"planned_gpu_seconds": 77.0}, 77.0),
        ({"planned_gpu_seconds": 77.0, "iterations_left": 10.0}, 77.0),
        ({"iterations_left": 10.0}, 2.0),
        ({"iterations_left": 10.0, "compute_seconds": 2.0, "planned_gpu_seconds": 77.0}, 38.0),
        ({"iterations_left": 10.0, "compute_seconds": 2.0, "iteration_bytes": 1e6}, 58.0),
        ({"iterations_left": 0.0, "compute_seconds": 2.0}, 0.0),
    ],
)
def test_what_is_left_is_the_jobs_own_count_else_the_plan_else_the_time_so_far(
    known: dict[str, float], seconds: float
) -> None:
    """In GPU-seconds, ten seconds after it joined; the computing of this iteration is done."""
    assert a_seat(**known).service_seconds(LINK, 110.0) == pytest.approx(seconds)


def test_what_was_sent_of_an_iteration_is_done() -> None:
    """Half of the message is a second of half an iteration, on two GPUs."""
    seat = a_seat(iterations_left=10.0, compute_seconds=2.0, iteration_bytes=1e6, ask=an_ask(5e5))
    assert seat.service_seconds(LINK, 110.0) == pytest.approx(58.0 - 0.5 * 2)


@pytest.mark.parametrize(
    ("ask", "most", "wanted"),
    [
        ({"ready_bytes": 3e6, "is_whole": True}, 1e6, 3e6),
        ({"ready_bytes": 3e6}, 1e6, 1e6),
        ({"ready_bytes": 3e5}, 1e6, 3e5),
        ({"ready_bytes": 3e5}, math.inf, 8e6),
    ],
)
def test_a_grant_is_a_bucket_of_what_is_ready_or_the_rest_of_the_message(
    ask: dict[str, Any], most: float, wanted: float
) -> None:
    """Bytes that cannot be split are granted whole."""
    seat = a_seat(ask=an_ask(8e6, **ask), asked_at=104.0)
    assert seat.wanted_bytes(most) == wanted
    message = seat.waiting(LINK, 110.0, servers=frozenset("A"), most_bytes=most)
    assert (message.bytes_left, message.waited_seconds) == (wanted, 6.0)


def test_the_traffic_of_a_job_is_known_after_its_first_iteration() -> None:
    """It sends no longer than it waits for: the rest is hidden behind computing."""
    assert a_seat(compute_seconds=2.0).habits(LINK, 1e6) is None
    seat = a_seat(compute_seconds=2.0, iteration_bytes=4e6, planned_gpu_seconds=80.0)
    traffic = seat.habits(LINK, 1e6)
    assert traffic is not None
    assert (traffic.sending_seconds, traffic.pieces, traffic.asks, traffic.left_seconds) == (
        4.1,
        4.0,
        4.0,
        40.0,
    )
    seat.exposed_seconds, seat.iterations_left = 1.0, 5.0
    exposed = seat.habits(LINK, math.inf)
    assert exposed is not None
    assert (exposed.sending_seconds, exposed.pieces, exposed.left_seconds) == (1.0, 1.0, 15.0)
    assert seat.exposed_fraction == pytest.approx(1.0 / 3.0)
    assert a_seat().exposed_fraction is None
