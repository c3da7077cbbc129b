"""What is refused by nodes, and when it is asked again: at first soon, then ever more seldom."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from boa_daemon.tick.rests import Refusal


@dataclass(slots=True)
class Backoff:
    """Remembers what was refused, since when, and why; a `Refusal` says when it is asked again."""

    _open: dict[Hashable, tuple[Refusal, str]] = field(default_factory=dict)

    def refused(self, what: Hashable, why: str, *, now: float) -> None:
        """Note a refusal."""
        before = self.of(what)
        self._open[what] = (Refusal(since=now if before is None else before.since, at=now), why)

    def of(self, what: Hashable) -> Refusal | None:
        """Return since when something is refused; None where it is not."""
        found = self._open.get(what)
        return None if found is None else found[0]

    def why_not_yet(self, what: Hashable, *, now: float) -> str:
        """Return the last refusal while it is not to be asked again; empty where it may be."""
        found = self._open.get(what)
        return found[1] if found is not None and now < found[0].until else ""

    def last(self, what: Hashable) -> str:
        """Return the last refusal, whether or not it may be asked again; empty where there is none."""
        found = self._open.get(what)
        return "" if found is None else found[1]

    def forget(self, what: Hashable) -> None:
        """Forget refusals: it was done, or is not wanted any more."""
        self._open.pop(what, None)
