"""A scribe writes to the letter what `dumps` writes, whatever it remembers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.errors import BoaError
from boa_daemon.testing import a_job, a_state, states
from boa_daemon.tick.codec import CachingEncoder, UnreadableRecord, digest, dumps, encode, loads, pack, unpack
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
    scribe = CachingEncoder()
    for state in [*found, *found] if again else found:
        assert scribe.text_of(state) == dumps(state)
        assert loads(scribe.text_of(state)) == state


def test_a_changed_job_is_written_anew() -> None:
    """A scribe remembers objects, not names: a job that moved on is another object."""
    scribe, state = CachingEncoder(), a_state(a_job("a"))
    scribe.text_of(state)
    job = state.jobs["a"]
    moved = replace(state, jobs={"a": replace(job, generation=3)})
    assert scribe.text_of(moved) == dumps(moved) != dumps(state)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4)
KEYS = st.integers() | st.text(max_size=3) | st.just("$") | st.tuples(st.integers(), st.text(max_size=2))
NESTED = st.recursive(
    PLAIN | st.frozensets(st.integers(), max_size=4),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)


@given(value=NESTED)
def test_values_come_back_as_they_were(value: Any) -> None:
    """To the bit and with their types: infinities, sets, mappings whose keys are no text."""
    text = dumps(value)
    found = loads(unpack(pack(text)))
    assert found == value
    assert dumps(found) == text
    assert digest(text) == digest(dumps(found)) != digest(f"{text} ")


def test_numbers_of_numpy_are_numbers_and_lists_are_tuples() -> None:
    """A record knows no arrays' types; not-a-number comes back as itself."""
    numbers = [np.float64(0.5), np.float64(np.inf), np.int64(3), np.bool_(True)]
    assert loads(dumps(numbers)) == (0.5, math.inf, 3, True)
    assert [type(value) for value in loads(dumps(numbers))] == [float, float, int, bool]
    assert math.isnan(loads(dumps(math.nan)))


def test_what_cannot_be_recorded_or_read_is_named() -> None:
    """Objects of other classes, and records of another version: a class or a field that is not known."""
    with pytest.raises(BoaError, match="a complex cannot be recorded"):
        encode(1j)
    for unknown in ('{"$":"Nobody"}', '{"$":"Job","colour":1}'):
        with pytest.raises(UnreadableRecord, match="which this version cannot read"):
            loads(unknown)


def test_a_scribe_writes_fields_that_are_no_text_keyed_mappings_as_dumps_does() -> None:
    """A key that is a dollar sign would look like a class."""
    state = replace(a_state(a_job("$")), cooldowns={"$": Cooldown(until=1.0)})
    assert CachingEncoder().text_of(state) == dumps(state)
    assert loads(dumps(state)) == state
