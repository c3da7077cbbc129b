"""`policies.links.phase_shift`: iterations that start apart, so that messages miss each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import InvalidProblem
from policies.links.phase_shift import GRID, Beat, shift_phases


def a_beat(job: str, period: float, sending: float, servers: str = "A") -> Beat:
    """Return a job's iteration."""
    return Beat(job=job, period_seconds=period, sending_seconds=sending, servers=frozenset(servers))


def meeting_by_hand(
    beats: list[Beat], offsets: dict[str, float], periods: dict[str, float], circle: float
) -> float:
    """Return the seconds per circle in which two messages share a server, by sampling."""
    points = 20_000
    total = 0
    for point in range(points):
        at = (point + 0.5) * circle / points
        busy = [
            b
            for b in beats
            if b.job in offsets and (at - offsets[b.job]) % periods[b.job] < b.sending_seconds
        ]
        total += sum(1 for i, a in enumerate(busy) for b in busy[:i] if a.servers & b.servers)
    return total * circle / points


def test_two_that_fit_never_meet() -> None:
    """0.4 s and 0.5 s of sending in a second leave room."""
    schedule = shift_phases([a_beat("a", 1.0, 0.4), a_beat("b", 1.0, 0.5)])

    assert schedule.meeting_seconds == 0.0
    assert schedule.meeting_seconds_unshifted == pytest.approx(0.4 * 0.5, rel=0.01)


def test_jobs_on_other_servers_are_left_in_peace() -> None:
    """Sharing nothing costs nothing."""
    schedule = shift_phases([a_beat("a", 1.0, 0.9, "A"), a_beat("b", 1.0, 0.9, "B")])

    assert schedule.meeting_seconds == schedule.meeting_seconds_unshifted == 0.0


def test_a_job_twice_as_fast_goes_round_twice() -> None:
    """Its period is stretched to half of the slow one's: two short messages beside one long one."""
    schedule = shift_phases([a_beat("slow", 1.0, 0.4), a_beat("fast", 0.49, 0.08)])
    periods = {shift.job: shift.period_seconds for shift in schedule.shifts}

    assert periods == {"slow": 1.0, "fast": 0.5}
    assert schedule.meeting_seconds == pytest.approx(0.0, abs=1e-9)


def test_a_job_that_fits_no_circle_is_left_alone() -> None:
    """0.7 s does not go into a second, whatever the delay."""
    schedule = shift_phases([a_beat("a", 1.0, 0.2), a_beat("b", 0.7, 0.2)])

    assert [shift.job for shift in schedule.shifts] == ["a"]


def test_the_delay_leads_to_the_next_turn() -> None:
    """From any instant, the turn is less than a period away."""
    (shift, _) = shift_phases([a_beat("a", 1.0, 0.4), a_beat("b", 1.0, 0.5)]).shifts
    for at in (0.0, 0.3, 17.9, -2.2):
        delay = shift.delay_seconds(at)
        assert 0.0 <= delay < shift.period_seconds
        assert (at + delay - shift.offset_seconds) % shift.period_seconds == pytest.approx(0.0, abs=1e-9) or (
            at + delay - shift.offset_seconds
        ) % shift.period_seconds == pytest.approx(shift.period_seconds, abs=1e-9)


def test_nothing_to_shift_is_no_schedule() -> None:
    """No jobs, no circle."""
    assert shift_phases([]).shifts == ()
    with pytest.raises(InvalidProblem, match="period_seconds of job x"):
        a_beat("x", 0.0, 0.1)


BEATS = st.lists(
    st.tuples(
        st.sampled_from([1.0, 0.5, 0.26, 0.99]), st.floats(0.01, 0.5), st.sampled_from(["A", "B", "AB"])
    ),
    min_size=1,
    max_size=5,
)


@given(rows=BEATS)
def test_shifting_never_meets_more_than_chance(rows: list[tuple[float, float, str]]) -> None:
    """Descent ends at or below the mean over all offsets, and says how much the messages really meet."""
    beats = [a_beat(f"j{n}", t, min(s, t) * 0.9, w) for n, (t, s, w) in enumerate(rows)]
    schedule = shift_phases(beats)
    assert schedule.meeting_seconds <= schedule.meeting_seconds_unshifted + 1e-9


def test_the_schedule_says_how_much_messages_meet() -> None:
    """Sampled by hand over the circle, three jobs that do not all fit meet as long as it says."""
    beats = [
        a_beat("a", 1.0, 0.5),
        a_beat("b", 1.0, 0.4, "AB"),
        a_beat("c", 0.5, 0.15, "B"),
        a_beat("d", 1.0, 0.3),
    ]
    schedule = shift_phases(beats)
    offsets = {shift.job: shift.offset_seconds for shift in schedule.shifts}
    periods = {shift.job: shift.period_seconds for shift in schedule.shifts}
    found = meeting_by_hand(beats, offsets, periods, schedule.circle_seconds)

    assert schedule.meeting_seconds == pytest.approx(found, abs=4 / GRID)
