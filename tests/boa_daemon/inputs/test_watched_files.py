"""`inputs/watched_files.py`: a file of people is read again when it changes, and a broken one is not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from boa_daemon.inputs.watched_files import WatchedFiles


def test_a_changed_file_is_read_once_and_a_broken_one_leaves_the_last_good_value(tmp_path: Path) -> None:
    """Renamed into place, rewritten, cut short, deleted, and put back."""
    file, read = tmp_path / "number", []

    def number() -> int:
        read.append(1)
        return int(file.read_text())

    file.write_text("1")
    watched = WatchedFiles([file], number)
    assert [watched.get() for _ in range(3)] == [1, 1, 1]
    assert len(read) == 1
    (tmp_path / "new").write_text("2")
    os.replace(tmp_path / "new", file)
    assert (watched.get(), watched.fault) == (2, "")
    file.write_text("twelve")
    assert watched.get() == 2
    assert "cannot be used" in watched.fault
    file.unlink()
    assert watched.get() == 2
    assert str(file) in watched.fault
    file.write_text("31")
    assert (watched.get(), watched.fault) == (31, "")


def test_the_first_value_must_be_good(tmp_path: Path) -> None:
    """A start with a wrong file fails, as it always did."""
    with pytest.raises(OSError, match="missing"):
        WatchedFiles([tmp_path / "missing"], (tmp_path / "missing").read_text)
