"""Caches of computed answers: one per question, one per object, or the latest only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

_Q = TypeVar("_Q")
_A = TypeVar("_A")


class Memo(dict[_Q, _A]):
    """A dictionary that computes missing answers with `reckon`. It is emptied when it holds `most` answers.

    The answer must depend on the question alone. Cost: that of a dictionary look-up for a known answer.
    """

    def __init__(self, reckon: Callable[[_Q], _A], *, most: int | None = None) -> None:
        super().__init__()
        self._reckon, self._most = reckon, most

    def __missing__(self, question: _Q) -> _A:
        answer = self._reckon(question)
        if self._most is not None and len(self) >= self._most:
            self.clear()
        self[question] = answer
        return answer


class IdentityMemo(Generic[_Q, _A]):
    """A cache of answers about values that cannot be hashed, used again for the identical question object.

    It is emptied when it holds `most` answers. Question objects must not be changed afterwards.
    """

    def __init__(self, reckon: Callable[[_Q], _A], *, most: int) -> None:
        self._reckon, self._most = reckon, most
        self._known: dict[int, tuple[_Q, _A]] = {}

    def __call__(self, question: _Q) -> _A:
        """Return the answer to a question."""
        # The question is kept, so no other object can have its identity meanwhile.
        known = self._known.get(id(question))
        if known is None or known[0] is not question:
            known = question, self._reckon(question)
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[id(question)] = known
        return known[1]


class LatestMemo(Generic[_Q, _A]):
    """A cache of the latest answer only, used again for the identical question object."""

    def __init__(self, reckon: Callable[[_Q], _A]) -> None:
        self._reckon = reckon
        self._known: tuple[_Q, _A] | None = None

    def __call__(self, question: _Q) -> _A:
        """Return the answer to a question. The question object must not be changed afterwards."""
        known = self._known
        if known is None or known[0] is not question:
            known = self._known = question, self._reckon(question)
        return known[1]
