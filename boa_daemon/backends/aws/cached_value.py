"""A value that is asked for rarely, and says how old it is; a failed refresh leaves the old one, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from boa_daemon.backends.aws.errors import CallFailed

Value = TypeVar("Value")


@dataclass(slots=True)
class CachedValue(Generic[Value]):
    """One answer of the cloud, kept `keep_seconds`.

    After a failure the next try waits `retry_seconds`. A value older than `useless_seconds` is forgotten:
    unknown is better than wrong.
    """

    keep_seconds: float
    retry_seconds: float = 60.0
    useless_seconds: float = float("inf")
    value: Value | None = None
    as_of: float | None = None
    failed: str = ""
    tried_at: float = float("-inf")

    def get(self, ask: Callable[[], Value], *, now: float, may_ask: bool = True) -> Value | None:
        """Return the value, asked anew when it is old; None where nobody knows.

        Without `may_ask` it is what is known, however old: somebody else asks.
        """
        if may_ask:
            self.refresh(ask, now=now, keep_seconds=self.keep_seconds)
        if self.as_of is not None and now - self.as_of > self.useless_seconds:
            self.value, self.as_of = None, None
        return self.value

    def refresh(self, ask: Callable[[], Value], *, now: float, keep_seconds: float | None = None) -> None:
        """Ask anew where the value is older than that, by default than half the time that it is kept."""
        keep = self.keep_seconds / 2.0 if keep_seconds is None else keep_seconds
        is_fresh = self.as_of is not None and now - self.as_of < keep
        if is_fresh or now - self.tried_at < self.retry_seconds:
            return
        self.tried_at = now
        try:
            self.value, self.as_of, self.failed = ask(), now, ""
        except CallFailed as error:
            self.failed = str(error)

    def age_seconds(self, now: float) -> float | None:
        """Return how old the value is; None where there is none."""
        return None if self.as_of is None else now - self.as_of

    def forget(self) -> None:
        """Ask anew next time."""
        self.as_of, self.tried_at = None, float("-inf")
