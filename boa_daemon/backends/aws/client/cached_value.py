"""A fact from outside with its age: used while it is good, asked for anew when it is old or proven stale.

Prices, quotas, zones, subnets, images and reservations are such facts. Each has an owner outside, so none is
read once and for all: it is asked for again after `keep_seconds`, when a call says that it is stale
(`forget`), and when the daemon is told to (SIGHUP). A failed refresh keeps the old value, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from boa_daemon.backends.aws.client.errors import CallFailed

Value = TypeVar("Value")
PASSING_SECONDS = 110.0


@dataclass(slots=True)
class CachedValue(Generic[Value]):
    """One answer of the cloud, kept for `keep_seconds`.

    After a failure the next try waits `retry_seconds`, and at most `PASSING_SECONDS` if the failure was about
    credentials, the network or AWS itself, which pass. A value older than `useless_seconds` is dropped:
    unknown is better than wrong.
    """

    keep_seconds: float
    retry_seconds: float = 60.0
    useless_seconds: float = float("inf")
    value: Value | None = None
    as_of: float | None = None
    failed: str = ""
    tried_at: float = float("-inf")
    _is_passing: bool = False

    def get(self, ask: Callable[[], Value], *, now: float, may_ask: bool = True) -> Value | None:
        """Return the value, refreshed if it is old; None if it is not known.

        Without `may_ask` return the known value, however old: another thread refreshes it.
        """
        if may_ask:
            self.refresh(ask, now=now, keep_seconds=self.keep_seconds)
        if self.as_of is not None and now - self.as_of > self.useless_seconds:
            self.value, self.as_of = None, None
        return self.value

    def refresh(self, ask: Callable[[], Value], *, now: float, keep_seconds: float | None = None) -> None:
        """Refresh a value that is older than `keep_seconds`, by default half the time that it is kept."""
        keep = self.keep_seconds / 2.0 if keep_seconds is None else keep_seconds
        is_fresh = self.as_of is not None and now - self.as_of < keep
        retry = min(self.retry_seconds, PASSING_SECONDS) if self._is_passing else self.retry_seconds
        if is_fresh or now - self.tried_at < retry:
            return
        self.tried_at = now
        try:
            self.value, self.as_of, self.failed = ask(), now, ""
        except CallFailed as error:
            self.failed = str(error)
            self._is_passing = error.meaning in ("credentials", "unknown", "throttled")

    def begin_retry(self, now: float, seconds: float) -> bool:
        """Have the next `refresh` ask if the last try failed, so many seconds ago or more; return whether."""
        if not self.failed or now - self.tried_at < seconds:
            return False
        self.as_of, self.tried_at = None, float("-inf")
        return True

    def age_seconds(self, now: float) -> float | None:
        """Return the value's age in seconds; None if there is no value."""
        return None if self.as_of is None else now - self.as_of

    def forget(self) -> None:
        """Mark the value as old, so that the next use refreshes it."""
        self.as_of, self.tried_at = None, float("-inf")
