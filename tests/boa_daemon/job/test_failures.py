"""`job/failures.py`: the exception that ended a script, as every later reader finds it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.job import failures
from boa_daemon.job.failures import (
    ERROR_FILE,
    FILE_NAME,
    MOST_TEXT,
    full_disk,
    read_failure,
    record_exceptions,
)


class PeerLost(RuntimeError):
    """Another process failed."""


@pytest.fixture
def raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[BaseException], dict[str, Any] | None]:
    """Return what ends a script of a job by an exception, and reads what is recorded."""
    monkeypatch.setenv("BOA_JOB_ID", "a")
    monkeypatch.setenv(ERROR_FILE, str(tmp_path / FILE_NAME))

    def end(error: BaseException) -> dict[str, Any] | None:
        monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
        record_exceptions()
        sys.excepthook(type(error), error, None)
        assert os.listdir(tmp_path) == [FILE_NAME]
        return read_failure(tmp_path)

    return end


def test_an_exception_is_recorded_with_its_classes_and_errno(
    raised: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """And printed as Python prints it."""
    found = raised(FileNotFoundError(2, "No such file", "x"))
    assert found is not None
    assert found["kinds"][:3] == ["FileNotFoundError", "OSError", "Exception"]
    assert found["said"] == "FileNotFoundError: [Errno 2] No such file: 'x'"
    assert (found["errno"], found["at"] > 1.7e9) == (2, True)
    assert capsys.readouterr().err == "FileNotFoundError: [Errno 2] No such file: 'x'\n"


def test_the_errno_may_be_that_of_the_cause(raised: Any) -> None:
    """A framework wraps what the system said; without one there is none."""
    wrapped = RuntimeError("no checkpoint")
    wrapped.__cause__ = OSError(28, "No space left on device")
    assert raised(wrapped)["errno"] == 28


def test_the_first_exception_stays_unless_it_was_only_a_lost_peer(raised: Any) -> None:
    """Processes of one unit fail one after the other, and the cause may be the last."""
    assert raised(PeerLost("rank 1"))["errno"] is None
    assert raised(PeerLost("rank 2"))["said"] == "PeerLost: rank 1"
    assert raised(ValueError("the cause"))["said"] == "ValueError: the cause"
    assert raised(KeyError("later"))["said"] == "ValueError: the cause"
    assert raised(PeerLost("rank 3"))["said"] == "ValueError: the cause"


def test_a_hook_of_the_script_is_called_in_place_of_the_print(
    raised: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What it does is its own affair."""
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: seen.append(kind))
    record_exceptions()
    sys.excepthook(ValueError, ValueError("x"), None)
    assert (seen, capsys.readouterr().err, read_failure(tmp_path) is not None) == ([ValueError], "", True)


def test_outside_a_job_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may be tried at a desk; in a job without a file it is printed alone."""
    monkeypatch.delenv("BOA_JOB_ID", raising=False)
    monkeypatch.setattr(sys, "excepthook", before := sys.__excepthook__)
    record_exceptions()
    assert sys.excepthook is before
    monkeypatch.setenv("BOA_JOB_ID", "a")
    monkeypatch.setenv(ERROR_FILE, "/nowhere/error.json")
    record_exceptions()
    sys.excepthook(ValueError, ValueError("x"), None)


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        ({"message": "OSError: full"}, (["OSError"], None, "OSError: full", None)),
        ({"message": {"message": "E: x", "extraInfo": {"timestamp": "5"}}}, (["E"], None, "E: x", 5.0)),
        ({"message": {"message": "E: x", "extraInfo": None}}, (["E"], None, "E: x", None)),
        (
            {
                "message": {
                    "message": "x" * 999,
                    "extraInfo": {"kinds": ["k" * 200] * 30, "errno": "5", "at": 7},
                }
            },
            (["k" * 100] * 20, None, "x" * MOST_TEXT, 7.0),
        ),
        (
            {"message": {"message": "E", "extraInfo": {"at": 7, "timestamp": 8, "errno": 3}}},
            (["E"], 3, "E", 7.0),
        ),
    ],
)
def test_torchruns_own_file_is_read_and_long_texts_are_cut(
    document: object, wanted: tuple[object, ...], tmp_path: Path
) -> None:
    """It has other fields than ours, and the job may write it as it likes."""
    (tmp_path / FILE_NAME).write_text(json.dumps(document))
    found = read_failure(tmp_path)
    assert found is not None
    assert (found["kinds"], found["errno"], found["said"], found["at"]) == wanted


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "5", "{}", "[" * 100_000, '{"message": null}', '{"message": {}}'),
        '{"message": {"message": "x", "extraInfo": 5}}',
        '{"message": {"message": "x", "extraInfo": {"at": "soon"}}}',
    ],
)
def test_a_file_that_is_no_such_document_is_none(text: str, tmp_path: Path) -> None:
    """Neither is a missing one, or a pipe."""
    (tmp_path / FILE_NAME).write_text(text)
    assert read_failure(tmp_path) is None
    assert read_failure(tmp_path / "none") is None
    os.mkfifo(tmp_path / "pipe")
    assert read_failure(tmp_path, "pipe") is None


def test_a_disk_is_full_when_users_have_no_block_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept for root does not count; a folder that is gone says nothing."""
    free = {"/a": SimpleNamespace(f_bavail=1, f_bfree=9), "/b": SimpleNamespace(f_bavail=0, f_bfree=9)}

    def statvfs(folder: str) -> Any:
        if folder not in free:
            raise FileNotFoundError(folder)
        return free[folder]

    monkeypatch.setattr(failures.os, "statvfs", statvfs)
    assert [full_disk(*folders) for folders in (("/a",), ("/gone",), (), ("/gone", "/a", "/b"))] == [
        False,
        False,
        False,
        True,
    ]
