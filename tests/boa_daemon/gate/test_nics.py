"""Whether messages on a card are ordered: never for one job, always while learning, then where it pays."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.gate.job_state import LEAST_TIMED, JobAtGate
from boa_daemon.gate.nics import ATTEMPT_EVERY_SECONDS, Nic, judge, linked_jobs, overhead_fraction
from boa_daemon.gate.types import GateSettings, NicVerdict
from boa_daemon.job.gate.allowance import MOST_FRACTION, OVERHEAD_FRACTION
from policies.links.contention import Link

LINK = Link(latency_seconds=0.0, seconds_per_byte=1e-6, contention_seconds_per_byte=0.0)


def a_seat(name: str = "a", *, nics: str = "A", left: float = 1e4, **changes: Any) -> JobAtGate:
    """Return a job that computes and sends for a second each."""
    known: dict[str, Any] = {"compute_seconds": 1.0, "iteration_bytes": 1e6, "iterations_left": left}
    return JobAtGate(job=name, nics=frozenset(nics), gpus=1, weight=1.0, joined_at=0.0, **(known | changes))


def judged(*seats: JobAtGate, nic: Nic | None = None, now: float = 0.0, **settings: Any) -> NicVerdict:
    """Return the verdict about a card that all these jobs use."""
    nic = nic or Nic("A")
    nic.jobs = {seat.job for seat in seats}
    return judge(
        nic,
        {seat.job: seat for seat in seats},
        GateSettings(link=LINK, **settings),
        LINK,
        1e9,
        linked=sorted(nic.jobs),
        now=now,
        worked_out={},
    )


def test_one_job_is_not_ordered_unless_all_is() -> None:
    """There is nothing to order."""
    assert not judged(a_seat()).is_on
    assert judged(a_seat(), is_always_on=True).why == "always on by configuration"


def test_a_card_is_on_while_a_job_is_not_known() -> None:
    """The verdict counts what is missing."""
    found = judged(a_seat("a"), a_seat("b", compute_seconds=None), a_seat("c", iteration_bytes=None))
    assert found.is_on
    assert found.gain_fraction is None
    assert "2 of 3 jobs have not measured" in found.why


def test_a_card_is_on_where_ordering_saves_more_than_it_costs() -> None:
    """Two jobs that send half of their time, one of which ends sooner."""
    found = judged(a_seat("a", left=5000.0), a_seat("b"))
    assert found.is_on
    assert found.gain_fraction is not None
    assert found.gain_fraction > 0.01
    slow = judged(a_seat("a", left=5000.0, round_trip_seconds=5.0), a_seat("b", round_trip_seconds=5.0))
    assert not slow.is_on
    assert "ordering cannot pay" in slow.why


def test_a_card_that_is_fast_for_its_jobs_is_off() -> None:
    """They hardly send."""
    quick = {"iteration_bytes": 100.0, "compute_seconds": 10.0}
    assert "the card is fast for these jobs" in judged(a_seat("a", **quick), a_seat("b", **quick)).why


def test_a_card_that_is_on_stays_on_at_half_the_threshold() -> None:
    """It would go on and off otherwise."""
    seats = a_seat("a", left=5000.0), a_seat("b")
    gain = judged(*seats).gain_fraction
    assert gain is not None
    nic = Nic("A")
    bar = {"least_gain_fraction": 1.5 * gain}
    assert not judged(*seats, nic=nic, **bar).is_on
    nic.verdict = NicVerdict(nic="A", is_on=True, why="", jobs=2)
    assert judged(*seats, nic=nic, **bar).is_on


def test_a_trial_sends_at_once_until_each_job_was_timed_and_comes_again_after_five_minutes() -> None:
    """It begins once iterations in order were timed."""
    seats = [a_seat("a", left=5000.0), a_seat("b")]
    nic = Nic("A")
    for seat in seats:
        seat.timed[True], seat.paces[True] = LEAST_TIMED, 2.0
    first = judged(*seats, nic=nic, now=10.0)
    assert not first.is_on
    assert "trial: messages go at once" in first.why
    assert nic.attempt_ends_at == pytest.approx(10.0 + 4.0 * LEAST_TIMED * 2.0)
    for seat in seats:
        seat.timed[False], seat.paces[False] = LEAST_TIMED, 3.0
    assert judged(*seats, nic=nic, now=20.0).is_on
    assert (nic.attempt_ends_at, nic.attempted_at) == (None, 20.0)
    assert judged(*seats, nic=nic, now=20.0 + ATTEMPT_EVERY_SECONDS - 1.0).is_on
    assert not judged(*seats, nic=nic, now=20.0 + ATTEMPT_EVERY_SECONDS).is_on
    nic.forget_attempts()
    assert (nic.attempt_ends_at, nic.attempted_at) == (None, None)


def test_a_trial_ends_though_a_job_was_never_timed() -> None:
    """And none begins for a job that has little left."""
    seats = [a_seat("a", left=5000.0), a_seat("b")]
    nic = Nic("A", attempt_ends_at=30.0)
    assert not judged(*seats, nic=nic, now=29.0).is_on
    assert judged(*seats, nic=nic, now=30.0).is_on
    short = [a_seat("a", left=20.0), a_seat("b", left=40.0)]
    for seat in short:
        seat.timed[True], seat.paces[True] = LEAST_TIMED, 2.0
    assert judged(*short).is_on


def test_meetings_are_counted_with_a_fiftieth_for_the_newest() -> None:
    """A card on which nothing meets says so."""
    nic = Nic("A")
    nic.count(met=True)
    nic.count(met=False)
    assert nic.asks == 2
    assert nic.meeting_fraction == pytest.approx(0.02 * 0.98)


def test_jobs_are_linked_over_the_cards_that_they_share() -> None:
    """a and c never meet, and delay each other through b."""
    seats = {
        "a": a_seat("a", nics="A"),
        "b": a_seat("b", nics="AB"),
        "c": a_seat("c", nics="B"),
        "d": a_seat("d", nics="D"),
    }
    users = {name: {job for job, seat in seats.items() if name in seat.nics} for name in ("A", "B", "D")}
    nics = {name: Nic(name, jobs=jobs) for name, jobs in users.items()}
    assert linked_jobs("A", nics, seats) == {"a", "b", "c"}
    assert linked_jobs("D", nics, seats) == {"d"}
    assert linked_jobs("nowhere", nics, seats) == set()


@pytest.mark.parametrize(
    ("verdicts", "fraction"),
    [
        ([], OVERHEAD_FRACTION),
        ([(True, None)], MOST_FRACTION),
        ([(False, None)], OVERHEAD_FRACTION),
        ([(True, 0.04), (True, 0.02)], 0.02),
        ([(True, 0.9)], MOST_FRACTION),
        ([(True, 0.001)], OVERHEAD_FRACTION),
        ([(True, 0.04), (True, None)], MOST_FRACTION),
    ],
)
def test_asking_may_cost_half_of_what_ordering_gains(
    verdicts: list[tuple[bool, float | None]], fraction: float
) -> None:
    """Within bounds; while a card that is on is not judged, the most."""
    nics = [
        Nic("A", verdict=NicVerdict(nic="A", is_on=is_on, why="", jobs=2, gain_fraction=gain))
        for is_on, gain in verdicts
    ]
    assert overhead_fraction([*nics, Nic("B")]) == pytest.approx(fraction)
