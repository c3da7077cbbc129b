"""What an error of the database means: trouble that passes, damage, or something else; in one sentence.

A full or read-only disk, an error of the disk, a lock, missing memory or descriptors, and a server that is
down, starting or full pass by themselves or by a person's remedy outside BOA: the daemon tries again. Only
damage needs `boa recover`.
"""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from boa_daemon.inputs.os_troubles import Trouble, trouble_of_os

_OF_SQLITE: dict[int, Trouble] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_IOERR: "disk",
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_PROTOCOL: "busy",
    sqlite3.SQLITE_INTERRUPT: "busy",
    sqlite3.SQLITE_NOMEM: "memory",
    sqlite3.SQLITE_CANTOPEN: "place",
    sqlite3.SQLITE_PERM: "rights",
}
_OF_SQLSTATE: tuple[tuple[str, Trouble], ...] = (
    ("53100", "full"),
    ("53200", "memory"),
    ("53", "server"),
    ("58", "disk"),
    ("25006", "read-only"),
    ("55P03", "busy"),
    ("40", "busy"),
    ("08", "server"),
    ("57", "server"),
    ("28", "login"),
    ("3D", "login"),
    ("42501", "rights"),
    ("3F", "tables"),
)
"""Kinds of trouble by the beginning of PostgreSQL's SQLSTATE; the first that fits counts."""
_REFUSALS = (
    "authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "not permitted to log in",
    "no password",
)
"""What servers say to those whom they do not let in."""
_BY_WORDS: tuple[tuple[Trouble, tuple[str, ...]], ...] = (
    ("login", _REFUSALS[:2]),
    ("certificate", ("certificate", "SSL")),
    ("login", _REFUSALS),
    (
        "address",
        (
            "invalid connection option",
            "unrecognized configuration parameter",
            "unsupported startup parameter",
            "invalid sslmode",
            "invalid port",
            "invalid channel_binding",
            "invalid target_session_attrs",
            "bad value for",
        ),
    ),
)
"""What the driver and servers say without a SQLSTATE, as at the login; the first that fits counts."""
_SENTENCES: dict[Trouble, tuple[str, str]] = {
    "full": ("its disk is full", "Free some space on it, or files (df -i), or raise the quota"),
    "read-only": ("it cannot be written", "Make its disk writable: an error may have made it read-only"),
    "disk": ("its disk answers with errors", "Check the disk and its connection"),
    "busy": ("another program keeps it locked", "End the program that has it open"),
    "descriptors": ("no file descriptors are left", "Raise the limit of open files (LimitNOFILE)"),
    "memory": ("no memory is left", "Free some memory"),
    "place": ("its file cannot be opened", "Check that its disk is mounted and its folder is there"),
    "rights": ("it may not be used", "Give the daemon's user the right to read and write it"),
    "server": ("its server does not answer", "Check that the server runs and takes connections"),
    "login": (
        "its server refuses the daemon",
        "Check database, user and password in [daemon] database, and what the server allows (pg_hba.conf)",
    ),
    "certificate": (
        "its certificate is not accepted, or none is offered",
        "Check sslmode and sslrootcert in [daemon] database, and the name in the server's certificate",
    ),
    "address": ("[daemon] database is not understood", "Correct [daemon] database, and restart the daemon"),
    "file size": (
        "files of this process may not grow further",
        "Raise the limit on the size of files (ulimit -f, LimitFSIZE), and restart the daemon",
    ),
    "beside": (
        "it is not of this database",
        "Move it away, and keep it: another database may need it",
    ),
    "tables": ("its tables are not found", "Check the schema of its user (search_path), or restore it"),
}


class StrangeFile(OSError):
    """A file that SQLite would take for a part of the database, and that is none: the database is intact."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the driver's error in it, and those that caused it."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        if isinstance(found, DBAPIError) and isinstance(found.orig, BaseException):
            yield found.orig
        found = found.__cause__


def trouble_of(error: BaseException) -> Trouble | None:
    """Return the kind of a trouble that passes; None for damage and for every other error."""
    last: Trouble | None = None
    for one in _causes(error):
        if isinstance(one, MemoryError):
            return "memory"
        if isinstance(one, PoolTimeout):
            return "busy"
        if isinstance(one, StrangeFile):
            return "beside"
        if isinstance(one, OSError):
            if (found := trouble_of_os(one)) is not None:
                return found
            continue
        if isinstance(one, sqlite3.Error):
            return _of_sqlite(one)
        state = getattr(one, "sqlstate", None)
        if isinstance(state, str):
            return next((kind for begin, kind in _OF_SQLSTATE if state.startswith(begin)), None)
        if isinstance(one, DBAPIError) and one.orig is None:
            continue
        if type(one).__module__.startswith("psycopg"):
            said = str(one)
            found = next((kind for kind, words in _BY_WORDS if any(word in said for word in words)), None)
            if found is not None or _is_operational(one):
                return found or "server"
        if isinstance(one, OperationalError | InterfaceError) and one.connection_invalidated:
            last = "server"  # Unless the driver's error says why.
    return last


def _is_operational(error: BaseException) -> bool:
    """Whether an error of psycopg is about the connection or the server, not about a statement."""
    return any(kind.__name__ in ("OperationalError", "InterfaceError") for kind in type(error).__mro__)


def _of_sqlite(error: sqlite3.Error) -> Trouble | None:
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        if code == sqlite3.SQLITE_IOERR_WRITE and resource.getrlimit(resource.RLIMIT_FSIZE)[0] >= 0:
            # SQLite does not say which error of the system it met.
            return "file size"
        return _OF_SQLITE.get(code & 0xFF)
    said = str(error)
    for words, kind in (
        ("full", "full"),
        ("readonly", "read-only"),
        ("I/O", "disk"),
        ("locked", "busy"),
        ("unable to open", "place"),
    ):
        if words in said:
            return kind  # type: ignore[return-value]
    return None


def explain(error: BaseException, kind: Trouble | None) -> tuple[str, str]:
    """Return what an error of the database means, with the driver's words, and what to try."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    words = str(original).strip().splitlines()
    said = (words[0] if words else type(original).__name__)[:200]
    if kind is None:
        return said, "Check its disk or its server"
    what, remedy = _SENTENCES[kind]
    return f"{said} ({what})", remedy


PASSING = (SQLAlchemyError, sqlite3.Error, OSError, MemoryError)
"""Types of errors that may be a trouble that passes: ask `trouble_of`."""
