"""The daemon's process: the scheduler, the API servers, signals, and notifications to systemd."""

from __future__ import annotations

import gc
import json
import logging
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from boa_daemon import __version__
from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.api.server import ApiServer, tcp_socket, unix_socket
from boa_daemon.api.spare_descriptors import raise_limit
from boa_daemon.daemon import systemd
from boa_daemon.daemon.assembly import open_daemon, open_database, reload_cloud, take_lead, try_database
from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.daemon_paths import DaemonPaths, daemon_paths, make_folder
from boa_daemon.daemon.lock import AlreadyRunning, Lock
from boa_daemon.daemon.loop import Daemon
from boa_daemon.daemon.pruning import prune
from boa_daemon.daemon.safety_nets import LOOK_SECONDS
from boa_daemon.daemon.service import Service
from boa_daemon.daemon.settings_reload import SettingsReader, keep_observe_mode, keys_needing_restart
from boa_daemon.errors import BoaError, InputError
from boa_daemon.inputs.plain_text import plain_text
from boa_daemon.store.database_setup import StoreUnusable, backup, newest_backup_age
from boa_daemon.store.database_troubles import PASSING, explain, trouble_of
from boa_daemon.store.leader import RENEW_SECONDS, Leadership, LedElsewhere
from boa_daemon.store.storage import Storage

_LOG = logging.getLogger("boa")
WATCH_SECONDS = 1.0
SWITCH_SECONDS = 0.0005
"""Interpreter switch interval: how long a tick may delay a request that waits."""
YOUNG, MIDDLE, OLD = 700, 10, 1_000_000
TIDY_SECONDS = 3600.0
"""Seconds between full garbage collections; with 10,000 jobs one stops every thread for 0.1 s."""
_Value = TypeVar("_Value")
_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


def keep_answering() -> None:
    """Keep API requests fast during ticks: short thread turns, few automatic full collections."""
    raise_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


class PlainLines(logging.Formatter):
    """A log format for a terminal, which must not obey what jobs and clouds said."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as text without control characters."""
        return plain_text(super().format(record))


class JsonLines(logging.Formatter):
    """A log format for journald: one JSON document per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as a JSON document."""
        document: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        document |= {key: value for key, value in record.__dict__.items() if key not in _FIELDS}
        if record.exc_info:
            document["trace"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def set_up_logs() -> None:
    """Log readable lines to a terminal, and JSON to everything else."""
    handler = logging.StreamHandler(sys.stderr)
    if sys.stderr.isatty():
        handler.setFormatter(PlainLines("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    else:
        handler.setFormatter(JsonLines())
    root = logging.getLogger("boa")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False
    # What strangers' connections make these say has the daemon's form, and a limit (`api/log_limits.py`).
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False


SWEEP_SECONDS, QUICK_SWEEPS = (10.0, 120.0), 30
"""Seconds between sweeps by tag: at first, and after `QUICK_SWEEPS` sweeps."""
REFRESH_SECONDS, FIRST_PRICES_SECONDS = 60.0, 5.0
"""Seconds between refreshes of prices and quotas; longest wait of the first tick for the first refresh."""
STANDBY_SECONDS = 1.0
"""Seconds between a standby's attempts to take over."""
BACKUP_AGAIN_SECONDS = 240.0
"""Seconds until a backup that failed is tried again."""
FRESH_BACKUP = 0.5
"""Age of the newest backup, in intervals, below which a start makes no other."""
JUMP_SECONDS = 2.0
"""Change of the wall clock against the monotonic clock that counts as a jump."""
LAST_AGAIN_SECONDS = 5.0
"""Longest time between two tries to open a database whose trouble passes."""
_AT_ONCE = ("tick", "gate", "refresh", "backup")


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
            executors={"default": ThreadPoolExecutor(6)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )
        self._backup_failed, self._backup_again_at = "", 0.0
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
            ("refresh", self._refresh, REFRESH_SECONDS),
            ("sweep", self._sweep, SWEEP_SECONDS[0]),
            ("nets", self._look_at_nets, LOOK_SECONDS),
            ("backup", self._backup, settings.backup_seconds),
            ("tidy", gc.collect, TIDY_SECONDS),
        ):
            first = datetime.now(UTC) + timedelta(seconds=0.0 if name in _AT_ONCE else seconds)
            self._scheduler.add_job(do, "interval", seconds=seconds, id=name, next_run_time=first)
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
            with self._guard:
                self._is_ticking, again = False, self._again
            if again is not None:
                self._bring_forward(again)

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
            self._backup_failed = ""
            return  # A daemon that restarts often must not push out the copies of earlier hours.
        try:
            name = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S")
            backup(storage.store.database.engine, self._there.backups, name)
            storage.store.forget_old(now)
            keep_days = self._daemon.settings.daemon.keep_days
            prune(storage, self._daemon.world.runner, keep_days=keep_days, now=now)
            self._backup_failed = ""
        except Exception as error:
            _LOG.exception("the backup failed")
            self._backup_failed = f"{type(error).__name__}: {error}".splitlines()[0][:300]

    def _look_at_nets(self) -> None:
        """Look which safety nets are lost; a backup that failed is tried again."""
        try:
            if self._backup_failed and time.monotonic() >= self._backup_again_at:
                self._backup_again_at = time.monotonic() + BACKUP_AGAIN_SECONDS
                self._backup()
            self._daemon.look_at_nets()
        except Exception:
            _LOG.exception("the safety nets could not be looked at")

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
        self._scheduler.shutdown(wait=True)


def serve(
    load: SettingsReader,
    *,
    announce: Callable[[str], None] = lambda _line: None,
    standby: bool = False,
) -> None:
    """Run the daemon until SIGTERM or SIGINT; `load` reads the settings at the start and on SIGHUP.

    Settings that would loosen limits without consent are refused: those in force stay, also after a restart.

    A `standby` waits until no other daemon leads on the database, then takes over.

    Raises:
        AlreadyRunning: when another daemon uses the state folder.
        InputError: when the settings are wrong.
    """
    stop, reload = threading.Event(), threading.Event()
    # Its default would end the process.
    signal.signal(signal.SIGHUP, lambda *_: reload.set())
    set_up_logs()
    try:
        settings = _patiently(load, stop, reload, what="the settings", types=(*PASSING, InputError))
    except _Stopped:
        return
    systemd.check_tick(settings.daemon.tick_seconds)
    there = daemon_paths(settings)
    if load.note:
        _LOG.error("%s", load.note)
    lock = Lock(there.state)
    try:
        # A full or read-only disk at the start passes, as it does later.
        _patiently(lambda: make_folder(there.state), stop, reload)
        if standby:
            _on_signals(stop, reload)
            if not _until_free(lock.take, (AlreadyRunning, OSError), stop):
                return
        else:
            _patiently(lock.take, stop, reload)
        _serve_lives(load, settings, there, stop, reload, announce=announce, standby=standby)
    except _Stopped:
        return
    finally:
        lock.give_back()


def _patiently(
    do: Callable[[], _Value],
    stop: threading.Event,
    reload: threading.Event,
    *,
    what: str = "the state folder",
    types: tuple[type[Exception], ...] = PASSING,
) -> _Value:
    """Return the result of `do`, which is tried again while a trouble lasts that passes.

    A file of a person that is missing or that may not be read is an error of its own.

    Raises:
        _Stopped: when told to stop first.
    """
    said = ""
    while True:
        try:
            return do()
        except types as error:
            kind = trouble_of(error)
            if kind is None or (isinstance(error, InputError) and kind in ("place", "rights")):
                raise
            _on_signals(stop, reload)
            why, remedy = explain(error, kind)
            if why != said:
                said = why
                _LOG.error("%s cannot be used: %s. %s; the daemon tries again", what, why, remedy)
                systemd.notify_ready(f"waiting: {why}")
            systemd.notify_alive(f"waiting: {why}")
            if stop.wait(STANDBY_SECONDS):
                raise _Stopped("stopped while waiting") from None


def _serve_lives(
    load: SettingsReader,
    settings: Settings,
    there: DaemonPaths,
    stop: threading.Event,
    reload: threading.Event,
    *,
    announce: Callable[[str], None],
    standby: bool,
) -> None:
    """Run one daemon after another: one without a database ends as soon as the database can be opened.

    Raises:
        _Stopped: when a standby is stopped while it waits.
        InputError: when the settings are wrong.
    """
    keep_answering()
    storage = _stand_by(settings, stop) if standby else None
    is_first = True
    while True:
        opened = storage

        def open_one(given: Settings = settings, storage: Storage | None = opened) -> Daemon:
            return open_daemon(given, storage=storage)

        daemon = _patiently(open_one, stop, reload) if storage is None else open_one()
        try:
            gatekeeper = Authenticator(settings.api)
            app = create_app(Service(daemon), gatekeeper, version=__version__)
            doors = _Doors(settings, there, app)
        except InputError:
            daemon.close()
            raise
        if standby and is_first:
            # The standby may have waited for months: its settings, caps included, may be out of date.
            _try_reading_again(daemon, load)
        else:
            load.confirm()
            _say_refusal(daemon, load)
        daemon.own_faults["tokens"] = gatekeeper.fault
        daemon.own_faults["certificate"] = doors.fault
        storage = _one_life(
            daemon,
            doors,
            there,
            load,
            stop=stop,
            reload=reload,
            announce=announce if is_first else lambda _line: None,
        )
        if storage is None:
            _LOG.info("stopped; jobs and instances go on")
            return
        _LOG.warning("the database can be used again: the daemon goes on with it")
        settings, is_first = daemon.settings, False


def _one_life(
    daemon: Daemon,
    doors: _Doors,
    there: DaemonPaths,
    load: SettingsReader,
    *,
    stop: threading.Event,
    reload: threading.Event,
    announce: Callable[[str], None],
) -> Storage | None:
    """Run a daemon until it is told to stop, or until its missing database can be opened; return that."""
    clockwork = Clockwork(daemon, there)

    def read_now(consent: str) -> list[str]:
        later = _read_again(daemon, load, consent=consent)
        clockwork.reschedule()
        return later

    daemon.settings_source, daemon.apply_settings = load, read_now
    _on_signals(stop, reload)
    storage: Storage | None = None
    try:
        doors.start()
        clockwork.start()
        announce(str(there.socket))
        storage = _until_stopped(daemon, clockwork, stop, reload, load, keep=doors.keep)
    finally:
        if storage is None:
            systemd.notify_stopping()
        clockwork.stop()
        doors.stop()
        daemon.close()
        with suppress(OSError):
            there.socket.unlink(missing_ok=True)
    return storage


def _servers(settings: Settings, there: DaemonPaths, app: Any) -> list[ApiServer]:
    """Return the API servers: one on the unix socket, and one on TCP when `[api] listen` is set.

    Raises:
        InputError: when TCP would reach other machines without TLS.
    """
    api = settings.api
    found: list[ApiServer] = []
    if api.listen is not None:
        if (api.tls_cert is None) != (api.tls_key is None):
            raise InputError("[api] tls_cert and tls_key go together", hint="Set both, or neither")
        tls = None if api.tls_cert is None or api.tls_key is None else (api.tls_cert, api.tls_key)
        found.append(ApiServer(app, [tcp_socket(api.listen, is_secret=tls is not None)], tls=tls))
    try:
        return [ApiServer(app, [unix_socket(there.socket)], is_on_unix=True), *found]
    except OSError as error:
        if trouble_of(error) not in ("full", "read-only", "disk", "descriptors", "memory"):
            raise
        _LOG.error("the socket %s cannot be made yet: %s", there.socket, error)
        return found


class _Doors:
    """The API servers. The socket is opened again if somebody sweeps its file away, as `tmp` cleaners do."""

    def __init__(self, settings: Settings, there: DaemonPaths, app: Any) -> None:
        self._servers = _servers(settings, there, app)
        self._app, self._path, self._said = app, there.socket, ""

    def start(self) -> None:
        """Start serving."""
        for server in self._servers:
            server.start()

    def keep(self) -> None:
        """Listen at the socket's path again if its file is gone; requests in progress are answered."""
        if self._path.exists():
            return
        try:
            opened = ApiServer(self._app, [unix_socket(self._path)], is_on_unix=True)
        except OSError as error:
            if str(error) != self._said:
                self._said = str(error)
                _LOG.error("the socket %s is gone and cannot be made again: %s", self._path, error)
            return
        _LOG.warning("the socket %s was swept away, and is made again", self._path)
        opened.start()
        swept = [server for server in self._servers if server.is_on_unix]
        self._servers = [opened, *(server for server in self._servers if not server.is_on_unix)]
        for server in swept:
            server.stop()

    def fault(self) -> str:
        """Return why a changed certificate is not in use; empty if it is."""
        return "; ".join(said for server in self._servers if (said := server.fault()))

    def stop(self) -> None:
        """Finish running requests and stop."""
        for server in self._servers:
            server.stop()


class _Stopped(BoaError):
    """A standby was stopped while it waited."""


def _stand_by(settings: Settings, stop: threading.Event) -> Storage:
    """Wait until this process leads on the database, and return the database.

    Raises:
        _Stopped: when it is stopped first.
    """
    found: list[Storage] = []

    def lead(engine: Engine) -> Leadership:
        leading: list[Leadership] = []
        if not _until_free(lambda: leading.append(take_lead(engine)), (LedElsewhere, SQLAlchemyError), stop):
            raise _Stopped("stopped while standing by")
        _LOG.warning("took over: this daemon leads now")
        return leading[0]

    if not _until_free(lambda: found.append(open_database(settings, lead)), StoreUnusable, stop):
        raise _Stopped("stopped while standing by")
    return found[0]


def _until_free(
    take: Callable[[], None], held: type[Exception] | tuple[type[Exception], ...], stop: threading.Event
) -> bool:
    """Call `take` each second until it no longer raises `held`; return False when told to stop first."""
    said = ""
    while not stop.is_set():
        try:
            take()
        except held as error:
            if str(error) != said:
                said = str(error)
                _LOG.info("standing by: %s", said)
                systemd.notify_ready(f"standing by: {said}")
            systemd.notify_alive(f"standing by: {said}")
            stop.wait(STANDBY_SECONDS)
        else:
            return True
    return False


def _on_signals(stop: threading.Event, reload: threading.Event) -> None:
    """Turn signals into events: SIGTERM and SIGINT stop, SIGHUP reloads the settings."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, lambda *_: reload.set())


def _until_stopped(
    daemon: Daemon,
    clockwork: Clockwork,
    stop: threading.Event,
    reload: threading.Event,
    load: SettingsReader,
    *,
    keep: Callable[[], None] = lambda: None,
) -> Storage | None:
    """Wait for signals; tell systemd READY after the first full reconcile.

    Return None when told to stop, or the database that this daemon lacked. `keep` is called
    all the time.
    """
    is_announced, ahead, tried_at = False, time.time() - time.monotonic(), time.monotonic()
    while not stop.wait(0.2):
        keep()
        if daemon.awaited_seconds is not None and time.monotonic() - tried_at >= daemon.awaited_seconds:
            storage = _tried_again(daemon)
            if storage is not None:
                return storage
            tried_at = time.monotonic()
        if daemon.storage is not None and daemon.storage.is_deposed:
            # The state in memory is out of date, because another daemon leads now: restart, or stand by.
            raise LedElsewhere("another daemon took over; this one exits, and its service may restart it")
        if abs(time.time() - time.monotonic() - ahead) > JUMP_SECONDS:
            ahead = time.time() - time.monotonic()
            clockwork.after_a_jump()
        if not is_announced and (
            daemon.standing.is_ready or (daemon.storage is None and clockwork.first_tick.is_set())
        ):
            systemd.notify_ready(daemon.status_line)
            is_announced = True
        load.save()
        if reload.is_set():
            reload.clear()
            systemd.notify_reloading()
            if _try_reading_again(daemon, load):
                clockwork.reschedule()
            # Also if the settings are wrong: what people changed outside is asked for anew.
            daemon.ask_anew()
            clockwork.refresh_soon()
            systemd.notify_ready(daemon.status_line)
    return None


def _tried_again(daemon: Daemon) -> Storage | None:
    """Try to open the database that a daemon lacks; None, with the reason in its status, if that fails.

    Raises:
        LedElsewhere: when another daemon leads meanwhile.
    """
    storage, fault, again = try_database(daemon.settings)
    if storage is not None:
        return storage
    if again is None:
        raise LedElsewhere(f"{fault}: this one exits, and its service may restart it")
    if fault != daemon.standing.fault:
        _LOG.error("%s", fault)
        daemon.standing.fault = fault
    # The database is read at each try: a trouble that lasts is asked about less often.
    longest = max(again, LAST_AGAIN_SECONDS)
    daemon.awaited_seconds = min(max(again, daemon.awaited_seconds or 0.0) * 1.5, longest)
    return None


def _try_reading_again(daemon: Daemon, load: SettingsReader) -> bool:
    """Reload the settings; return False, and keep the present ones, when the new ones are refused."""
    try:
        later = _read_again(daemon, load)
    except (BoaError, ValueError) as error:
        _LOG.error("the settings stay as they were: %s", error)
        _say_refusal(daemon, load)
        return False
    _LOG.info("settings read again")
    if later:
        _LOG.warning("these settings take effect only when the daemon restarts: %s", ", ".join(later))
    return True


def _read_again(daemon: Daemon, load: SettingsReader, *, consent: str = "") -> list[str]:
    """Reload the settings and use them; return those that take effect only after a restart.

    Raises:
        BoaError: when they are wrong, or loosen limits without consent; the present ones stay in force.
        ValueError: when a plan cannot be made with them.
    """
    with load.lock:
        settings = load(consent=consent)
        systemd.check_tick(settings.daemon.tick_seconds)
        fixed = daemon.world.cloud.boot_seconds is not None
        later = keys_needing_restart(daemon.settings, settings, is_cloud_fixed=fixed)
        daemon.use(keep_observe_mode(daemon.settings, settings))
        taken = {f"cloud.{key}" for key in reload_cloud(daemon.world.cloud, settings)}
        load.confirm()
    _say_refusal(daemon, load)
    return [key for key in later if key not in taken]


def _say_refusal(daemon: Daemon, load: SettingsReader) -> None:
    """Show in the status, and alert once, why the settings in force are not those of the files."""
    if load.warnings != daemon.standing.setting_warnings:
        for sentence in load.warnings:
            _LOG.warning("settings: %s", sentence)
    daemon.standing.settings_note, daemon.standing.setting_warnings = load.note, load.warnings
    if load.note:
        daemon.say_settings_refused(load.note)
