"""A scribe writes to the letter what `dumps` writes, whatever it remembers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_job, a_state, states
from boa_daemon.tick.codec import Scribe, dumps, loads
from boa_daemon.tick.offers import Cooldown
from boa_daemon.tick.state import ClusterState

NAMES = st.text(min_size=1, max_size=5)


@st.composite
def noted(draw: st.DrawFn) -> ClusterState:
    """Return a consistent state at any instant, with cool-downs of any name."""
    state, _ = draw(states())
    rests = {name: Cooldown(until=draw(st.floats(0.0, 1e9))) for name in draw(st.sets(NAMES, max_size=3))}
    return replace(state, cooldowns=rests, now=draw(st.floats(0.0, 2e9)))


@given(found=st.lists(noted(), min_size=1, max_size=3), again=st.booleans())
def test_a_scribe_writes_what_dumps_writes(found: list[ClusterState], again: bool) -> None:
    """Every state in turn, and the same objects twice: the text is that of `dumps`, and reads back."""
    scribe = Scribe()
    for state in [*found, *found] if again else found:
        assert scribe.text_of(state) == dumps(state)
        assert loads(scribe.text_of(state)) == state


def test_a_changed_job_is_written_anew() -> None:
    """A scribe remembers objects, not names: a job that moved on is another object."""
    scribe, state = Scribe(), a_state(a_job("a"))
    scribe.text_of(state)
    job = state.jobs["a"]
    moved = replace(state, jobs={"a": replace(job, generation=3)})
    assert scribe.text_of(moved) == dumps(moved) != dumps(state)
