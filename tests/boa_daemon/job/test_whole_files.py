"""A file is written whole or not at all."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from boa_daemon.job.whole_files import remove_torn, whole_file, write_whole


def test_a_file_keeps_its_permissions_and_a_link_its_target(tmp_path: Path) -> None:
    """A settings file of a dotfiles folder stays there, readable by whom it was."""
    target, link = tmp_path / "dotfiles.toml", tmp_path / "boa.toml"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink()
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", 0o640)


def test_a_new_file_gets_the_usual_permissions_or_those_named(tmp_path: Path) -> None:
    """0644 less the mask of the process; 0600 where it is asked for."""
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "a", b"1")
        write_whole(tmp_path / "b", b"1", mode=0o600)
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"] == [0o640, 0o600]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The content was written beside the file; the old one is untouched, and no half file stays."""
    file = tmp_path / "boa.toml"
    file.write_text("old")

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        write_whole(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["boa.toml"]


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    """A name such as /dev/stdout is written to; it does not become a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("durable", [True, False])
def test_a_reader_sees_the_old_content_until_the_block_ends(tmp_path: Path, *, durable: bool) -> None:
    """What raises inside leaves the old file; what a killed process left beside it is no hindrance."""
    file = tmp_path / "answers.json"
    file.write_text("old")
    with suppress(KeyboardInterrupt), whole_file(file, durable=durable) as half:
        half.write_text("half")
        raise KeyboardInterrupt
    half.write_text("left by a killed process")
    with whole_file(file, durable=durable) as aside:
        aside.write_text("new")
        assert file.read_text() == "old"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("answers.json", "new")]


def test_a_private_file_is_private_from_its_first_byte(tmp_path: Path) -> None:
    """Also where the process's mask would let others read it."""
    before = os.umask(0)
    try:
        with whole_file(tmp_path / "key", mode=0o600) as aside:
            assert aside.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def test_what_a_killed_process_was_writing_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """A copy of a database is as large as the database; what a living process writes stays."""
    gone = subprocess.run(
        ["/bin/sh", "-c", "echo $$"], capture_output=True, text=True, check=True
    ).stdout.strip()
    # In a container the next daemon may have the number of the one that was killed.
    torn = [f".a.sqlite.{gone}-1", f".a.sqlite.{gone}-1-journal", f".last_state.{os.getpid()}-12345"]
    others = [".a.sqlite.1-2", "a.sqlite", ".lock", ".a-1", f"a.{gone}-1"]
    for name in (*torn, *others):
        (tmp_path / name).touch()
    is_written, is_done = threading.Event(), threading.Event()

    def write() -> None:
        with whole_file(tmp_path / "b"):
            is_written.set()
            is_done.wait(20.0)

    thread = threading.Thread(target=write)
    thread.start()
    assert is_written.wait(20.0)
    remove_torn(tmp_path)
    is_done.set()
    thread.join()
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "b"])
    remove_torn(tmp_path / "no folder")


@pytest.mark.parametrize(
    ("age_seconds", "is_left"), [(0.0, True), (599.0, True), (601.0, False), (-9.0, True)]
)
def test_a_fresh_part_may_be_that_of_a_process_in_another_container(
    tmp_path: Path, age_seconds: float, is_left: bool
) -> None:
    """Its number is not known here."""
    part = tmp_path / f".boa.sqlite.{2**22 + 1}-7"
    part.write_text("half")
    at = time.time() - age_seconds
    os.utime(part, (at, at))
    remove_torn(tmp_path, unless_of_last_seconds=600.0)
    assert part.exists() == is_left
