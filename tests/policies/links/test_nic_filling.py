"""Messages that start beside the first one, because a card would idle otherwise."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.links.ada_srsf import Message
from policies.links.nic_filling import fill_idle_nics, relative_speeds


def message(name: str, cards: str, rank: float = 1.0) -> Message:
    return Message(job=name, servers=frozenset(cards), bytes_left=1.0, service_seconds=rank)


def names(found: tuple[Message, ...]) -> list[str]:
    return [one.job for one in found]


def test_each_message_beyond_the_first_on_a_card_slows_all_on_it() -> None:
    """k on one card have 1 / (k + (k - 1) crowding) of the speed alone, and on no card all of it."""
    found = relative_speeds([message("a", "xy"), message("b", "y"), message("c", "")], crowding=0.5)

    assert found == [1.0 / 2.5, 1.0 / 2.5, 1.0]


def test_the_third_card_of_a_triangle_does_not_idle() -> None:
    """All three at half the pace move 1.5 messages at a time; two of them would move no more than one."""
    flying, waiting = [message("a", "12")], [message("b", "23"), message("c", "13")]
    assert relative_speeds([*flying, *waiting], crowding=0.0) == [0.5, 0.5, 0.5]
    assert names(fill_idle_nics(waiting, flying, crowding=0.0)) == ["b", "c"]
    assert fill_idle_nics(waiting[:1], flying, crowding=0.0) == ()


def test_the_one_that_closes_the_triangle_starts_alone() -> None:
    """Two are in flight on a common card; the third takes what both leave idle."""
    assert names(
        fill_idle_nics([message("a", "12")], [message("b", "23"), message("c", "13")], crowding=0.0)
    ) == ["a"]


def test_a_job_that_is_nearly_done_keeps_its_cards() -> None:
    """Half its pace is worth more than half of two that have four times as long to go: 1/2 < 1 - 1/2."""
    waiting = [message("b", "23", rank=4.0), message("c", "13", rank=4.0)]
    assert fill_idle_nics(waiting, [message("a", "12")], crowding=0.0) == ()


def test_crowding_that_eats_the_gain_fills_nothing() -> None:
    """With eta = b two at once take three times as long: three thirds are no more than one."""
    waiting = [message("b", "23"), message("c", "13")]
    assert fill_idle_nics(waiting, [message("a", "12")], crowding=1.0) == ()


cards = st.sampled_from(["12", "23", "13", "34", "14"])
some = st.lists(st.tuples(cards, st.floats(0.1, 10.0)), min_size=1, max_size=5)


@given(some, some, st.floats(0.0, 1.0))
def test_more_moves_and_jobs_end_sooner_or_nothing_starts(
    flying: list[tuple[str, float]], waiting: list[tuple[str, float]], crowding: float
) -> None:
    """Whatever the cards and the ranks; those that start are among those that wait."""
    old = [message(f"f{n}", on, rank) for n, (on, rank) in enumerate(flying)]
    new = [message(f"w{n}", on, rank) for n, (on, rank) in enumerate(waiting)]
    found = fill_idle_nics(new, old, crowding=crowding)
    assert set(names(found)) <= set(names(tuple(new)))
    if found:
        before, after = (
            relative_speeds(old, crowding=crowding),
            relative_speeds([*old, *found], crowding=crowding),
        )
        assert sum(after) > sum(before)
        ends = [pace / one.rank for pace, one in zip(after, [*old, *found], strict=True)]
        assert sum(ends) > sum(pace / one.rank for pace, one in zip(before, old, strict=True))


@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=6), st.floats(0.0, 1.0))
def test_where_all_cards_are_shared_nothing_is_filled(ranks: list[float], crowding: float) -> None:
    """On two hosts the order of the messages stays as it was."""
    first, *rest = [message(str(n), "12", rank) for n, rank in enumerate(ranks)]
    assert fill_idle_nics(rest, [first], crowding=crowding) == ()


def test_beside_nothing_nothing_is_filled() -> None:
    """If no message is in flight, every message that may start has already started."""
    assert fill_idle_nics([message("a", "12")], [], crowding=0.0) == ()
