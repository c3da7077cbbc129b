"""The state folder: what is wrong with it, and whether that passes by itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from boa_daemon.daemon.settings.daemon_paths import make_folder
from boa_daemon.errors import InputError


@pytest.mark.parametrize(
    "name",
    [
        "ENOSPC", "EDQUOT", "EIO", "ESTALE", "ENOTCONN", "ENODEV", "ENXIO", "ETIMEDOUT", "EHOSTUNREACH",
        "EBUSY", "EAGAIN", "EMFILE", "ENFILE", "ENOMEM",
    ],
)  # fmt: skip
def test_trouble_that_passes_is_no_mistake_in_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A full disk, a mount of NFS or FUSE whose server is away: the daemon tries again."""
    number = getattr(errno, name)

    def refuse(*_words: object, **_more: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OSError, match=os.strerror(number)):
        make_folder(tmp_path)


@pytest.mark.parametrize("name", ["EACCES", "EPERM", "ENOTDIR", "EEXIST", "ENAMETOOLONG", "ELOOP", "EROFS"])
def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What only another setting cures is an error in the settings."""
    number = getattr(errno, name)

    def refuse(*_words: object, **_more: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(InputError, match="state_dir"):
        make_folder(tmp_path)
