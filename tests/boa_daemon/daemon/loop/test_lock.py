"""The lock of a state folder says what is the matter: another daemon, or the disk."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.loop.lock import AlreadyRunning, Lock
from boa_daemon.errors import InputError


def failing(number: int) -> OSError:
    """Return the error of an errno."""
    return OSError(number, os.strerror(number))


def test_a_second_daemon_is_refused(tmp_path: Path) -> None:
    """It is told the process that has the lock."""
    first = Lock(tmp_path)
    first.take()
    with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"):
        Lock(tmp_path).take()
    first.give_back()
    second = Lock(tmp_path)
    second.take()
    second.give_back()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO, errno.ESTALE, errno.ENOTCONN])
def test_a_disk_that_cannot_lock_is_no_other_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """NFS without its lock service, a disk with errors: nobody is to stop another daemon for that."""

    def refuse(*_words: object) -> None:
        raise failing(number)

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match=os.strerror(number)) as found:
        Lock(tmp_path).take()
    assert found.value.errno == number


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Waiting does not cure it, another folder does."""

    def refuse(*_words: object) -> None:
        raise failing(number)

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(InputError, match="cannot be locked"):
        Lock(tmp_path).take()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_disk_that_takes_no_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_there: bool
) -> None:
    """A file that is there is locked all the same; without one the error is that of the disk."""
    if is_there:
        (tmp_path / "daemon.lock").touch()
    real = Path.open

    def refuse(path: Path, mode: str = "r", *words: Any, **more: Any) -> Any:
        if "a" in mode:
            raise failing(number)
        return real(path, mode, *words, **more)

    monkeypatch.setattr(Path, "open", refuse)
    if is_there:
        lock = Lock(tmp_path)
        lock.take()
        lock.give_back()
        return
    with pytest.raises(OSError, match=os.strerror(number)):
        Lock(tmp_path).take()
