"""Which ticks need no new listing: while nothing happens, a probe takes the place of one listing.

Status checks, renewed leases, rehearsals and the probes of safety nets are calls beside the listing of each
tick. A tick in which nothing is open, no notice has come and all instances run may use the last listing
instead, once for each such call. So a quiet site makes about one call per tick, probes included. A queue of
warnings that works tells of each change at once: then a listing is used for longer than without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.instances.leases import RENEWED_AFTER

QUIET_SECONDS = 600.0
"""Seconds without a launch, an end or a change of the listing after which ticks are quiet."""
LISTING_SECONDS, TOLD_LISTING_SECONDS = 105.0, 225.0
"""A listing older than this is never used again, without a queue that tells of changes and with one. A site
whose ticks are longer lists in each."""
LISTING = "ec2:DescribeInstances"
_OTHER_THREADS = ("sqs:", "ssm:", "s3:", "sns:")
"""Calls that are as frequent with or without listings: queues, commands and files of jobs."""


class QuietTicks:
    """Counts the calls beside listings, and says when the last listing is used in place of a new one."""

    def __init__(self, calls: AwsCalls, *, lease_seconds: float) -> None:
        # Leases are renewed after a fresh listing, once a quarter of them has passed.
        self._calls, self._most_seconds = calls, RENEWED_AFTER * lease_seconds
        self._owed, self._counted = 0, 0
        self._changed_at: float | None = None
        self._listed_at: float | None = None
        self._listed: Sequence[dict[str, Any]] = ()
        self._states: Mapping[str, str] = {}
        self._notices = 0
        self.is_fresh = True
        """Whether no leases were renewed from the listing in use. A tick that fails lists more than once."""

    @property
    def most_seconds(self) -> float:
        """The longest time between two listings."""
        return min(TOLD_LISTING_SECONDS, self._most_seconds)

    def stir(self) -> None:
        """List in every tick from now on, until nothing has happened for `QUIET_SECONDS`."""
        self._changed_at = None

    def age_seconds(self, now: float) -> float | None:
        """Return the age of the listing in use; None before the first."""
        return None if self._listed_at is None else now - self._listed_at

    def listing(self, now: float, *, notices: int, is_told: bool = False) -> Sequence[dict[str, Any]] | None:
        """Return the last listing if this tick may use it, else None.

        `notices` counts the notices received; a site that `is_told` has a queue that works.
        """
        count = sum(
            number
            for name, number in self._calls.counts.copy().items()
            if name != LISTING and not name.startswith(_OTHER_THREADS)
        )
        # Calls of one busy hour are not paid back by blind ticks in the next.
        self._owed = min(self._owed + count - self._counted, 10)
        self._counted = count
        is_news, self._notices = notices != self._notices, notices
        most = min(TOLD_LISTING_SECONDS if is_told else LISTING_SECONDS, self._most_seconds)
        if is_news or not self._owed or not self._is_quiet(now, most):
            return None
        self._owed -= 1
        return self._listed

    def keep(self, listed: Sequence[dict[str, Any]], now: float) -> None:
        """Take a new listing; a change of any instance's state makes ticks busy again."""
        states = {each["InstanceId"]: str(each["State"]["Name"]) for each in listed}
        if states != self._states or self._changed_at is None:
            self._changed_at = now
        self._listed, self._states, self._listed_at, self.is_fresh = list(listed), states, now, True

    def _is_quiet(self, now: float, most_seconds: float) -> bool:
        return (
            self._changed_at is not None
            and now - self._changed_at >= QUIET_SECONDS
            and self._listed_at is not None
            and 0.0 <= now - self._listed_at <= most_seconds
            and all(state in ("running", "stopped", "terminated") for state in self._states.values())
        )
