"""Seals of unit messages."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.job.seal import SEAL, TOLD, is_sealed, sealed

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.dictionaries(st.text().filter(lambda name: name not in (SEAL, TOLD)), JSON, max_size=6)


@given(words=WORDS, key=st.text(min_size=1), other=st.text(min_size=1), field=st.text(), value=JSON)
def test_a_seal_is_valid_for_one_key_and_one_message(
    words: dict[str, Any], key: str, other: str, field: str, value: Any
) -> None:
    """Another key, another field or another value makes the seal invalid."""
    document = sealed(words, key)
    assert is_sealed(document, key)
    assert is_sealed(document, other) == (other == key)
    changed = {**document, field: value}
    assert is_sealed(changed, key) == (
        json.dumps(changed, sort_keys=True) == json.dumps(document, sort_keys=True)
    )
    assert not is_sealed(words, key)


def test_later_messages_do_not_have_lower_numbers() -> None:
    """The number can also be given; an empty key adds neither number nor seal."""
    first, second = sealed({}, "key"), sealed({}, "key")
    assert first[TOLD] <= second[TOLD]
    assert sealed({}, "key", told=7)[TOLD] == 7
    assert sealed({"a": 1}, "") == {"a": 1}
