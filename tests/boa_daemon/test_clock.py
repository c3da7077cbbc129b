"""Clocks."""

from __future__ import annotations

import time

import pytest

from boa_daemon.clock import SystemClock, VirtualClock
from boa_daemon.errors import BoaError


def test_a_virtual_clock_stands_still_until_it_is_moved() -> None:
    """Time is what it was told."""
    clock = VirtualClock(5.0)
    assert clock.now() == clock.now() == 5.0
    clock.advance_to(7.5)
    assert clock.now() == 7.5


def test_a_virtual_clock_does_not_go_back() -> None:
    """A step back is a fault, not a wish."""
    with pytest.raises(BoaError, match="cannot go back"):
        VirtualClock(5.0).advance_to(4.0)


def test_the_system_clock_is_the_machines() -> None:
    """Seconds since the epoch."""
    before = time.time()
    assert before <= SystemClock().now() <= time.time()
