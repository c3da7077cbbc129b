"""How a daemon stands, from what it knows of itself alone."""

from __future__ import annotations

import time

import pytest

from boa_daemon.daemon.daemon_health import LATE_SECONDS, LATE_TICKS, DaemonHealth, clock_note, fault_of


def test_the_first_trouble_is_said() -> None:
    """A fault, then ticks that do not end, then that none was done yet; without a database none is due."""
    late = time.monotonic() - LATE_TICKS * 30.0 - LATE_SECONDS - 1.0
    assert DaemonHealth(fault="disk is full", done_at=late).trouble(30.0) == "disk is full"
    assert DaemonHealth(done_at=late, is_ready=True).trouble(30.0).startswith("no tick completed for 15")
    assert DaemonHealth(done_at=late, is_ready=True).trouble(None) == ""
    assert DaemonHealth().trouble(30.0) == "the first tick is not done"
    assert DaemonHealth(is_ready=True).trouble(30.0) == ""


@pytest.mark.parametrize(("jump", "says"), [(0.0, ""), (90.0, "90 s ahead"), (-90.0, "90 s behind")])
def test_a_clock_that_jumped_is_said(jump: float, says: str) -> None:
    """Which way, and by how much."""
    said = clock_note(jump)
    assert says in said
    assert bool(said) == bool(says)


def test_a_fault_is_one_line() -> None:
    """The kind of the error and its first line."""
    assert fault_of(ValueError("first\nsecond")) == "ValueError: first"
    assert DaemonHealth(fault="x").line == "in trouble: x"
    assert DaemonHealth().line == "starting"
