"""When the daemon ticks, and when it refreshes facts, sweeps, backs up and looks at its safety nets."""

from __future__ import annotations

import gc
import logging
import tempfile
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.loop.pruning import prune
from boa_daemon.daemon.settings.daemon_paths import DaemonPaths
from boa_daemon.daemon.watch.month_report import month_money, send_month_report, send_team_reports
from boa_daemon.daemon.watch.safety_nets import LOOK_SECONDS
from boa_daemon.store.database_setup import backup, newest_backup_age
from boa_daemon.store.fresh_connections import HUNG_SECONDS
from boa_daemon.store.leader import RENEW_SECONDS, LedElsewhere
from boa_daemon.tick.facts.limits import month_of
from boa_daemon.units import counted
from boa_daemon.version import __version__

_LOG = logging.getLogger("boa")
WATCH_SECONDS = 1.0
TIDY_SECONDS = 3600.0
"""Seconds between full garbage collections; with 10,000 jobs one stops every thread for 0.1 s."""
SWEEP_SECONDS, QUICK_SWEEPS = (10.0, 120.0), 30
"""Seconds between sweeps by tag: at first, and after `QUICK_SWEEPS` sweeps."""
HANG_UP_SECONDS = 5.0
REFRESH_SECONDS, FIRST_PRICES_SECONDS = 60.0, 5.0
"""Seconds between refreshes of prices and quotas; longest wait of the first tick for the first refresh."""
BACKUP_AGAIN_SECONDS = 240.0
"""Seconds until a backup that failed is tried again."""
FRESH_BACKUP = 0.5
"""Age of the newest backup, in intervals, below which a start makes no other."""
START_SECONDS = 5.0
"""Longest wait for the scheduler's threads."""
_AT_ONCE = ("tick", "gate", "refresh", "backup")


def _pool(threads: int) -> ThreadPoolExecutor:
    """Return an executor whose threads run already: at a limit of threads none could be started later."""
    pool = ThreadPoolExecutor(threads)
    began = threading.Barrier(threads + 1)
    with suppress(RuntimeError, threading.BrokenBarrierError):
        for _ in range(threads):
            pool._pool.submit(began.wait, START_SECONDS)
        began.wait(START_SECONDS)
    return pool


class Clockwork:
    """A scheduler of ticks, one at a time and earlier when woken, and of periodic maintenance."""

    def __init__(self, daemon: Daemon, there: DaemonPaths) -> None:
        self._daemon, self._there = daemon, there
        self._guard, self._is_ticking = threading.Lock(), False
        self._again: float | None = None
        self._sweeps = 0
        self._every: dict[str, float] = {}
        self.first_tick, self._has_prices = threading.Event(), threading.Event()
        self._scheduler = BackgroundScheduler(
            # Everything else may wait for a database that does not answer.
            executors={"default": _pool(6), "alone": _pool(1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )
        self._backup_failed, self._backup_again_at = "", 0.0
        self._reported_at: float | None = None
        self._has_copies = False
        daemon.wake = self.wake
        daemon.own_faults["backup"] = self._backup_fault

    def start(self) -> None:
        """Start the scheduler; the first tick is due immediately."""
        settings = self._daemon.settings.daemon
        gate = () if self._daemon.gate is None else (("gate", self._daemon.gate.keep, WATCH_SECONDS),)
        for name, do, seconds in (
            *gate,
            ("tick", self._tick, settings.tick_seconds),
            ("watch", self._daemon.watch, WATCH_SECONDS),
            ("lead", self._lead, RENEW_SECONDS),
            ("hang-up", self._hang_up, HANG_UP_SECONDS),
            ("refresh", self._refresh, REFRESH_SECONDS),
            ("sweep", self._sweep, SWEEP_SECONDS[0]),
            ("nets", self._look_at_nets, LOOK_SECONDS),
            ("backup", self._backup, settings.backup_seconds),
            ("tidy", gc.collect, TIDY_SECONDS),
        ):
            first = datetime.now(UTC) + timedelta(seconds=0.0 if name in _AT_ONCE else seconds)
            pool = "alone" if name == "hang-up" else "default"
            self._scheduler.add_job(
                do, "interval", seconds=seconds, id=name, next_run_time=first, executor=pool
            )
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        self._every = {job.id: job.trigger.interval.total_seconds() for job in self._scheduler.get_jobs()}
        self._scheduler.start()

    def after_a_jump(self) -> None:
        """Reschedule everything after a jump of the machine's clock, which the scheduler goes by."""
        for name, seconds in self._every.items():
            self._scheduler.reschedule_job(name, trigger="interval", seconds=seconds)
        self.wake(0.0)

    def wake(self, seconds: float) -> None:
        """Make the next tick start within `seconds`."""
        with self._guard:
            if self._is_ticking:
                self._again = seconds if self._again is None else min(self._again, seconds)
                return
        self._bring_forward(seconds)

    def _bring_forward(self, seconds: float) -> None:
        """Move the next tick forward to `seconds` from now, unless it is due earlier."""
        job = self._scheduler.get_job("tick") if self._scheduler.running else None
        at = datetime.now(UTC) + timedelta(seconds=max(seconds, 0.05))
        if job is not None and (job.next_run_time is None or job.next_run_time > at):
            job.modify(next_run_time=at)

    def _tick(self) -> None:
        """Run a tick, then apply the earliest wake-up that was requested during the tick."""
        self._has_prices.wait(FIRST_PRICES_SECONDS)
        self._has_prices.set()
        with self._guard:
            self._is_ticking, self._again = True, None
        try:
            self._daemon.tick()
        except Exception:
            # A bug must not stop the scheduler: the next tick may succeed.
            _LOG.exception("a tick failed with an unexpected error")
        finally:
            self.first_tick.set()
            self._after_tick()
            with self._guard:
                self._is_ticking, again = False, self._again
            if again is not None:
                self._bring_forward(again)

    def _after_tick(self) -> None:
        """Prepare what answers need of the last decision, so that no request has to compute it."""
        try:
            self._daemon.after_ticks()
        except Exception:
            _LOG.exception("answers could not be prepared")

    def _refresh(self) -> None:
        """Refresh prices and quotas that are getting old."""
        try:
            self._daemon.world.cloud.refresh()
        except Exception:
            _LOG.exception("prices and quotas could not be refreshed")
        finally:
            self._has_prices.set()

    def _lead(self) -> None:
        """Renew the leadership; when another daemon has taken over, the next tick reports it."""
        storage = self._daemon.storage
        if storage is None or storage.leadership is None:
            return
        try:
            storage.leadership.renew()
        except LedElsewhere as error:
            _LOG.error("%s", error)
        except Exception as error:
            _LOG.warning("the database does not confirm that this daemon leads: %s", error)

    def _hang_up(self) -> None:
        """Give up statements to which the database does not answer: the tick may wait for one of them."""
        storage = self._daemon.storage
        if storage is not None and (count := storage.store.database.hang_up()):
            _LOG.error(
                "the database has not answered for %.0f s: %s given up",
                HUNG_SECONDS,
                counted(count, "statement"),
            )

    def _sweep(self) -> None:
        """Sweep: every 10 s at first, when a crash may have left something, then every two minutes."""
        self._sweeps += 1
        try:
            self._daemon.sweep()
        except Exception:
            _LOG.exception("the sweep failed with an unexpected error")
        if self._sweeps == QUICK_SWEEPS:
            self._every["sweep"] = SWEEP_SECONDS[1]
            self._scheduler.reschedule_job("sweep", trigger="interval", seconds=SWEEP_SECONDS[1])

    def _backup(self) -> None:
        """Back up the database and delete old rows and jobs."""
        storage = self._daemon.storage
        if storage is None:
            return
        now = self._daemon.world.clock.now()
        every = self._daemon.settings.daemon.backup_seconds
        if (age := newest_backup_age(self._there.backups)) is not None and age < FRESH_BACKUP * every:
            self._backup_failed, self._has_copies = "", True
            return  # A daemon that restarts often must not push out the copies of earlier hours.
        try:
            name = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S")
            backup(storage.store.database.engine, self._there.backups, name)
            storage.store.forget_old(now)
            keep_days = self._daemon.settings.daemon.keep_days
            prune(storage, self._daemon.world.runner, keep_days=keep_days, now=now)
            # Another database than SQLite has copies of its own.
            self._backup_failed, self._has_copies = "", newest_backup_age(self._there.backups) is not None
        except Exception as error:
            _LOG.exception("the backup failed")
            self._backup_failed = f"{type(error).__name__}: {error}".splitlines()[0][:300]

    def _look_at_nets(self) -> None:
        """Look which safety nets are lost; a backup that failed is tried again."""
        try:
            are_gone = self._has_copies and newest_backup_age(self._there.backups) is None
            if (self._backup_failed or are_gone) and time.monotonic() >= self._backup_again_at:
                self._backup_again_at = time.monotonic() + BACKUP_AGAIN_SECONDS
                self._backup()
                if are_gone and not self._backup_failed:
                    self._tell_of_lost_copies()
            self._daemon.look_at_nets()
            self._report_month()
        except Exception:
            _LOG.exception("the safety nets could not be looked at")

    def _tell_of_lost_copies(self) -> None:
        """Alert that somebody has taken the copies of the database away; a new one was made."""
        now = self._daemon.world.clock.now()
        said = f"backup: the copies in {self._there.backups} were taken away; a new one was made"
        self._daemon.alerts.say(f"copies:{int(now)}", said, at=now)

    def _report_month(self) -> None:
        """Send last month's reports, once."""
        daemon, storage = self._daemon, self._daemon.storage
        if storage is None or not daemon.settings.alerts.month_report:
            return
        folder, now = self._there.state / "reports", daemon.world.clock.now()
        if self._reported_at is not None and month_of(self._reported_at) == month_of(now):
            return  # A team that spent nothing gets none, and would be reckoned at each look.
        made_by = f"Written by boa {__version__}."
        money = month_money(daemon.settings.budget, daemon.planner.paid.fixed)
        send_month_report(storage, daemon.alerts, folder, money, made_by=made_by, now=now)
        teams, users = daemon.settings.teams, daemon.settings.users
        send_team_reports(storage, daemon.alerts, folder, teams, users, made_by=made_by, now=now)
        self._reported_at = now

    def _backup_fault(self) -> str:
        """Return why there is no backup, or why the next one will fail; empty if all is well."""
        if self._backup_failed:
            return f"the last backup failed: {self._backup_failed}"
        if (
            self._daemon.storage is None
            or self._daemon.storage.store.database.engine.dialect.name != "sqlite"
        ):
            return ""
        folder = self._there.backups
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"a probe")
        except OSError as error:
            return f"backups cannot be written to {folder}: {error.strerror or error}"
        return ""

    def refresh_soon(self) -> None:
        """Refresh the facts from outside now."""
        self._scheduler.get_job("refresh").modify(next_run_time=datetime.now(UTC))

    def reschedule(self) -> None:
        """Apply a changed tick interval, and tick now."""
        self._every["tick"] = self._daemon.settings.daemon.tick_seconds
        self._scheduler.reschedule_job(
            "tick", trigger="interval", seconds=self._daemon.settings.daemon.tick_seconds
        )
        self.wake(0.0)

    def stop(self) -> None:
        """Stop the scheduler once running work has finished."""
        if self._scheduler.running:  # It is not where no thread could be started.
            self._scheduler.shutdown(wait=True)
