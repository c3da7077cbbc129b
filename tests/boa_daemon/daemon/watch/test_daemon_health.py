"""Daemon health: what the daemon reports about its own faults, ticks and clock."""

from __future__ import annotations

import time

import pytest

from boa_daemon.daemon.watch.daemon_health import LATE_SECONDS, LATE_TICKS, DaemonHealth, clock_note, fault_of


def test_trouble_is_a_fault_then_late_ticks_then_a_missing_first_tick() -> None:
    """Without a tick interval (`None`), late ticks are no trouble."""
    late = time.monotonic() - LATE_TICKS * 30.0 - LATE_SECONDS - 1.0
    assert DaemonHealth(fault="disk is full", done_at=late).trouble(30.0) == "disk is full"
    assert DaemonHealth(done_at=late, is_ready=True).trouble(30.0).startswith("no tick completed for 15")
    assert DaemonHealth(done_at=late, is_ready=True).trouble(None) == ""
    assert DaemonHealth().trouble(30.0) == "the first tick is not done"
    assert DaemonHealth(is_ready=True).trouble(30.0) == ""


@pytest.mark.parametrize(("jump", "says"), [(0.0, ""), (90.0, "90 s ahead"), (-90.0, "90 s behind")])
def test_the_note_on_a_clock_jump_names_its_size_and_direction(jump: float, says: str) -> None:
    """A clock that did not jump gives an empty note."""
    said = clock_note(jump)
    assert says in said
    assert bool(said) == bool(says)


def test_a_fault_is_one_line() -> None:
    """A fault is the type of the error and the first line of its message."""
    assert fault_of(ValueError("first\nsecond")) == "ValueError: first"
    assert DaemonHealth(fault="x").line == "in trouble: x"
    assert DaemonHealth().line == "starting"
