"""Odd files that a job puts where a file is expected do not block their readers."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.engines.local_units import read_unit_status
from boa_daemon.inputs.message_validation import parse_unit_status
from boa_daemon.job.checkpoint import FENCE, MANIFEST, newest_checkpoint, read_fence
from boa_daemon.job.leavings import remove_trees
from boa_daemon.job.regular_files import (
    KeptOpen,
    device_and_inode,
    files_below,
    fits_its_disk,
    read_regular,
)
from boa_daemon.job.unit import KEPT, Unit, kept_checkpoints, read_json, status_of, write_json


def _a_socket(at: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(at))


def _a_long_file(at: Path) -> None:
    at.touch()
    os.truncate(at, 2**40)


TRAPS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device without an end": lambda at: at.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a socket": _a_socket,
    "a link to itself": lambda at: at.symlink_to(at),
    "a file without an end": _a_long_file,
}


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    """A unit with its own folders."""
    return a_unit(tmp_path)


def a_unit(tmp_path: Path) -> Unit:
    """Return a unit that has ended, with its folders."""
    folder = tmp_path / "n0"
    for each in (folder, tmp_path / "own" / "n0", tmp_path / "work", tmp_path / "checkpoint"):
        each.mkdir(parents=True)
    end = {"code": 1, "stop_asked": False, "killed": False, "out_of_memory": False, "is_done": False}
    write_json(folder / "exit.json", {**end, "lacks_result": False, "unit": folder.name})
    made = Unit(
        name="boa-a",
        job="a",
        generation=1,
        rank=0,
        run="true",
        folder=folder,
        workdir=str(tmp_path / "work"),
        progress_file=str(tmp_path / "own" / "progress.json"),
        checkpoint_dir=str(tmp_path / "checkpoint"),
    )
    made.write()
    return made


def files_of(unit: Unit) -> dict[str, Path]:
    """Return the files that the job writes and other programs read."""
    checkpoints = Path(unit.checkpoint_dir)
    return {
        "progress": Path(unit.progress_file),
        "exception": unit.own / "error.json",
        "note of checkpoints": unit.own / KEPT,
        "manifest": checkpoints / MANIFEST,
        "fence": checkpoints / FENCE,
    }


@pytest.mark.parametrize("trap", TRAPS)
def test_odd_files_of_a_job_are_ignored_without_blocking(unit: Unit, trap: str) -> None:
    """The status leaves them out, and the unit's end is still read."""
    checkpoints = Path(unit.checkpoint_dir)
    for file in files_of(unit).values():
        TRAPS[trap](file)
    said = status_of(unit.folder, verify=True)
    assert (said["progress"], said["failure"], said["kept"], said["manifest"]) == (None, None, [], None)
    assert MANIFEST in said["wrong_manifest"]
    assert read_fence(checkpoints) == 0
    seen = read_unit_status(unit.folder, 0)
    assert seen is not None
    assert seen["exit"]["code"] == 1


@pytest.mark.parametrize("trap", ["a pipe", "a device without an end", "a folder", "a socket"])
def test_a_checkpoint_that_is_no_regular_file_does_not_count(tmp_path: Path, trap: str) -> None:
    """Its digest is not computed without end, and the problem names the file."""
    TRAPS[trap](tmp_path / "c.ckpt")
    manifest = {"generation": 1, "step": 2, "sha256": "0" * 64, "path": "c.ckpt"}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    found, wrong = newest_checkpoint(tmp_path)
    assert found is None
    assert "c.ckpt" in wrong


@pytest.mark.parametrize("size", [0, 1, 99, 100])
def test_a_file_is_read_completely_up_to_its_limit(tmp_path: Path, size: int) -> None:
    """One byte more than the limit is an error."""
    file = tmp_path / "f"
    file.write_bytes(b"x" * size)
    assert read_regular(file, most_bytes=max(size, 1)) == b"x" * size
    file.write_bytes(b"x" * (size + 1))
    if size:
        with pytest.raises(OSError, match="holds more than"):
            read_regular(file, most_bytes=size)


@pytest.mark.parametrize(
    "text", ["[]", "5", '{"kept": 5}', '{"kept": "abcd"}', '{"kept": [5, {}, {"step": 1}]}', "{"]
)
def test_a_malformed_note_of_checkpoints_names_none(unit: Unit, text: str) -> None:
    """The job's user can write the note."""
    (unit.own / KEPT).write_text(text)
    assert kept_checkpoints(unit) == []
    assert status_of(unit.folder, verify=False)["kept"] == []


def test_a_json_file_nested_too_deeply_counts_as_missing(tmp_path: Path) -> None:
    """A hundred thousand brackets raise no error."""
    (tmp_path / "f").write_text("[" * 100_000)
    assert read_json(tmp_path / "f") is None


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([10**400, "\0"]),
)
KEYS = "generation step samples seconds at node sha256 path files kept message extraInfo kinds errno"
NAMES = st.sampled_from(KEYS.split())
DOCUMENTS = st.sampled_from(["progress", "exception", "note of checkpoints", "manifest"])
THINGS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=8,
)


@settings(max_examples=sampled(500), deadline=None)
@given(written=st.dictionaries(DOCUMENTS, THINGS))
def test_no_files_of_a_job_keep_its_end_from_being_read(
    written: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Invalid parts of the status are left out."""
    unit = a_unit(tmp_path_factory.mktemp("odd"))
    for name, thing in written.items():
        files_of(unit)[name].write_text(json.dumps(thing))
    word = json.loads(json.dumps(status_of(unit.folder, verify=True)))
    heard = parse_unit_status(word, "test")
    assert heard is not None
    assert heard["exit"]["code"] == 1


def test_files_below_are_those_of_a_recursive_walk_and_links_are_not_followed(tmp_path: Path) -> None:
    """Deeper than Python's stack too, as far as a path can name it."""
    for name in ("b/c/2", "a/1", "3"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "up").symlink_to("..")
    os.mkfifo(tmp_path / "b" / "pipe")
    walked = {Path(top) / name for top, _, names in os.walk(tmp_path) for name in names}
    assert set(files_below(tmp_path)) == walked | {tmp_path / "b" / "up"}
    assert list(files_below(tmp_path / "none")) == []

    deep = tmp_path / "deep"
    deep.mkdir()
    at = os.open(deep, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    try:
        assert [file.name for file in files_below(deep)] == ["file"]
    finally:
        remove_trees(deep)


def test_a_file_larger_than_its_disk_is_known(tmp_path: Path) -> None:
    """It can only have holes, and reading it would take for ever."""
    found = os.statvfs(tmp_path)
    assert fits_its_disk(0, tmp_path)
    assert fits_its_disk(found.f_blocks * found.f_frsize, tmp_path)
    assert not fits_its_disk(found.f_blocks * found.f_frsize + 1, tmp_path)


def test_a_file_that_is_kept_open_is_never_taken_for_another(tmp_path: Path) -> None:
    """A script that closes all descriptors opens its data under the numbers that the helper had."""
    mine, other = KeptOpen(str(tmp_path / "mine"), os.O_WRONLY), tmp_path / "other"
    number = mine.descriptor()
    assert mine.descriptor() == number
    os.close(number)
    data = os.open(other, os.O_WRONLY | os.O_CREAT)
    assert data == number
    os.pwrite(mine.descriptor(), b"x", 0)
    assert (tmp_path / "mine").read_bytes() == b"x"
    assert other.read_bytes() == b""
    os.close(mine.descriptor())
    assert mine.descriptor() >= 0
    os.close(data)
    os.close(mine.descriptor())


def test_a_file_is_told_from_another_one_at_its_path(tmp_path: Path) -> None:
    """Written again it is the same one; replaced it is another, also under a link; gone it is none."""
    file, link, other = tmp_path / "file", tmp_path / "link", tmp_path / "other"
    assert device_and_inode(file) is None
    file.write_text("a")
    link.symlink_to(file)
    before = device_and_inode(file)
    file.write_text("b")
    assert before is not None
    assert device_and_inode(file) == device_and_inode(str(link)) == before
    other.write_text("c")
    other.replace(file)
    assert device_and_inode(file) != before
    assert device_and_inode(file / "below") is None
