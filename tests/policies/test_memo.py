"""Caches: `Memo`, `IdentityMemo` and `LatestMemo`."""

from __future__ import annotations

from policies.memo import IdentityMemo, LatestMemo, Memo


def test_an_answer_is_computed_once_until_the_cache_is_full() -> None:
    """The fourth question empties a cache of three answers."""
    asked: list[int] = []

    def reckon(number: int) -> int:
        asked.append(number)
        return number * number

    memo = Memo(reckon, most=3)
    assert [memo[number] for number in (1, 2, 2, 3, 1)] == [1, 4, 4, 9, 1]
    assert asked == [1, 2, 3]

    assert memo[4] == 16
    assert memo[1] == 1
    assert asked == [1, 2, 3, 4, 1]


def test_the_latest_answer_is_kept_for_the_same_object_only() -> None:
    """For an equal list that is another object the answer is computed again."""
    asked: list[list[int]] = []

    def reckon(numbers: list[int]) -> int:
        asked.append(numbers)
        return sum(numbers)

    latest, first = LatestMemo(reckon), [1, 2]
    assert [latest(first), latest(first), latest([1, 2]), latest(first)] == [3, 3, 3, 3]
    assert len(asked) == 3


def test_answers_about_objects_are_kept_by_identity_until_the_cache_is_full() -> None:
    """Lists cannot be hashed; an equal list is another object."""
    asked: list[list[int]] = []

    def reckon(numbers: list[int]) -> int:
        asked.append(numbers)
        return sum(numbers)

    memo, first, second = IdentityMemo(reckon, most=2), [1, 2], [3]
    assert [memo(one) for one in (first, second, first, second)] == [3, 3, 3, 3]
    assert len(asked) == 2

    assert memo([1, 2]) == 3
    assert memo(first) == 3
    assert len(asked) == 4
