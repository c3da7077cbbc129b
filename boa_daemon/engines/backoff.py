"""Refused requests, and when to retry them: soon at first, then with growing pauses."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from boa_daemon.tick.facts.rests import Refusal


@dataclass(slots=True)
class Backoff:
    """Remembers what was refused, since when, and why; a `Refusal` tells when to retry."""

    _open: dict[Hashable, tuple[Refusal, str]] = field(default_factory=dict)

    def refused(self, what: Hashable, why: str, *, now: float) -> None:
        """Record a refusal."""
        before = self.of(what)
        self._open[what] = (Refusal(since=now if before is None else before.since, at=now), why)

    def of(self, what: Hashable) -> Refusal | None:
        """Return the refusal of something; None if it is not refused."""
        found = self._open.get(what)
        return None if found is None else found[0]

    def why_not_yet(self, what: Hashable, *, now: float) -> str:
        """Return the reason of the last refusal while a retry is too early; empty if a retry is allowed."""
        found = self._open.get(what)
        return found[1] if found is not None and now < found[0].until else ""

    def last(self, what: Hashable) -> str:
        """Return the reason of the last refusal, even if a retry is allowed; empty if there is none."""
        found = self._open.get(what)
        return "" if found is None else found[1]

    def forget(self, what: Hashable) -> None:
        """Forget refusals of something that has succeeded or is not wanted any more."""
        self._open.pop(what, None)
