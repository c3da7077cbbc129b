"""The claim on a cluster: one object in S3 that decides between daemons with different databases.

The object is written conditionally: the first time only if it does not exist (If-None-Match), later only if
it is unchanged since it was last read (If-Match). So of two daemons that start in the same minute one writes
it, and the other knows the owner before either has rented anything. Its age is the date of S3's answer less
that of the object, so our own clocks do not matter. A daemon takes over a claim that was not renewed for
`STALE_SECONDS`, and increments the epoch; a daemon that cannot renew its claim for half of that stops acting.
Jobs cannot write the object: it lies outside the prefix that nodes may write to.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from boa_daemon.backends.aws.client.answers import cleaned
from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.tick.facts.ports import Clock

RENEW_SECONDS, STALE_SECONDS = 60.0, 600.0
"""Seconds between renewals, and seconds without a renewal after which another daemon may take over."""
_TAKEN = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_GONE = ("NoSuchKey", "404", "NotFound")


class ClusterClaim:
    """A database's claim on a cluster. `say` is told of a takeover and of failures to reach S3."""

    def __init__(
        self,
        calls: AwsCalls,
        *,
        bucket: str,
        key: str,
        cluster: str,
        ledger_id: str,
        clock: Clock,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._calls, self._where = calls, {"Bucket": bucket, "Key": key}
        self._cluster, self._ledger_id, self._clock, self._say = cluster, ledger_id, clock, say
        self._etag, self.epoch = "", 0
        self._looked_at: float | None = None
        self._written_at: float | None = None
        self._answer = ""
        self._complaint = ""
        self.fault = ""
        """Why the bucket could not be read or written when last tried; empty if it could."""

    def hold(self) -> str:
        """Return why the cluster is another daemon's, checked at most once a minute; empty if it is ours."""
        now = self._clock.now()
        if self._looked_at is None or not 0.0 <= now - self._looked_at < RENEW_SECONDS:
            self._looked_at = now
            try:
                self._answer, self.fault = self._held(), ""
            except CallFailed as error:
                bucket = self._where["Bucket"]
                self.fault = f"bucket {bucket}, which has checkpoints and logs, cannot be used: {error}"
                # The claim guards against a second daemon, not against S3: keep the last answer for a while.
                self._complain(f"the owner of cluster {self._cluster} could not be read from S3: {error}")
                if self._written_at is not None and now - self._written_at > STALE_SECONDS / 2.0:
                    self._answer = f"cluster {self._cluster} was not confirmed as ours for too long: {error}"
        return self._answer

    def _complain(self, sentence: str) -> None:
        """Report a sentence, unless the last report began with the same words."""
        if sentence.partition(":")[0] != self._complaint:
            self._complaint = sentence.partition(":")[0]
            self._say(sentence)

    def _held(self) -> str:
        """Write the claim, or read who owns it; return as `hold` does."""
        if self._etag and self._written(self.epoch, IfMatch=self._etag):
            return ""
        if not self._etag and self._written(max(self.epoch, 1), IfNoneMatch="*"):
            return ""
        text, etag, age = self._read()
        found = _claim_in(text)
        epoch = found["epoch"] if isinstance(found.get("epoch"), int) else 0
        if found.get("books") == self._ledger_id:
            return "" if self._written(epoch, IfMatch=etag) else self._lost()
        if age is not None and age > STALE_SECONDS:
            if not self._written(epoch + 1, IfMatch=etag):
                return self._lost()
            self._say(
                f"cluster {self._cluster} was taken over from database {found.get('books')}, whose daemon on "
                f"{found.get('host')} was silent for {age:.0f} s"
            )
            return ""
        self._etag = ""
        if "books" not in found:
            # An answer that is none may pass at once, so the next tick asks again.
            self._looked_at = None
            return (
                f"the owner of cluster {self._cluster} cannot be read from S3, only {cleaned(text)!r}: "
                "this one only observes until it can be read, or is ten minutes old"
            )
        return (
            f"cluster {self._cluster} belongs to another database ({found.get('books')}, whose daemon is on "
            f"{found.get('host')}; ours is {self._ledger_id}). This one only observes. Give each cluster a "
            "name of its own ([cloud] cluster), or stop that daemon: ten minutes later this one takes over"
        )

    def _lost(self) -> str:
        """Return the reason when another daemon was quicker; the next call of `hold` checks again."""
        self._etag, self._looked_at = "", None
        return f"cluster {self._cluster} is being claimed by another daemon: this one only observes for now"

    def _written(self, epoch: int, **condition: str) -> bool:
        """Write the claim if the condition holds; return whether it was written."""
        words = {"books": self._ledger_id, "epoch": epoch, "host": socket.gethostname(), "pid": os.getpid()}
        body = json.dumps(words).encode()
        try:
            answer = self._calls.call("s3:PutObject", **self._where, Body=body, **condition)
        except CallFailed as error:
            # A claim that somebody deleted, with its bucket or without, is written anew.
            if error.code in _TAKEN or (error.code in _GONE and "IfMatch" in condition):
                self._etag = ""
                return False
            raise
        self._etag, self.epoch, self._written_at = str(answer["ETag"]), epoch, self._looked_at
        return True

    def _read(self) -> tuple[bytes, str, float | None]:
        """Return the claim's text, its ETag, and seconds since its renewal, None if S3 says no date."""
        answer = self._calls.call("s3:GetObject", **self._where)
        return answer["Body"].read(65_536), str(answer["ETag"]), _age_of(answer)


def _claim_in(text: bytes) -> Mapping[str, Any]:
    """Return the claim in a text; empty if it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("books"), str) else {}


def _age_of(answer: Mapping[str, Any]) -> float | None:
    """Return the age of an object in seconds by S3's own clock; None if the answer lacks a date."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    written = answer.get("LastModified")
    if not date or not isinstance(written, datetime):
        return None
    try:
        return (parsedate_to_datetime(date) - written).total_seconds()
    except (TypeError, ValueError):
        return None
