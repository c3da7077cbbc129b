"""The daemon's process: one life after another, until it is told to stop, and settings that are read again.

`daemon/loop/waiting.py` waits before a life begins, `daemon/loop/clockwork.py` ticks and `api/doors.py`
answers during it.
"""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from boa_daemon import __version__
from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.api.doors import Doors
from boa_daemon.api.process_limits import check_threads
from boa_daemon.api.spare_descriptors import raise_limit
from boa_daemon.daemon.loop import systemd
from boa_daemon.daemon.loop.assembly import open_daemon, reload_cloud, try_database
from boa_daemon.daemon.loop.clockwork import Clockwork
from boa_daemon.daemon.loop.lock import AlreadyRunning, Lock
from boa_daemon.daemon.loop.log_lines import set_up_logs
from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.loop.waiting import Stopped, on_signals, patiently, stand_by, until_free
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.daemon_paths import DaemonPaths, daemon_paths, make_folder
from boa_daemon.daemon.settings.settings_reload import SettingsReader, keep_observe_mode, keys_needing_restart
from boa_daemon.errors import BoaError, InputError
from boa_daemon.store.database_troubles import PASSING
from boa_daemon.store.leader import LedElsewhere
from boa_daemon.store.storage import Storage

_LOG = logging.getLogger("boa")
SWITCH_SECONDS = 0.0005
"""Interpreter switch interval: how long a tick may delay a request that waits."""
YOUNG, MIDDLE, OLD = 700, 10, 1_000_000
JUMP_SECONDS = 2.0
"""Change of the wall clock against the monotonic clock that counts as a jump."""
LAST_AGAIN_SECONDS = 5.0
"""Longest time between two tries to open a database whose trouble passes."""


def keep_answering() -> None:
    """Keep API requests fast during ticks: short thread turns, few automatic full collections."""
    raise_limit()
    check_threads()
    # The first tick needs it: where memory is short, this says so before anything is answered.
    import scipy.special  # noqa: F401, PLC0415

    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


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
        settings = patiently(load, stop, reload, what="the settings", types=(*PASSING, InputError))
    except Stopped:
        return
    systemd.check_tick(settings.daemon.tick_seconds)
    there = daemon_paths(settings)
    if load.note:
        _LOG.error("%s", load.note)
    lock = Lock(there.state)
    try:
        # A full or read-only disk at the start passes, as it does later.
        patiently(lambda: make_folder(there.state), stop, reload)
        if standby:
            on_signals(stop, reload)
            if not until_free(lock.take, (AlreadyRunning, OSError), stop):
                return
        else:
            patiently(lock.take, stop, reload)
        _serve_lives(load, settings, there, stop, reload, announce=announce, standby=standby)
    except Stopped:
        return
    finally:
        lock.give_back()


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
        Stopped: when a standby is stopped while it waits.
        InputError: when the settings are wrong.
    """
    keep_answering()
    storage = stand_by(settings, stop) if standby else None
    is_first = True
    while True:
        opened = storage

        def open_one(given: Settings = settings, storage: Storage | None = opened) -> Daemon:
            return open_daemon(given, storage=storage)

        daemon = patiently(open_one, stop, reload) if storage is None else open_one()
        try:
            gatekeeper = Authenticator(settings.api)
            service = Service(daemon)
            if not daemon.settings.daemon.observe:
                daemon.after_tick = service.after_tick
            app = create_app(service, gatekeeper, version=__version__)
            doors = Doors(settings, there, app)
        except InputError:
            daemon.close()
            raise
        if standby and is_first:
            # The standby may have waited for months: its settings, caps included, may be out of date.
            _try_reading_again(daemon, load)
        else:
            load.confirm(is_opened=daemon.storage is not None)
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
    doors: Doors,
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
    on_signals(stop, reload)
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


def _until_stopped(
    daemon: Daemon,
    clockwork: Clockwork,
    stop: threading.Event,
    reload: threading.Event,
    load: SettingsReader,
    *,
    keep: Callable[[], None],
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
    except (BoaError, ValueError, *PASSING) as error:
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
        load.confirm(is_opened=daemon.storage is not None)
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
