"""What should change is placed where there is room, and keeps what it has until then."""

from __future__ import annotations

from drafts import a_draft, asking, gpus

from boa_daemon.testing import a_job, a_node, a_state, some_slots
from boa_daemon.tick.draft import Changes
from boa_daemon.tick.stages.place import place


def test_without_a_wish_there_is_no_room_to_ask_for() -> None:
    """The draft is the same."""
    draft = a_draft(gpus(a=1), changes=Changes(stops=("a",)))
    assert place(a_state(a_job("a")), draft) is draft


def test_wishes_that_fit_get_slots_and_only_those_who_must_leave_without_any_are_stopped() -> None:
    """a and b share n1; c starts on n2; a has to leave and does not fit, b does not fit and stays."""
    held = {"a": some_slots("n1", 0), "b": some_slots("n1", 1)}
    state = a_state(*map(a_job, "abcd"), nodes=[a_node("n1"), a_node("n2")], held=held)
    wishes = gpus(c=4, a=9, b=9)
    changes = Changes(wishes=wishes, stops=("d",), leaving=("a", "c"))
    found = place(state, asking(state, wishes, changes=changes))
    assert found.plan.slots == {"c": some_slots("n2", 0, 1, 2, 3)}
    assert found.plan.stops == ("d", "a")
    assert found.plan.widths == wishes
