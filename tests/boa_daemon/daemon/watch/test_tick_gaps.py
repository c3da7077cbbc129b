"""How far apart ticks come, and what people are told of it."""

from __future__ import annotations

from boa_daemon.daemon.watch.tick_gaps import MOST_SECONDS, TickGaps, gap_note


def test_a_gap_reaches_from_the_beginning_of_a_tick_to_the_end_of_the_next() -> None:
    """What nodes cost is counted at the beginning, and they can be ended until the end; tens of seconds."""
    gaps = TickGaps()
    gaps.note(began=1000.0, ended=1500.0)
    assert gaps.longest() == 0.0, "one tick has no gap"
    gaps.note(began=1600.0, ended=1604.0)
    gaps.note(began=1630.0, ended=1631.0)
    assert gaps.longest() == 40.0
    gaps.note(began=2230.0, ended=2231.0)
    assert gaps.longest() == 610.0


def test_a_machine_that_slept_once_leaves_money_for_work() -> None:
    """A gap counts when it came twice within a day, also in different hours."""
    gaps = TickGaps()
    for at in (0.0, 30.0, 60.0, 5000.0, 5030.0):
        gaps.note(began=at, ended=at)
    assert gaps.longest() == 30.0
    gaps.note(began=8000.0, ended=8000.0)
    assert gaps.longest() == 2970.0


def test_a_gap_is_remembered_for_a_day_and_never_longer_than_an_hour() -> None:
    """A machine that slept all night must leave money for work; after a day it is forgotten."""
    gaps = TickGaps()
    for at in (0.0, 8 * 3600.0, 16 * 3600.0):
        gaps.note(began=at, ended=at)
    assert gaps.longest() == MOST_SECONDS
    for minute in range(16 * 60, 41 * 60):
        gaps.note(began=60.0 * minute, ended=60.0 * minute)
    assert gaps.longest() == 60.0


def test_people_are_told_when_ticks_come_later_than_every_site_allows_for() -> None:
    """Four times the period is allowed for without having been seen."""
    assert gap_note(120.0, 30.0) == ""
    assert "130 s apart" in gap_note(130.0, 30.0)
    assert gap_note(60.0, 1.0) == "", "a busy machine with short ticks"
    assert "70 s apart" in gap_note(70.0, 1.0)
