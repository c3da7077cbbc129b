"""Wanted changes are placed on nodes with room; other jobs keep their GPUs."""

from __future__ import annotations

from drafts import a_draft, asking, gpus

from boa_daemon.testing import a_job, a_node, a_state, some_slots
from boa_daemon.tick.facts.draft import Changes
from boa_daemon.tick.stages.places.place import place


def test_the_draft_stays_if_no_job_wants_a_change() -> None:
    """A draft with only a stop is returned as the same object."""
    draft = a_draft(gpus(a=1), changes=Changes(stops=("a",)))
    assert place(a_state(a_job("a")), draft) is draft


def test_wishes_that_fit_get_slots_and_leaving_jobs_without_slots_stop() -> None:
    """Job c fits on n2; a must leave and does not fit, so it stops; b does not fit and stays."""
    held = {"a": some_slots("n1", 0), "b": some_slots("n1", 1)}
    state = a_state(*map(a_job, "abcd"), nodes=[a_node("n1"), a_node("n2")], held=held)
    wishes = gpus(c=4, a=9, b=9)
    changes = Changes(wishes=wishes, stops=("d",), leaving=("a", "c"))
    found = place(state, asking(state, wishes, changes=changes))
    assert found.plan.jobs.slots == {"c": some_slots("n2", 0, 1, 2, 3)}
    assert found.plan.jobs.stops == ("d", "a")
    assert found.plan.jobs.widths == wishes
