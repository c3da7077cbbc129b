"""A daemon of one run: started where none listens, under caps of its own, and stopped with the run.

It is the daemon that `boa daemon` starts, in a process of its own: where the run is killed it goes on, and
its caps and the job's limit end what costs money.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from boa_daemon.api.client import Client, DaemonUnreachable
from boa_daemon.daemon.assembly import open_books
from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.daemon_paths import DaemonPaths, daemon_paths, make_folder
from boa_daemon.errors import BoaError, InputError
from boa_daemon.store.database_setup import sqlite_url
from boa_daemon.tick.ledger import bill_within
from boa_daemon.tick.limits import day_of, month_of
from boa_daemon.units import counted, dollars

START_SECONDS, STOP_SECONDS, LOOK_SECONDS = 90.0, 60.0, 0.2
MOST_STARTS = 3
_TAIL_BYTES = 2000


class DaemonFailed(BoaError):
    """The daemon of a run did not come up, or died again and again."""


def caps_within(settings: Settings, there: DaemonPaths, usd: float, *, now: float) -> dict[str, str]:
    """Return the environment under which a daemon spends at most so many dollars from now on.

    A cap by the day begins anew at midnight, so the month's is set as well; tighter ones that are set stay.

    Raises:
        InputError: when jobs of an earlier daemon wait: they would run under the caps of this one.
    """
    spent = {"day": 0.0, "month": 0.0}
    if settings.daemon.database is not None or there.database.exists():
        with closing(open_books(settings.daemon.database or sqlite_url(there.database))) as books:
            active = list(books.queue.active)
            if active:
                raise InputError(
                    f"{counted(len(active), 'job')} of an earlier daemon go on: {', '.join(active[:5])}",
                    hint="Start `boa daemon` first; `boa run` then uses it. Or `boa cancel` them",
                )
            for key, window in (("day", day_of(now)), ("month", month_of(now))):
                live = [record.node for record in books.queue.instances.values()]
                running = sum(bill_within(node, window, until=now) for node in live)
                spent[key] = dollars(books.store.settled_since(window.begins_at) + running)
    budget = settings.budget
    day = min(spent["day"] + usd, budget.usd_per_day_cap or float("inf"))
    month = min(spent["month"] + usd, budget.usd_per_month_cap or float("inf"))
    return {"BOA_BUDGET_USD_PER_DAY_CAP": repr(day), "BOA_BUDGET_USD_PER_MONTH_CAP": repr(month)}


def work_again(settings: Settings) -> None:
    """Take back that everything is let go: the next daemon of the folder is to work."""
    there = daemon_paths(settings)
    with closing(open_books(settings.daemon.database or sqlite_url(there.database))) as books:
        books.store.set_flag("is_down", False)


class OwnDaemon:
    """The process, and what it says."""

    def __init__(self, settings: Settings, options: list[str], environment: Mapping[str, str]) -> None:
        there = daemon_paths(settings)
        make_folder(there.state)
        self.socket, self.log = there.socket, there.state / "run.log"
        self._options, self._environment = options, {**os.environ, **environment}
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait for its first look.

        Raises:
            DaemonFailed: when it ends or does not come up, with the last that it said.
        """
        self._starts += 1
        with self.log.open("ab") as log:
            self._process = self._spawn(log)
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise DaemonFailed(f"the daemon ended at once: {self._last_line()}")
            status = self._status()
            if status is not None and (status.get("tick", 0) > 0 or status["fault"]):
                return
            time.sleep(LOOK_SECONDS)
        self.stop()
        raise DaemonFailed(f"the daemon did not come up within {START_SECONDS:.0f} s: {self._last_line()}")

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the process in a session of its own: an interrupt from the keyboard is for the run alone."""
        return subprocess.Popen(
            [sys.executable, "-m", "boa_daemon", "daemon", *self._options],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def _status(self) -> dict[str, Any] | None:
        """Return what it says of itself; None while it does not answer."""
        try:
            with Client(self.socket) as client:
                return client.get("/status")
        except DaemonUnreachable:
            return None

    def revive(self) -> None:
        """Start it again where it died: it takes up jobs and nodes as they are.

        Raises:
            DaemonFailed: when it died too often.
        """
        if self._process is not None and self._process.poll() is None:
            return
        if self._starts >= MOST_STARTS:
            raise DaemonFailed(f"the daemon died {self._starts} times: {self._last_line()}")
        self.start()

    def stop(self) -> None:
        """End the process; jobs and nodes stay as they are."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_line(self) -> str:
        lines = _tail(self.log).strip().splitlines()
        return f"{lines[-1]} (all of it is in {self.log})" if lines else f"it said nothing ({self.log})"


def _tail(path: Path) -> str:
    """Return the end of a file."""
    try:
        return path.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace")
    except OSError:
        return ""
