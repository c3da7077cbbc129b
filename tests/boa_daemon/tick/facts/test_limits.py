"""Caps, rules against flapping and the calendar: which values are allowed, and what follows from them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.tick.facts.limits import (
    DAY_SECONDS,
    NUMBERS,
    Caps,
    FixedCost,
    Held,
    HeldMoney,
    HeldNumber,
    Steady,
    Window,
    day_of,
    fixed_usd,
    hour_of,
    month_of,
)
from boa_daemon.tick.facts.reasons import SENTENCES, CapCode
from policies.errors import InvalidProblem

NOON = datetime(2026, 2, 14, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("name", ["usd_per_day", "usd_per_month", "usd_per_hour", "instances"])
def test_a_cap_is_positive_or_none(name: str) -> None:
    """A cap of zero or below is an error that names the cap."""
    assert getattr(Caps(), name) is None
    assert getattr(Caps(**{name: 1}), name) == 1
    for wrong in (0, -1):
        with pytest.raises(InvalidProblem, match=name):
            Caps(**{name: wrong})


@pytest.mark.parametrize(
    ("cls", "name", "may_be_zero"),
    [
        (Caps, "tick_seconds", False),
        (Caps, "shutdown_seconds", False),
        (Caps, "least_run_seconds", False),
        (Caps, "late_tick_seconds", True),
        (Caps, "checkpoint_seconds", True),
        (Caps, "refused_seconds", True),
        (Caps, "unseen_seconds", True),
        (Caps, "standing_usd_per_hour", True),
        (Steady, "minimum_hold_seconds", True),
        (Steady, "moves_per_hour_of_a_job", False),
        (Steady, "moves_per_hour", False),
        (Steady, "loop_times", False),
        (Steady, "loop_seconds", False),
        (Steady, "launch_seconds", False),
    ],
)
def test_times_and_counts_are_positive(cls: Any, name: str, may_be_zero: bool) -> None:
    """Some may be zero; no value is negative."""
    assert getattr(cls(**{name: 1}), name) == 1
    with pytest.raises(InvalidProblem, match=name):
        cls(**{name: -1})
    if may_be_zero:
        assert getattr(cls(**{name: 0}), name) == 0
    else:
        with pytest.raises(InvalidProblem, match=name):
            cls(**{name: 0})


def test_the_defaults_of_caps_and_rules_have_these_values() -> None:
    """The values are in seconds, counts and USD per hour."""
    assert Caps() == Caps(
        tick_seconds=30.0,
        checkpoint_seconds=90.0,
        late_tick_seconds=0.0,
        refused_seconds=60.0,
        shutdown_seconds=30.0,
        unseen_seconds=300.0,
        least_run_seconds=900.0,
        standing_usd_per_hour=0.0,
    )
    assert Steady() == Steady(
        minimum_hold_seconds=300.0,
        moves_per_hour_of_a_job=4,
        moves_per_hour=200,
        loop_times=8,
        loop_seconds=3600.0,
        launch_seconds=900.0,
    )
    assert DAY_SECONDS == 24 * 3600.0


@pytest.mark.parametrize(("least", "launch"), [(300.0, 362.0), (362.0, 362.0), (400.0, 400.0)])
def test_stop_keep_and_launch_times_are_sums_of_the_caps_times(least: float, launch: float) -> None:
    """Every time has another value, so no two sums are equal."""
    caps = Caps(
        tick_seconds=1.0,
        checkpoint_seconds=20.0,
        refused_seconds=40.0,
        shutdown_seconds=99.0,
        unseen_seconds=200.0,
        least_run_seconds=least,
    )
    assert caps.gap_seconds == 1.0
    assert caps.end_seconds == 40.0 + 1.0 + 99.0
    assert caps.stop_seconds == 20.0 + 1.0 + 140.0
    assert caps.keep_seconds == 1.0 + 161.0
    assert caps.launch_seconds == launch
    late = replace(caps, late_tick_seconds=4.0)
    assert (late.gap_seconds, late.end_seconds) == (4.0, 143.0)
    assert late.keep_seconds == caps.keep_seconds + 3 * 3.0, "to stop, to end, and to end again"


def test_the_history_covers_an_hour_and_the_longest_rule() -> None:
    """Moves are counted within an hour; loops and minimum holds may be longer."""
    assert Steady(loop_seconds=1.0).memory_seconds == 3600.0
    assert Steady(loop_seconds=5000.0).memory_seconds == 5000.0
    assert Steady(loop_seconds=1.0, minimum_hold_seconds=7000.0).memory_seconds == 7000.0


@pytest.mark.parametrize(
    ("begins_at", "ends_at", "hours"),
    [(None, None, 2.0), (3600.0, None, 1.0), (None, 1800.0, 0.5), (1800.0, 3600.0, 0.5), (7200.0, None, 0.0),
     (None, 0.0, 0.0), (9000.0, 9900.0, 0.0), (-5.0, 9000.0, 2.0)],
)  # fmt: skip
def test_a_fixed_cost_counts_from_its_beginning_to_its_end(
    begins_at: float | None, ends_at: float | None, hours: float
) -> None:
    """At 3 USD per hour within two hours; two equal costs count twice."""
    one = FixedCost(name="block", usd_per_hour=3.0, begins_at=begins_at, ends_at=ends_at)
    assert one.usd_between(0.0, 7200.0) == pytest.approx(3.0 * hours)
    assert fixed_usd([one, one], 0.0, 7200.0) == pytest.approx(6.0 * hours)
    assert fixed_usd([], 0.0, 7200.0) == 0.0


def test_a_fixed_cost_of_zero_is_an_error() -> None:
    """The error names the cost."""
    with pytest.raises(InvalidProblem, match="usd_per_hour of block"):
        FixedCost(name="block", usd_per_hour=0.0)


def test_costs_beside_the_nodes_include_fixed_costs_that_begin_within_the_hour() -> None:
    """A cost that begins in an hour, and a cost that has ended, do not count."""
    blocks = tuple(
        FixedCost(name=str(usd), usd_per_hour=usd, begins_at=begins, ends_at=ends)
        for usd, begins, ends in ((1.0, 1800.0, None), (10.0, 3600.0, None), (100.0, None, 0.0))
    )
    assert Caps(fixed=blocks, standing_usd_per_hour=0.5).beside_usd_per_hour(0.0) == 1.5
    assert Caps(fixed=blocks).beside_usd_per_hour(1.0) == 11.0
    assert Caps().beside_usd_per_hour(0.0) == 0.0


def test_the_sentence_of_a_note_has_the_target_the_reason_and_the_numbers() -> None:
    """Numbers have units and thousands separators; without numbers there are no brackets."""
    held = Held(what="2 gpu-x4", code="cap-day", numbers={"cap_usd": 1234567.0, "left_usd": 0.25})
    said = "2 gpu-x4: the cap on dollars per day leaves no room for it"
    assert held.sentence == f"{said} (the cap is $1,234,567.00, $0.25 is left)"
    assert Held(what="2 gpu-x4", code="cap-day").sentence == said
    assert Held(what="x", code="loop", numbers={"seconds": 4321.0}).sentence.endswith("(in 4,321 s)")
    spent = HeldMoney(spent_usd=3.0, reserved_usd=0.0, room_at=0.0)
    team = Held(what="x", code="team-day-cap", numbers={"spent_usd": 3.0, "cap_usd": 2.0}, money=spent)
    assert "(the cap is $2.00): $3.00 is spent" in team.sentence
    assert set(get_args(CapCode)) <= SENTENCES.keys()
    assert len(set(SENTENCES.values())) == len(SENTENCES) == 18


@pytest.mark.parametrize("name", get_args(HeldNumber))
@pytest.mark.parametrize("value", [-130.5, 0.0, 6.00053, 1234567.0])
def test_no_number_in_a_sentence_has_the_name_of_a_key_or_an_exponent(name: HeldNumber, value: float) -> None:
    """JSON has the names; people get words, units, and no more digits than they need."""
    held = Held(what="job a", code="cap-day", numbers={name: value})
    said = held.sentence
    assert "_" not in said
    assert "e+" not in said
    assert "6.00053" not in said
    assert said.endswith(")")
    assert name in NUMBERS


@given(
    instant=st.floats(0.0, 4e9),
    stretch=st.tuples(st.floats(0.0, 4e9), st.floats(0.0, 4e9)).map(sorted),
)
def test_every_instant_lies_in_one_hour_one_day_and_one_month(instant: float, stretch: list[float]) -> None:
    """Windows follow one another without gaps and have calendar lengths."""
    for window_of, lengths in (
        (hour_of, {3600.0}),
        (day_of, {DAY_SECONDS}),
        (month_of, {days * DAY_SECONDS for days in (28, 29, 30, 31)}),
    ):
        window = window_of(instant)
        assert window.begins_at <= instant < window.ends_at
        assert window.ends_at - window.begins_at in lengths
        assert window_of(window.ends_at).begins_at == window.ends_at
        assert window_of(window.begins_at) == window
        first, last = stretch
        inside = window.overlap_seconds(first, last)
        assert 0.0 <= inside <= min(last - first, max(lengths))


def test_months_have_the_lengths_of_the_calendar() -> None:
    """The months are February 2026, the leap February 2028, and December 2026."""
    for year, month, days in ((2026, 2, 28), (2028, 2, 29), (2026, 12, 31)):
        begins = datetime(year, month, 1, tzinfo=UTC).timestamp()
        found = month_of(begins + 10 * DAY_SECONDS)
        assert found == Window(begins_at=begins, ends_at=begins + days * DAY_SECONDS)


@pytest.mark.parametrize(
    ("begins", "ends", "seconds"),
    [(0, 5, 0), (0, 10, 0), (0, 12, 2), (12, 15, 3), (15, 30, 5), (20, 30, 0), (0, 99, 10)],
)
def test_an_interval_overlaps_a_window_by_the_seconds_inside_it(begins: int, ends: int, seconds: int) -> None:
    """The window is from 10 to 20."""
    assert Window(begins_at=10.0, ends_at=20.0).overlap_seconds(begins, ends) == seconds
