"""Which ticks need no new listing: while nothing happens, a probe takes the place of one listing.

Status checks, renewed leases and the probes of safety nets are calls beside the listing of each tick. A tick
in which nothing is open, no notice has come and all instances run may use the listing of the tick before
instead, once for each such call. So a quiet site makes about one call per tick, probes included, and no
listing in use is older than two ticks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls

QUIET_SECONDS = 600.0
"""Seconds without a launch, an end or a change of the listing after which ticks are quiet."""
LISTING_SECONDS = 45.0
"""A listing older than this is never used again; a site whose ticks are longer lists in each."""
LISTING = "ec2:DescribeInstances"
_OTHER_THREADS = ("sqs:", "ssm:", "s3:", "sns:")
"""Calls that are as frequent with or without listings: queues, commands and files of jobs."""


class QuietTicks:
    """Counts the calls beside listings, and says when the last listing is used in place of a new one."""

    def __init__(self, calls: AwsCalls) -> None:
        self._calls = calls
        self._owed, self._counted = 0, 0
        self._changed_at: float | None = None
        self._listed_at: float | None = None
        self._listed: Sequence[dict[str, Any]] = ()
        self._states: Mapping[str, str] = {}
        self._notices = 0
        self.is_fresh = True
        """Whether the present tick's listing was asked for in it."""

    def stir(self) -> None:
        """List in every tick from now on, until nothing has happened for `QUIET_SECONDS`."""
        self._changed_at = None

    def age_seconds(self, now: float) -> float | None:
        """Return the age of the listing in use; None before the first."""
        return None if self._listed_at is None else now - self._listed_at

    def listing(self, now: float, *, notices: int) -> Sequence[dict[str, Any]] | None:
        """Return the last listing if this tick may use it, else None; `notices` counts those received."""
        count = sum(
            number
            for name, number in self._calls.counts.copy().items()
            if name != LISTING and not name.startswith(_OTHER_THREADS)
        )
        # Calls of one busy hour are not paid back by blind ticks in the next.
        self._owed = min(self._owed + count - self._counted, 10)
        self._counted = count
        is_news, self._notices = notices != self._notices, notices
        if is_news or not self._owed or not self.is_fresh or not self._is_quiet(now):
            return None
        self._owed -= 1
        self.is_fresh = False
        return self._listed

    def keep(self, listed: Sequence[dict[str, Any]], now: float) -> None:
        """Take a new listing; a change of any instance's state makes ticks busy again."""
        states = {each["InstanceId"]: str(each["State"]["Name"]) for each in listed}
        if states != self._states or self._changed_at is None:
            self._changed_at = now
        self._listed, self._states, self._listed_at, self.is_fresh = list(listed), states, now, True

    def _is_quiet(self, now: float) -> bool:
        return (
            self._changed_at is not None
            and now - self._changed_at >= QUIET_SECONDS
            and self._listed_at is not None
            and 0.0 <= now - self._listed_at <= LISTING_SECONDS
            and all(state in ("running", "stopped", "terminated") for state in self._states.values())
        )
