"""What a starting daemon waits for: trouble that passes, and, as a standby, that no other daemon leads.

Signals are heard meanwhile, and systemd is told what is waited for.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.daemon.loop import systemd
from boa_daemon.daemon.loop.assembly import open_database, take_lead
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import BoaError, InputError
from boa_daemon.store.database_setup import StoreUnusable
from boa_daemon.store.database_troubles import PASSING, explain, trouble_of
from boa_daemon.store.leader import Leadership, LedElsewhere
from boa_daemon.store.storage import Storage

_LOG = logging.getLogger("boa")
STANDBY_SECONDS = 1.0
"""Seconds between two tries: to take over, or to use what could not be used."""
_Value = TypeVar("_Value")


class SignalEvent(threading.Event):
    """An event that a signal's handler may set: it runs within whatever the main thread does with the event.

    The lock of a plain event would be waited for for ever by the thread that has it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cond = threading.Condition(threading.RLock())


class Stopped(BoaError):
    """The daemon was stopped while it waited."""


def patiently(
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
        Stopped: when told to stop first.
    """
    said = ""
    while True:
        try:
            return do()
        except types as error:
            kind = trouble_of(error)
            if kind is None or (isinstance(error, InputError) and kind in ("place", "rights")):
                raise
            on_signals(stop, reload)
            why, remedy = explain(error, kind)
            if why != said:
                said = why
                _LOG.error("%s cannot be used: %s. %s; the daemon tries again", what, why, remedy)
                systemd.notify_ready(f"waiting: {why}")
            systemd.notify_alive(f"waiting: {why}")
            if stop.wait(STANDBY_SECONDS):
                raise Stopped("stopped while waiting") from None


def stand_by(settings: Settings, stop: threading.Event) -> Storage:
    """Wait until this process leads on the database, and return the database.

    Raises:
        Stopped: when it is stopped first.
    """
    found: list[Storage] = []

    def lead(engine: Engine) -> Leadership:
        leading: list[Leadership] = []
        if not until_free(lambda: leading.append(take_lead(engine)), (LedElsewhere, SQLAlchemyError), stop):
            raise Stopped("stopped while standing by")
        _LOG.warning("took over: this daemon leads now")
        return leading[0]

    if not until_free(lambda: found.append(open_database(settings, lead)), StoreUnusable, stop):
        raise Stopped("stopped while standing by")
    return found[0]


def until_free(
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


def on_signals(stop: threading.Event, reload: threading.Event) -> None:
    """Turn signals into events: SIGTERM and SIGINT stop, SIGHUP reloads the settings."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, lambda *_: reload.set())
