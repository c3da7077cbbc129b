"""`CachingEncoder` writes exactly what `dumps` writes, and records are read back unchanged."""

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
from boa_daemon.tick.facts.codec import (
    CachingEncoder,
    UnreadableRecord,
    digest,
    dumps,
    encode,
    loads,
    pack,
    unpack,
)
from boa_daemon.tick.facts.offers import Cooldown
from boa_daemon.tick.facts.state import ClusterState

NAMES = st.text(min_size=1, max_size=5)


@st.composite
def noted(draw: st.DrawFn) -> ClusterState:
    """Return a consistent state at any instant, with cooldowns of any name."""
    state, _ = draw(states())
    rests = {name: Cooldown(until=draw(st.floats(0.0, 1e9))) for name in draw(st.sets(NAMES, max_size=3))}
    return replace(state, cooldowns=rests, now=draw(st.floats(0.0, 2e9)))


@given(found=st.lists(noted(), min_size=1, max_size=3), again=st.booleans())
def test_the_caching_encoder_writes_what_dumps_writes(found: list[ClusterState], again: bool) -> None:
    """This holds for several states in turn and for repeated objects; the text is read back unchanged."""
    scribe = CachingEncoder()
    for state in [*found, *found] if again else found:
        assert scribe.text_of(state) == dumps(state)
        assert loads(scribe.text_of(state)) == state


def test_the_caching_encoder_writes_a_changed_job_again() -> None:
    """It caches by object, and a changed job is another object."""
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
def test_values_are_read_back_unchanged(value: Any) -> None:
    """Types are kept: infinities, sets, and mappings with keys that are not text."""
    text = dumps(value)
    found = loads(unpack(pack(text)))
    assert found == value
    assert dumps(found) == text
    assert digest(text) == digest(dumps(found)) != digest(f"{text} ")


def test_numpy_numbers_become_python_numbers_and_lists_become_tuples() -> None:
    """Not-a-number is read back as not-a-number."""
    numbers = [np.float64(0.5), np.float64(np.inf), np.int64(3), np.bool_(True)]
    assert loads(dumps(numbers)) == (0.5, math.inf, 3, True)
    assert [type(value) for value in loads(dumps(numbers))] == [float, float, int, bool]
    assert math.isnan(loads(dumps(math.nan)))


def test_unsupported_values_and_unknown_records_are_errors() -> None:
    """The error names the type, or says that this version cannot read the record."""
    with pytest.raises(BoaError, match="a complex cannot be recorded"):
        encode(1j)
    for unknown in ('{"$":"Nobody"}', '{"$":"Job","colour":1}'):
        with pytest.raises(UnreadableRecord, match="which this version cannot read"):
            loads(unknown)


def test_the_caching_encoder_escapes_a_key_that_is_a_dollar_sign() -> None:
    """A dollar sign as a key would look like a class name."""
    state = replace(a_state(a_job("$")), cooldowns={"$": Cooldown(until=1.0)})
    assert CachingEncoder().text_of(state) == dumps(state)
    assert loads(dumps(state)) == state
