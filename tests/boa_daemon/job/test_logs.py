"""`job/logs.py`: a log of limited size whose readers keep their place."""

from __future__ import annotations

import errno
import os
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import binary, lists

from boa_daemon.job import logs
from boa_daemon.job.logs import SEGMENTS, LogWriter, last_lines, quiet_seconds, read_log, trim_rank_files

LIMIT = 4096
SEGMENT = LIMIT // SEGMENTS


def written(folder: Path, *blocks: bytes) -> Path:
    """Write blocks to a log, each by a writer that begins anew."""
    for block in blocks:
        writer = LogWriter(folder, LIMIT)
        writer.write(block)
        writer.close()
    return folder


@given(lists(binary(max_size=700), max_size=12))
def test_every_byte_keeps_its_offset_while_the_oldest_go(blocks: list[bytes]) -> None:
    """At most five segments stay; what is gone is counted, and what stays is whole."""
    import tempfile

    whole = b"".join(blocks)
    with tempfile.TemporaryDirectory() as name:
        folder, writer = Path(name), LogWriter(Path(name), LIMIT)
        for block in blocks:
            writer.write(block)
        writer.close()
        found, end, gone = read_log(folder, 0)
        assert (found, end, gone) == (whole[gone:], len(whole), len(whole) - len(found))
        assert len(os.listdir(folder)) <= SEGMENTS + 1
        assert gone == 0 or len(found) >= LIMIT - 700
        # A reader that has read some goes on from there, in pieces of any length.
        at, rest = gone + len(found) // 2, b""
        while piece := read_log(folder, at, 100)[0]:
            rest, at = rest + piece, at + len(piece)
        assert rest == found[len(found) // 2 :]


def test_a_writer_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    """A keeper that was killed is followed by another one."""
    written(tmp_path, b"a" * SEGMENT, b"b" * 10, b"c" * 10)
    assert read_log(tmp_path, 0) == (b"a" * SEGMENT + b"b" * 10 + b"c" * 10, SEGMENT + 20, 0)
    assert read_log(tmp_path, SEGMENT + 5, 8) == (b"b" * 5 + b"c" * 3, SEGMENT + 13, 0)
    assert read_log(tmp_path, 10**6) == (b"", 10**6, 0)


def test_a_segment_is_full_at_a_quarter_of_the_limit(tmp_path: Path) -> None:
    """A block is never cut; with a small limit it is a kilobyte."""
    writer = LogWriter(tmp_path, LIMIT)
    for block in (b"x" * (SEGMENT - 1), b"y", b"z"):
        writer.write(block)
    writer.close()
    assert sorted(os.listdir(tmp_path)) == ["out-000000000000000.log", f"out-{SEGMENT:015d}.log"]
    small = LogWriter(tmp_path / ".", 1)
    assert small._segment_bytes == 1024


def test_lines_of_the_keeper_begin_at_the_begin_of_a_line(tmp_path: Path) -> None:
    """Also after a keeper that was killed within a line; names of files may be no text."""
    written(tmp_path, b"half")
    for _ in range(2):
        writer = LogWriter(tmp_path, LIMIT)
        writer.write_line("boa: x\udcff")
        writer.close()
    assert read_log(tmp_path, 0)[0] == b"half\nboa: x?\nboa: x?\n"


def test_what_is_in_a_pipe_is_moved_until_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel where it can, and by reading where it cannot."""
    for can_move in (True, False):
        if not can_move:
            monkeypatch.delattr(os, "splice")
        folder = tmp_path / str(can_move)
        folder.mkdir()
        read, write = os.pipe()
        writer = LogWriter(folder, LIMIT)
        os.write(write, b"some")
        assert writer.take(read)
        writer.write_line("boa: between")
        os.write(write, b"more\n")
        os.close(write)
        assert writer.take(read)
        assert not writer.take(read)
        writer.write_line("boa: last")
        writer.close()
        os.close(read)
        assert read_log(folder, 0)[0] == b"some\nboa: between\nmore\nboa: last\n"


def test_on_a_full_disk_a_block_is_dropped_and_counted_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job never waits for its log, which goes on when there is space."""

    class Full(FileIO):
        def write(self, block: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    writer = LogWriter(tmp_path, LIMIT)
    writer.write(b"one\n")
    with monkeypatch.context() as full:
        full.setattr(logs, "FileIO", Full)
        writer.close()
        writer._begins = -LIMIT
        writer.write(b"lost\n")
    writer.close()
    writer.write(b"two\n")
    writer.close()
    assert read_log(tmp_path, 0)[0] == b"one\ntwo\n"


def test_the_last_lines_are_cut_and_their_bytes_need_be_no_text(tmp_path: Path) -> None:
    """Twenty by default, of the newest 64 kilobytes."""
    assert last_lines(tmp_path) == ()
    written(tmp_path, b"".join(b"%d\n" % number for number in range(30)), b"\xff" + b"x" * 600)
    found = last_lines(tmp_path, 3)
    assert found[:2] == ("28", "29")
    assert (len(found[2]), found[2][0]) == (500, "\ufffd")
    assert len(last_lines(tmp_path)) == 20


def test_it_is_quiet_since_the_newest_segment_was_written(tmp_path: Path) -> None:
    """Before the start nothing is known; a clock that was set back makes no negative time."""
    assert quiet_seconds(tmp_path) is None
    now = logs.time.time()
    for begin, age in ((0, 500.0), (10, 100.0)):
        segment = tmp_path / f"out-{begin:015d}.log"
        segment.touch()
        os.utime(segment, (now - age, now - age))
    quiet = quiet_seconds(tmp_path)
    assert quiet is not None
    assert 100.0 <= quiet < 200.0
    os.utime(segment, (now + 999.0, now + 999.0))
    assert quiet_seconds(tmp_path) == 0.0


def test_old_parts_of_the_ranks_files_lose_their_space_and_not_their_size(tmp_path: Path) -> None:
    """A link to a file elsewhere is left."""
    ranks = tmp_path / "ranks" / "attempt_0" / "0"
    ranks.mkdir(parents=True)
    size = 6 << 20
    for name in ("stdout.log", "other.txt"):
        (ranks / name).write_bytes(b"x" * size)
    (tmp_path / "elsewhere.log").write_bytes(b"x" * size)
    (ranks / "stderr.log").symlink_to(tmp_path / "elsewhere.log")
    trim_rank_files(tmp_path, 1 << 20)
    held = {name: (ranks / name).stat().st_blocks * 512 for name in ("stdout.log", "other.txt", "stderr.log")}
    assert held["stdout.log"] <= 2 << 20 < held["other.txt"]
    assert held["stderr.log"] > 2 << 20
    assert (ranks / "stdout.log").stat().st_size == size
    assert (ranks / "stdout.log").read_bytes()[-(1 << 20) :] == b"x" * (1 << 20)
