"""Waiting at the start, and signals."""

from __future__ import annotations

from boa_daemon.daemon.loop.waiting import SignalEvent


def test_a_storm_of_signals_does_not_stop_the_main_thread() -> None:
    """A handler that sets an event while the main thread clears it waited for its own lock for ever."""
    event = SignalEvent()
    with event._cond:
        event.set()
    assert event.is_set()
    assert event.wait(0.0)
