"""Clocks."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.clock import SMALL_SECONDS, SteadyClock, SystemClock, VirtualClock
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


class Machine:
    """A machine whose clock and whose time that passes a test sets."""

    def __init__(self) -> None:
        self.wall, self.passed = 1_800_000_000.0, 50.0
        self.clock = SteadyClock(wall=lambda: self.wall, passed=lambda: self.passed)

    def go_on(self, seconds: float) -> None:
        self.wall += seconds
        self.passed += seconds


@given(
    steps=st.lists(
        st.tuples(
            st.floats(0.0, 100.0),
            st.one_of(st.just(0.0), st.floats(31.0, 4e8), st.floats(-4e8, -1.0)),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_no_jump_of_the_machine_reaches_the_steady_clock(steps: list[tuple[float, float, bool]]) -> None:
    """Forward or back, seconds to years, with and without return: time goes on as it passes."""
    machine = Machine()
    passed = 0.0
    for seconds, jump, comes_back in steps:
        machine.go_on(seconds)
        passed += seconds
        machine.wall += jump
        assert machine.clock.now() == pytest.approx(1_800_000_000.0 + passed, abs=1e-3)
        machine.wall -= jump if comes_back else 0.0
        # A return to what is right, or a jump of its own, may come within what is followed.
        if abs(machine.clock.jump_seconds) <= SMALL_SECONDS and machine.clock.jump_seconds > 1e-3:
            machine.wall -= machine.clock.jump_seconds


def test_small_corrections_of_the_machine_are_followed_forwards() -> None:
    """The time service sets it ten seconds forward, then ten back: bills never run twice through a second."""
    machine = Machine()
    machine.wall += 10.0
    assert machine.clock.now() == 1_800_000_010.0
    machine.wall -= 10.0
    assert machine.clock.now() == 1_800_000_010.0


def test_the_cloud_sets_the_clock_at_the_start() -> None:
    """The machine came up 40 days ahead: the first word of the cloud is right, before anything was done."""
    machine = Machine()
    machine.clock.hear(1_800_000_000.0 - 40 * 86_400.0)
    assert machine.clock.now() == 1_800_000_000.5 - 40 * 86_400.0
    assert machine.clock.doubt == ""


def test_one_word_of_the_cloud_moves_nothing_and_three_do() -> None:
    """A date that is wrong once leaves doubt until the next; one that stays is believed."""
    machine = Machine()
    machine.clock.hear(1_800_000_000.0)
    machine.clock.hear(1_900_000_000.0)
    assert "differ by 100000000 s" in machine.clock.doubt
    assert machine.clock.now() < 1_800_000_001.0
    machine.clock.hear(1_800_000_000.0)
    assert machine.clock.doubt == ""
    for _ in range(3):
        machine.clock.hear(1_800_003_600.0)
    assert machine.clock.now() == pytest.approx(1_800_003_600.5)
    assert machine.clock.doubt == ""
