"""Whose a cluster is, where two daemons have different databases: one object in the bucket that both see.

It is written under a condition: the first time only if it is not there (If-None-Match), then only if it is as
it was last read (If-Match). So of two daemons that start in the same minute one writes it, and the other
knows whose the cluster is before either has rented anything. Its age is S3's own, the date of an answer less
that of the object, so no clock of ours counts. Who finds that it was not renewed for `STALE_SECONDS` takes
it over, with an epoch more; who could not renew it for half of that acts no more. Jobs cannot write it: it
lies beside the prefix that nodes may write below.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from boa_daemon.backends.aws.calls import AwsCalls
from boa_daemon.backends.aws.errors import CallFailed
from boa_daemon.tick.ports import Clock

RENEW_SECONDS, STALE_SECONDS = 60.0, 600.0
"""How often it is renewed, and after how long without that it is anybody's."""
_TAKEN = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})


class ClusterClaim:
    """A database's claim on a cluster. `say` is told when it is taken over, and when it cannot be written."""

    def __init__(
        self,
        calls: AwsCalls,
        *,
        bucket: str,
        key: str,
        cluster: str,
        books: str,
        clock: Clock,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._calls, self._where = calls, {"Bucket": bucket, "Key": key}
        self._cluster, self._books, self._clock, self._say = cluster, books, clock, say
        self._etag, self.epoch = "", 0
        self._looked_at: float | None = None
        self._written_at: float | None = None
        self._answer = ""
        self._complaint = ""

    def hold(self) -> str:
        """Return why the cluster is another daemon's, as asked a minute ago; empty where it is ours."""
        now = self._clock.now()
        if self._looked_at is None or not 0.0 <= now - self._looked_at < RENEW_SECONDS:
            self._looked_at = now
            try:
                self._answer = self._held()
            except CallFailed as error:
                # It guards against a second daemon, not against S3: for a while the last answer stands.
                self._complain(f"whose cluster {self._cluster} is could not be asked of S3: {error}")
                if self._written_at is not None and now - self._written_at > STALE_SECONDS / 2.0:
                    self._answer = (
                        f"cluster {self._cluster} was not confirmed to be ours for too long: {error}"
                    )
        return self._answer

    def _complain(self, sentence: str) -> None:
        """Say something once in a row."""
        if sentence.partition(":")[0] != self._complaint:
            self._complaint = sentence.partition(":")[0]
            self._say(sentence)

    def _held(self) -> str:
        """Write the claim, or read whose it is."""
        if self._etag and self._written(self.epoch, IfMatch=self._etag):
            return ""
        if not self._etag and self._written(1, IfNoneMatch="*"):
            return ""
        found, etag, age = self._read()
        epoch = found["epoch"] if isinstance(found.get("epoch"), int) else 0
        if found.get("books") == self._books:
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
        return (
            f"cluster {self._cluster} belongs to another database ({found.get('books')}, whose daemon is on "
            f"{found.get('host')}; ours is {self._books}). This one only observes. Give each cluster a name "
            "of its own ([cloud] cluster), or stop that daemon: ten minutes later this one takes over"
        )

    def _lost(self) -> str:
        """Return what is so where somebody else was quicker: it is looked at again at the next tick."""
        self._etag, self._looked_at = "", None
        return f"cluster {self._cluster} is being claimed by another daemon: this one only observes for now"

    def _written(self, epoch: int, **condition: str) -> bool:
        """Write the claim if the condition holds; return whether it did."""
        words = {"books": self._books, "epoch": epoch, "host": socket.gethostname(), "pid": os.getpid()}
        body = json.dumps(words).encode()
        try:
            answer = self._calls.call("s3:PutObject", **self._where, Body=body, **condition)
        except CallFailed as error:
            if error.code in _TAKEN:
                self._etag = ""
                return False
            raise
        self._etag, self.epoch, self._written_at = str(answer["ETag"]), epoch, self._looked_at
        return True

    def _read(self) -> tuple[Mapping[str, Any], str, float | None]:
        """Return the claim, its tag, and for how long it was not renewed; None where S3 says no date."""
        answer = self._calls.call("s3:GetObject", **self._where)
        try:
            found = json.loads(answer["Body"].read(65_536))
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {}, str(answer["ETag"]), _age_of(answer)


def _age_of(answer: Mapping[str, Any]) -> float | None:
    """Return how old an object is by S3's own clock; None where that cannot be known."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    written = answer.get("LastModified")
    if not date or not isinstance(written, datetime):
        return None
    try:
        return (parsedate_to_datetime(date) - written).total_seconds()
    except (TypeError, ValueError):
        return None
