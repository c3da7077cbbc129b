"""The event queue: events in order of time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.sim.event_queue import EventQueue


@given(instants=st.lists(st.integers(0, 5).map(float), max_size=30))
def test_events_happen_in_order_of_time_and_ties_in_order_of_scheduling(instants: list[float]) -> None:
    """The order is that of a stable sort of the instants."""
    queue, happened = EventQueue(), []
    for number, at in enumerate(instants):
        queue.schedule(at, happened.append, (at, number))
    while (at := queue.next_at) is not None:
        queue.happen(at)

    assert happened == sorted(((at, number) for number, at in enumerate(instants)))
    assert len(queue) == 0


def test_an_event_scheduled_for_the_present_instant_happens_in_the_same_step() -> None:
    """A chain of events at one instant is one step."""
    queue, happened = EventQueue(), []
    queue.schedule(1.0, lambda _: queue.schedule(1.0, happened.append, "second"), None)

    queue.happen(1.0)

    assert happened == ["second"]
