"""`job/unit.py`: a unit's files, whom to believe, and its status."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.job import unit as module
from boa_daemon.job.checkpoint import Checkpoint
from boa_daemon.job.failures import FILE_NAME
from boa_daemon.job.logs import LogWriter
from boa_daemon.job.seal import KEY_FILE, is_sealed
from boa_daemon.job.unit import (
    KEPT,
    MOST_ROW,
    Unit,
    keep_room,
    keepers_of,
    kept_checkpoints,
    lost_end,
    read_json,
    read_own,
    sealed_document,
    status_of,
    told_status,
    write_in_room,
    write_json,
)

ROW = {"generation": 1, "step": 5, "sha256": "ab", "path": "g1/5"}


def a_unit(folder: Path, **changes: Any) -> Unit:
    """Write a unit, and return it; it has a folder of its own for what its command writes."""
    made = Unit(
        name="u", job="a", generation=1, rank=0, run="true", folder=folder / "g1" / "n0", workdir=str(folder),
        progress_file=str(folder / "g1" / "own" / "progress.json"), checkpoint_dir=str(folder / "checkpoint"),
        **changes,
    )  # fmt: skip
    made.write()
    made.own.mkdir(parents=True)
    return made


def with_key(unit: Unit, key: str = "k") -> Unit:
    """Give a unit's generation a key."""
    (unit.folder.parent / KEY_FILE).write_text(key)
    return unit


def test_a_unit_comes_back_from_its_file(tmp_path: Path) -> None:
    """What its command writes is apart from its keeper's folder."""
    unit = a_unit(tmp_path, environment={"A": "b"}, groups=[1, 2], artifacts=["*.txt"], waits="bring")
    assert Unit.read(unit.folder) == unit
    assert unit.own == tmp_path / "g1" / "own" / "n0"
    moved = tmp_path / "moved"
    unit.folder.rename(moved)
    assert Unit.read(moved).folder == moved


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        (None, []),
        ({}, []),
        ({"pid": 50, "ticks": 5}, [(50, 5)]),
        ({"pid": 50, "ticks": 5, "guard": 40, "guard_ticks": 4, "boot": "here"}, [(40, 4), (50, 5)]),
        ({"pid": 50, "ticks": 5, "boot": "before"}, []),
        *(({"pid": pid, "ticks": 5}, []) for pid in (0, 1, -1, 2**31, True, "50", None)),
        ({"pid": 50, "ticks": None}, []),
    ],
)
def test_keepers_are_processes_of_this_boot(
    kept: dict[str, Any] | None, found: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal to any other number would reach a stranger, or everybody."""
    monkeypatch.setattr(module, "boot_id", lambda: "here")
    assert keepers_of(kept) == found


def test_only_what_the_keeper_of_this_unit_wrote_is_its_own(tmp_path: Path) -> None:
    """With a key, a document needs its seal and its name; without one anybody's is believed."""
    unit = a_unit(tmp_path)
    write_json(unit.folder / "exit.json", {"code": 0})
    assert read_own(unit.folder, "exit.json") == {"code": 0}
    assert read_own(unit.folder, "none.json") is None
    with_key(unit)
    assert read_own(unit.folder, "exit.json") is None
    document = sealed_document(unit.folder, {"code": 1})
    write_json(unit.folder / "exit.json", document)
    assert read_own(unit.folder, "exit.json") == {"code": 1}
    for forged in (document | {"code": 0}, document | {"unit": "n1"}):
        write_json(unit.folder / "exit.json", forged)
        assert read_own(unit.folder, "exit.json") is None
    other = unit.folder.parent / "n1"
    other.mkdir()
    write_json(other / "exit.json", document)
    assert read_own(other, "exit.json") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null", "[" * 100_000, '"x"'])
def test_a_document_is_an_object_or_none(text: str, tmp_path: Path) -> None:
    """Nor is a folder, a pipe, a missing file or one that is too large."""
    file = tmp_path / "x.json"
    file.write_text(text)
    assert read_json(file) is None
    file.write_text('{"a": 1}')
    assert read_json(file) == {"a": 1}
    file.write_text("{}")
    assert read_json(file) == {}
    assert read_json(file, most_bytes=1) is None
    os.mkfifo(tmp_path / "pipe")
    assert [read_json(tmp_path / name) for name in ("none", "", "pipe")] == [None] * 3


def test_a_document_that_cannot_be_read_now_is_told_where_it_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without descriptors it may be there all the same; one that is not there is none."""

    def refuse(number: int) -> Any:
        def read(*_: object, **__: object) -> bytes:
            raise OSError(number, "no")

        return read

    for number, is_told in (
        (errno.EMFILE, True),
        (errno.EIO, True),
        (errno.ENOENT, False),
        (errno.EACCES, False),
    ):
        monkeypatch.setattr(module, "read_regular", refuse(number))
        assert read_json("x") is None
        if is_told:
            with pytest.raises(OSError, match="no"):
                read_json("x", must_be_read=True)
        else:
            assert read_json("x", must_be_read=True) is None


def test_the_end_is_written_into_space_that_was_kept_for_it(tmp_path: Path) -> None:
    """It is as long as it is, and no space stays behind; without any it is written as usual."""
    file = tmp_path / "exit.json"
    keep_room(file)
    room = tmp_path / ".exit.json.room"
    assert room.stat().st_size == module.ROOM_BYTES
    keep_room(file)
    for document in ({"code": 0, "long": "x" * 99}, {"code": 1}):
        write_in_room(file, document)
        assert json.loads(file.read_text()) == document
        assert os.listdir(tmp_path) == ["exit.json"]
    keep_room(tmp_path / "none" / "x")


def test_uploaded_checkpoints_are_rows_with_all_their_fields(tmp_path: Path) -> None:
    """The job can write there: what is malformed or too long is left out."""
    unit = a_unit(tmp_path)
    assert kept_checkpoints(unit) == []
    bad = [5, None, {"generation": 1}, {**ROW, "path": "x" * MOST_ROW}]
    for kept, found in (([ROW, *bad, ROW], [ROW, ROW]), ({"a": 1}, []), (None, [])):
        write_json(unit.own / KEPT, {"kept": kept})
        assert kept_checkpoints(unit) == found


@pytest.mark.parametrize(
    ("health", "faults"),
    [
        (None, []),
        ({}, []),
        ({"faults": "x"}, []),
        ({"faults": ["f" * 300, 5] + ["x"] * 9}, ["f" * 200, "5"] + ["x"] * 6),
    ],
)
def test_faults_of_the_node_are_few_and_short(
    health: dict[str, Any] | None, faults: list[str], tmp_path: Path
) -> None:
    """Whatever is in the file."""
    if health is not None:
        write_json(tmp_path / "health.json", health)
    assert module.node_faults(tmp_path) == faults


@pytest.fixture
def lives(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether the keeper lives, as a list that a test changes; a checkpoint is known."""
    now = [True]
    monkeypatch.setattr(module, "is_kept", lambda kept: kept is not None and now[0])

    def newest(folder: Path) -> tuple[Checkpoint, str]:
        path = folder.resolve() / "g1" / "5"
        return Checkpoint(generation=1, step=5, sha256="ab", path=path), "a newer one is torn"

    monkeypatch.setattr(module, "newest_checkpoint", newest)
    return now


def test_a_running_unit_tells_progress_and_nothing_of_an_end(tmp_path: Path, lives: list[bool]) -> None:
    """Its checkpoint is verified only on request, as that takes a while."""
    unit = a_unit(tmp_path)
    write_json(unit.folder / "keeper.json", {"pid": 50})
    write_json(Path(unit.progress_file), {"step": 7})
    (unit.own / FILE_NAME).write_text('{"message": "E: x"}')
    found = status_of(unit.folder, verify=False)
    assert (found["is_kept"], found["was_kept"], found["exit"], found["progress"]) == (
        True,
        True,
        None,
        {"step": 7},
    )
    assert (found["manifest"], found["failure"], found["last_lines"]) == (None, None, [])
    assert status_of(unit.folder, verify=True)["manifest"] == ROW


def test_a_unit_that_has_ended_tells_why_and_where_its_work_is(tmp_path: Path, lives: list[bool]) -> None:
    """Also while its end is being written down; the note at the start is not output of the command."""
    unit = a_unit(tmp_path, note="n" * 600)
    (unit.own / FILE_NAME).write_text('{"message": "E: x"}')
    log = LogWriter(unit.folder, 4096)
    log.write_line(f"boa: {unit.note}")
    log.write_line("boa: other")
    log.close()
    lives[0] = False
    lost = status_of(unit.folder, verify=False)
    assert (lost["was_kept"], lost["failure"]["said"], lost["last_lines"]) == (False, "E: x", ["boa: other"])
    assert (lost["manifest"], lost["wrong_manifest"]) == (None, "")
    write_json(unit.folder / "ending.json", {"code": 1})
    ended = status_of(unit.folder, verify=False)
    assert (ended["exit"], ended["manifest"], ended["wrong_manifest"]) == (
        {"code": 1},
        ROW,
        "a newer one is torn",
    )
    write_json(unit.folder / "exit.json", {"code": 0, "manifest": None, "wrong_manifest": "w"})
    noted = status_of(unit.folder, verify=True)
    assert (noted["exit"], noted["manifest"], noted["wrong_manifest"]) == ({"code": 0}, None, "w")


def test_a_unit_that_uploads_counts_what_was_uploaded_alone(tmp_path: Path, lives: list[bool]) -> None:
    """Its local copy may be a part of a checkpoint of many nodes; the newest four are told."""
    unit = a_unit(tmp_path, keep="upload")
    write_json(unit.folder / "exit.json", {"code": 0})
    rows = [{**ROW, "step": step} for step in range(9, 0, -1)]
    write_json(unit.own / KEPT, {"kept": rows})
    found = status_of(unit.folder, verify=True)
    assert (found["manifest"], found["kept"]) == (None, rows[:4])


def test_a_status_for_readers_elsewhere_is_sealed(tmp_path: Path, lives: list[bool]) -> None:
    """A lost unit's end has every field that a keeper's has."""
    unit = with_key(a_unit(tmp_path))
    found = told_status(unit.folder, verify=False)
    assert is_sealed(found, "k")
    assert not is_sealed(found | {"rank": 1}, "k")
    end = lost_end(stop_asked=True, lingering=3)
    assert (end["agent_lost"], end["stop_asked"], end["lingering"], end["code"], end["is_done"]) == (
        True,
        True,
        3,
        None,
        False,
    )
