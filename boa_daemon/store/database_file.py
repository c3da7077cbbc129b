"""The file of a SQLite database, and the files beside it that SQLite takes for parts of it.

SQLite finds these by their names alone. A journal (``-journal``) of another database, copied beside this one,
is written over it when it is opened, and so is a log (``-wal``). BOA's database keeps a log, no journal. An
open file outlives its name: what goes into a log that was deleted or replaced is found by no later daemon.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Engine, event

from boa_daemon.job.regular_files import device_and_inode
from boa_daemon.store.database_troubles import StrangeFile

HEADER_BYTES = 100
LOG_HEADER_BYTES = 32
_GONE = "the file of the database is gone"


def check_beside(database: str | Path) -> None:
    """Return if SQLite can open a database without harm from the files beside it, which are only looked at.

    Raises:
        StrangeFile: when one of them is not the database's, or is no file.
        OSError: when one of them cannot be looked at.
    """
    path = os.path.realpath(database)
    for suffix in ("-wal", "-shm"):
        _bytes_of_file(f"{path}{suffix}")
    # Opened only if it is there: a daemon without descriptors must be able to write.
    if not _bytes_of_file(f"{path}-journal") or not _is_hot(f"{path}-journal"):
        return
    with suppress(FileNotFoundError), open(path, "rb") as file:
        header = file.read(HEADER_BYTES)
        page_bytes = int.from_bytes(header[16:18], "big") or 1
        pages = os.fstat(file.fileno()).st_size // (65536 if page_bytes == 1 else page_bytes)
        if pages <= 1:
            return  # A daemon that was killed while it made the file: there is nothing to lose.
        if header[18:20] == b"\x02\x02":
            raise StrangeFile(
                f"{path}-journal",
                "a journal, and this database keeps none. SQLite would write it over the database",
            )
        raise StrangeFile(
            f"{path}-journal",
            "a journal of a change that another program began and did not end. If it was to this database, "
            f"copy both files, and `sqlite3 {path} 'PRAGMA quick_check'` undoes the change. If not",
        )


def _bytes_of_file(path: str) -> int:
    """Return the size of a file, 0 if there is none.

    Raises:
        StrangeFile: when it is something else.
    """
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    if not stat.S_ISREG(mode := found.st_mode):
        kind = "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "special file"
        raise StrangeFile(path, f"a {kind}, and SQLite needs this name for a file")
    return found.st_size


def _is_hot(journal: str) -> bool:
    """Whether SQLite would write a journal over its database; one that was ended begins with a zero."""
    try:
        with open(journal, "rb") as file:
            return file.read(1) not in (b"", b"\0")
    except FileNotFoundError:
        return False


def has_log(database: Path) -> bool:
    """Whether a log with content is beside a database."""
    try:
        return os.stat(f"{os.path.realpath(database)}-wal").st_size > LOG_HEADER_BYTES
    except OSError:
        return False


def strange_log(database: Path) -> StrangeFile:
    """Return the error of a log that does not continue the database beside which it is."""
    return StrangeFile(
        f"{os.path.realpath(database)}-wal",
        "a log of another database, or of another state of this one; without it the database is whole",
    )


class DatabaseFile:
    """The file of a SQLite database in use, and its log: whether they are still those at their paths.

    `_keeper` is a connection that is open as long as the database is used. It holds the log that is in use by
    its descriptor, and its shared lock on the file keeps every journal from being written over it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        name = engine.url.database if engine.dialect.name == "sqlite" else None
        self._path = None if not name or name == ":memory:" else os.path.abspath(name)
        self._log = "" if self._path is None else f"{os.path.realpath(self._path)}-wal"
        self._identity: tuple[int, int] | None = None
        self._keeper: sqlite3.Connection | None = None
        self._log_identity: tuple[int, int] | None = None
        self._log_bytes = 0
        if self._path is not None:
            event.listen(engine, "do_connect", self._before_connecting)

    def _before_connecting(self, *_: object) -> None:
        """Let a new connection make no empty database or log where there was one, and read no strange one."""
        if self._path is None:
            return
        if self._identity is not None and not os.path.lexists(self._path):
            raise FileNotFoundError(errno.ENOENT, _GONE, self._path)
        check_beside(self._path)
        if self._keeper is not None and not self._is_log_in_place() and self._is_in_place():
            raise StrangeFile(
                self._log, "not the log that is in use; the next write saves what is in that one"
            )

    def check(self) -> None:
        """Return if the file is at its path, with its log; open the new one if it is another than before.

        Raises:
            FileNotFoundError: when there is none.
            StrangeFile: when a file beside it is not its own.
            sqlite3.Error: when a log that lost its name cannot be saved now.
        """
        if self._path is None:
            return
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            if self._identity is None:
                return  # The first write makes it.
            # Connections are kept: the file may come back with its disk.
            raise FileNotFoundError(errno.ENOENT, _GONE, self._path) from None
        identity = found.st_dev, found.st_ino
        if self._identity not in (None, identity):
            self._let_go()
        elif self._keeper is not None and not self._is_log_in_place():
            self._leave_log(self._keeper)
        check_beside(self._path)
        self._identity = identity

    def note(self) -> None:
        """Note the log after a write, and keep it open; one that cannot be noted now is after the next."""
        if self._path is None:
            return
        with suppress(sqlite3.Error, OSError):
            if self._keeper is None:
                self._keeper = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            if self._log_identity is None:
                self._keeper.execute("SELECT count(*) FROM sqlite_master").fetchone()
            found = os.stat(self._log)
            self._log_identity, self._log_bytes = (found.st_dev, found.st_ino), found.st_size

    def close(self) -> None:
        """Close the connection that is kept open."""
        keeper, self._keeper, self._log_identity = self._keeper, None, None
        if keeper is not None:
            keeper.close()

    def _let_go(self) -> None:
        self.close()
        self._engine.dispose()

    def _is_in_place(self) -> bool:
        return self._identity is not None and device_and_inode(str(self._path)) == self._identity

    def _is_log_in_place(self) -> bool:
        """Whether the log in use is the one at its path, and as long as it was."""
        try:
            found = os.stat(self._log)
        except FileNotFoundError:
            return self._log_identity is None
        if self._log_identity is None:
            return True
        return (found.st_dev, found.st_ino) == self._log_identity and found.st_size >= self._log_bytes

    def _leave_log(self, keeper: sqlite3.Connection) -> None:
        """Write the log in use, which lost its name, into the database, and begin a new one.

        A log that was cut short in its place has lost what was cut off: it is opened anew as it is.
        """
        try:
            found = os.stat(self._log)
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._log_identity:
            _save_log(keeper)
            if found is not None and found.st_size > 0:
                raise strange_log(Path(str(self._path)))
        self._let_go()


def _save_log(keeper: sqlite3.Connection) -> None:
    is_busy, pages, saved = keeper.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
    if is_busy or saved < pages:
        raise sqlite3.OperationalError("the log of the database is locked while it is saved")
