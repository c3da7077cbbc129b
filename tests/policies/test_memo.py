"""Answers that are kept."""

from __future__ import annotations

from policies.memo import Memo


def test_an_answer_is_reckoned_once_and_forgotten_beyond_the_limit() -> None:
    """The fourth question finds three answers kept, and all of them go."""
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
