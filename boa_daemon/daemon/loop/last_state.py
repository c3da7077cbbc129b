"""The state of the last tick in a file beside the database, for a start that cannot read the database.

The file says which nodes run which jobs, and what was spent: enough to keep the caps and to renew leases
until the database answers again. It is never the source of anything else.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from boa_daemon.job.whole_files import write_whole
from boa_daemon.tick.facts.codec import loads, pack, unpack
from boa_daemon.tick.facts.state import ClusterState

_LOG = logging.getLogger("boa.daemon")
EVERY_SECONDS = 5.0
"""Shortest time between two versions of the file, for sites that tick each second."""

MOST_HEAD_BYTES = 4096
"""Longest first line of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastState:
    """The observed state of the last tick; `ledger_id` is the name of its database."""

    ledger_id: str
    state: ClusterState


class LastStateFile:
    """Writes and reads the file; a disk that cannot take a new version keeps the one before."""

    def __init__(self, path: Path) -> None:
        self._path, self._written_at = path, float("-inf")

    def write(self, text: str, *, ledger_id: str) -> None:
        """Replace the file by the JSON text of a state, unless it was just written."""
        now = time.monotonic()
        if now - self._written_at < EVERY_SECONDS:
            return
        try:
            head = json.dumps({"format": 1, "ledger_id": ledger_id}).encode()
            write_whole(self._path, head + b"\n" + pack(text), mode=0o600, durable=False)
            self._written_at = now
        except OSError as error:
            _LOG.debug("the last state could not be written: %s", error)

    def ledger_id(self) -> str:
        """Return the name of the database of the last tick; empty if it is not known."""
        try:
            with self._path.open("rb") as file:
                return str(json.loads(file.readline(MOST_HEAD_BYTES))["ledger_id"])
        except (OSError, ValueError, LookupError, TypeError):
            return ""

    def read(self) -> LastState | None:
        """Return the last state; None if there is none that this version can read."""
        try:
            head, _, body = self._path.read_bytes().partition(b"\n")
            state = loads(unpack(body))
            if not isinstance(state, ClusterState):
                return None
            return LastState(ledger_id=str(json.loads(head)["ledger_id"]), state=state)
        except FileNotFoundError:
            return None
        except Exception as error:
            # Whatever another version or a torn disk left there is worth as much as no file.
            _LOG.warning("the state of the last tick cannot be read from %s: %s", self._path, error)
            return None
