"""A daemon of one `boa run`: started where none is running, with its own caps, and stopped with the run.

The daemon is a normal `boa daemon` in its own process. If the run is killed, the daemon goes on, and its caps
and the job's limits end what costs money.
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
from boa_daemon.daemon.loop.assembly import database_url, open_storage
from boa_daemon.daemon.settings.applied_settings import FOR_ONE_RUN
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.daemon_paths import DaemonPaths, StateFile, daemon_paths, make_folder
from boa_daemon.errors import BoaError, InputError
from boa_daemon.tick.facts.limits import day_of, month_of
from boa_daemon.tick.money.ledger import bill_within
from boa_daemon.units import counted, dollars

START_SECONDS, STOP_SECONDS, LOOK_SECONDS = 90.0, 60.0, 0.2
MOST_STARTS = 3
_TAIL_BYTES = 2000


RUN_DAY_CAP, RUN_MONTH_CAP = "BOA_RUN_DAY_CAP_USD", "BOA_RUN_MONTH_CAP_USD"
"""Caps of one run's daemon. They count as flags: the next daemon of the folder does not inherit them."""


def run_caps(environment: Mapping[str, str]) -> dict[str, float | None]:
    """Return the caps that a run gave to its daemon, as flags."""
    names = {"budget.usd_per_day_cap": RUN_DAY_CAP, "budget.usd_per_month_cap": RUN_MONTH_CAP}
    return {key: float(environment[name]) if name in environment else None for key, name in names.items()}


class DaemonFailed(BoaError):
    """The daemon of a run did not start, or died `MOST_STARTS` times."""


def caps_within(settings: Settings, there: DaemonPaths, usd: float, *, now: float) -> dict[str, str]:
    """Return environment variables that cap a daemon's spending at `usd` dollars from now on.

    The day cap resets at midnight, so the month cap is set too. Tighter caps of the settings stay.

    Raises:
        InputError: when an earlier daemon left active jobs, which would run under these caps.
    """
    spent = {"day": 0.0, "month": 0.0}
    if settings.daemon.database is not None or there.database.exists():
        with closing(open_storage(database_url(settings))) as storage:
            active = list(storage.queue.active)
            if active:
                raise InputError(
                    f"{counted(len(active), 'job')} of an earlier daemon go on: {', '.join(active[:5])}",
                    hint="Start `boa daemon` first; `boa run` then uses it. Or `boa cancel` them",
                )
            for key, window in (("day", day_of(now)), ("month", month_of(now))):
                live = [record.node for record in storage.queue.instances.values()]
                running = sum(bill_within(node, window, until=now) for node in live)
                spent[key] = dollars(storage.store.settled_since(window.begins_at) + running)
    budget = settings.budget
    day = min(spent["day"] + usd, budget.usd_per_day_cap or float("inf"))
    month = min(spent["month"] + usd, budget.usd_per_month_cap or float("inf"))
    return {RUN_DAY_CAP: repr(day), RUN_MONTH_CAP: repr(month)}


def work_again(settings: Settings) -> None:
    """Clear the `is_down` flag, so that the next daemon of this state folder starts jobs again."""
    with closing(open_storage(database_url(settings))) as storage:
        storage.store.set_flag("is_down", False)


class OwnDaemon:
    """The daemon's process and its log."""

    def __init__(self, settings: Settings, options: list[str], environment: Mapping[str, str]) -> None:
        there = daemon_paths(settings)
        make_folder(there.state)
        self.socket, self.log = there.socket, there.state / StateFile.log_of_run
        self._options, self._environment = options, {**os.environ, **environment, FOR_ONE_RUN: "1"}
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the daemon, and wait for its first tick.

        Raises:
            DaemonFailed: when the daemon ends or does not start, with its last log line.
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
        raise DaemonFailed(f"the daemon did not start within {START_SECONDS:.0f} s: {self._last_line()}")

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the process in its own session, so that Ctrl-C reaches only the run."""
        return subprocess.Popen(
            [sys.executable, "-m", "boa_daemon", "daemon", *self._options],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def _status(self) -> Mapping[str, Any] | None:
        """Return the daemon's status; None while it does not answer."""
        try:
            with Client(self.socket) as client:
                return client.status()
        except DaemonUnreachable:
            return None

    def revive(self) -> None:
        """Start the daemon again if it died; it resumes with the jobs and nodes that exist.

        A process that is killed loses its socket before its end can be seen, so that one which has not
        ended, and does not answer either, is waited for.

        Raises:
            DaemonFailed: when the daemon has died `MOST_STARTS` times.
        """
        until = time.monotonic() + START_SECONDS
        while self._process is not None and self._process.poll() is None:
            if self._status() is not None or time.monotonic() > until:
                return
            time.sleep(LOOK_SECONDS)
        if self._starts >= MOST_STARTS:
            raise DaemonFailed(f"the daemon died {self._starts} times: {self._last_line()}")
        self.start()

    def stop(self) -> None:
        """End the daemon's process; jobs and nodes are not touched."""
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
        return f"{lines[-1]} (full log: {self.log})" if lines else f"its log is empty ({self.log})"


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace")
    except OSError:
        return ""
