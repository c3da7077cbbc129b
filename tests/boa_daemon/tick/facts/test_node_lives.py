"""A node id consists of an instance id and a life number, and both can be read from the id."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.tick.facts.node_lives import instance_of, life_named, life_of, next_life


@given(instance=st.from_regex(r"i-[0-9a-f]{1,17}", fullmatch=True), life=st.integers(1, 10_000))
def test_a_node_id_contains_its_instance_and_its_life(instance: str, life: int) -> None:
    """The first life has the instance's own id; the next life adds one."""
    name = life_named(instance, life)
    assert (instance_of(name), life_of(name)) == (instance, life)
    assert (name == instance) is (life == 1)
    assert next_life(name) == life_named(instance, life + 1)


def test_an_id_without_a_valid_life_number_is_the_first_life() -> None:
    """An id may have a tilde of its own, or digits of another script."""
    assert [life_of(name) for name in ("i-1~", "i-1~x", "i-1~-2", "i-1~²", "i-1~٢")] == [1] * 5
