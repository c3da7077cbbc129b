"""Persist data for the dashboard and the next process: figures per minute, job progress, spot history."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import inf

from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.daemon.jobs.progress import KEEP_SECONDS, Progress
from boa_daemon.daemon.watch.minute_history import MinuteHistory
from boa_daemon.learning.spot_history import SpotHistory
from boa_daemon.store.database import Database
from boa_daemon.store.documents import Documents
from boa_daemon.store.leader import LedElsewhere

_LOG = logging.getLogger("boa.daemon")


class HistoryStore:
    """Stores history; a failed write is logged and never fails a tick."""

    def __init__(self, database: Database) -> None:
        self.history = MinuteHistory(database)
        self.spot = Documents(database, "spot")
        self._trails = Documents(database, "progress")
        self._trails_at = -inf

    def restore(self, progress: Progress) -> None:
        """Restore the progress of jobs."""
        progress.restore(self._trails.read())

    def take(self, rates: Mapping[str, float], progress: Progress, spot: SpotHistory, *, now: float) -> None:
        """Store this minute's figures and, when due, the progress of jobs and the spot history."""
        try:
            self.history.take(rates, now=now)
        except (SQLAlchemyError, OSError, ValueError) as error:
            _LOG.warning("the history has no figures of this minute: %s", type(error).__name__)
        if now - self._trails_at >= KEEP_SECONDS:
            self.keep(progress, spot)
            self._trails_at = now

    def keep(self, progress: Progress, spot: SpotHistory) -> None:
        """Store the progress of jobs and the spot history."""
        try:
            self._trails.write(progress.documents())
            self.spot.write(spot.documents())
        except (SQLAlchemyError, OSError, LedElsewhere) as error:
            _LOG.warning("the progress of jobs was not stored: %s", type(error).__name__)
