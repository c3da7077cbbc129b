"""A queue of future events: a heap of instants, with ties broken by order of scheduling."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

_Entry = tuple[float, int, Callable[[Any], None], Any]


class EventQueue:
    """Events in order of time; those at the same instant in the order in which they were scheduled."""

    __slots__ = ("_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def schedule(self, at: float, happen: Callable[[Any], None], what: Any) -> None:
        """Schedule the call `happen(what)` for the instant `at`."""
        self._number += 1
        heapq.heappush(self._heap, (at, self._number, happen, what))

    @property
    def next_at(self) -> float | None:
        """The instant of the next event; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def happen(self, at: float) -> None:
        """Run every event due at the instant `at`, including those scheduled by these events for now."""
        heap = self._heap
        while heap and heap[0][0] <= at:
            _, _, happen, what = heapq.heappop(heap)
            happen(what)
