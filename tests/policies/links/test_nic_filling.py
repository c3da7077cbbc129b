"""Messages that start beside the first one, because a network card would idle otherwise."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.links.ada_srsf import Message
from policies.links.nic_filling import fill_idle_nics, relative_speeds


def message(name: str, cards: str, rank: float = 1.0) -> Message:
    return Message(job=name, servers=frozenset(cards), bytes_left=1.0, service_seconds=rank)


def names(found: tuple[Message, ...]) -> list[str]:
    return [one.job for one in found]


def test_each_message_beyond_the_first_on_a_card_slows_all_messages_on_it() -> None:
    """k messages on one card have 1 / (k + (k - 1) crowding) of the speed; without a card, all of it."""
    found = relative_speeds([message("a", "xy"), message("b", "y"), message("c", "")], crowding=0.5)

    assert found == [1.0 / 2.5, 1.0 / 2.5, 1.0]


def test_two_waiting_messages_start_together_to_fill_a_triangle_of_cards() -> None:
    """All three at half the pace move 1.5 messages at a time; two of them would move no more than one."""
    flying, waiting = [message("a", "12")], [message("b", "23"), message("c", "13")]
    assert relative_speeds([*flying, *waiting], crowding=0.0) == [0.5, 0.5, 0.5]
    assert names(fill_idle_nics(waiting, flying, crowding=0.0)) == ["b", "c"]
    assert fill_idle_nics(waiting[:1], flying, crowding=0.0) == ()


def test_a_message_starts_alone_where_it_closes_a_triangle_of_cards() -> None:
    """Two messages are in flight on a common card; the third uses the idle parts of the other cards."""
    assert names(
        fill_idle_nics([message("a", "12")], [message("b", "23"), message("c", "13")], crowding=0.0)
    ) == ["a"]


def test_a_job_that_is_nearly_done_keeps_its_cards() -> None:
    """Half the pace of this job is worth more than two others that have four times as long to go."""
    waiting = [message("b", "23", rank=4.0), message("c", "13", rank=4.0)]
    assert fill_idle_nics(waiting, [message("a", "12")], crowding=0.0) == ()


def test_no_message_is_added_when_crowding_takes_all_the_gain() -> None:
    """With eta = b two messages at once take three times as long: three thirds are no more than one."""
    waiting = [message("b", "23"), message("c", "13")]
    assert fill_idle_nics(waiting, [message("a", "12")], crowding=1.0) == ()


cards = st.sampled_from(["12", "23", "13", "34", "14"])
some = st.lists(st.tuples(cards, st.floats(0.1, 10.0)), min_size=1, max_size=5)


@given(some, some, st.floats(0.0, 1.0))
def test_added_messages_raise_the_total_pace_and_jobs_end_sooner(
    flying: list[tuple[str, float]], waiting: list[tuple[str, float]], crowding: float
) -> None:
    """For all cards and ranks; added messages are among the waiting ones."""
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
def test_no_message_is_added_when_every_card_is_shared(ranks: list[float], crowding: float) -> None:
    """All messages use the same two hosts."""
    first, *rest = [message(str(n), "12", rank) for n, rank in enumerate(ranks)]
    assert fill_idle_nics(rest, [first], crowding=crowding) == ()


def test_no_message_is_added_without_one_in_flight() -> None:
    """Every message that may start has then started already."""
    assert fill_idle_nics([message("a", "12")], [], crowding=0.0) == ()
