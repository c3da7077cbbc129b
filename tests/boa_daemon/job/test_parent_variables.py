"""boa_daemon.job.parent_variables: a process without the variables of its job finds them at its parents."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from boa_daemon.job.leavings import temporary_folder
from boa_daemon.job.parent_variables import NOTE, missing_variables, note_variables

GIVEN = {"BOA_UNIT": "u", "BOA_JOB_ID": "job-1", "CUDA_VISIBLE_DEVICES": "3", "SECRET": "s", "PATH": "/job"}
OURS = {"BOA_UNIT": "u", "BOA_JOB_ID": "job-1", "CUDA_VISIBLE_DEVICES": "3"}
ASK = "import os; from boa_daemon import job; print(dict(os.environ))"


def a_proc(folder: Path, *, cmdline: bytes = b"", environ: bytes | None = b"") -> Path:
    """Return a /proc in which our parent is like this, and a child of process 1."""
    parent = folder / "proc" / str(os.getppid())
    parent.mkdir(parents=True)
    (parent / "cmdline").write_bytes(cmdline)
    if environ is not None:
        (parent / "environ").write_bytes(environ)
    return folder / "proc"


@pytest.mark.parametrize("between", ["{}", "sh -c '{}; true'", "env -u X sh -c '{} | cat'"])
def test_variables_come_from_the_nearest_parent_that_has_them(between: str) -> None:
    """The job's own ones alone: what else was cleaned away stays away."""
    words = f'env -i PYTHONPATH={Path(__file__).parents[3]} {sys.executable} -c "{ASK}"'
    done = subprocess.run(
        ["bash", "-c", between.format(words) + "; true"],
        env={**os.environ, **GIVEN, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )

    found = eval(done.stdout)
    assert {name: found.get(name) for name in OURS} == OURS
    assert not found.keys() & {"SECRET", "PATH", "HOME"}
    assert "without the variables of its job" in done.stderr


def test_a_process_with_variables_of_its_own_takes_none(tmp_path: Path) -> None:
    """Whoever has the name of a unit has all of them."""
    proc = a_proc(tmp_path, environ=b"BOA_UNIT=u\0BOA_JOB_ID=job-1\0")

    assert missing_variables({"BOA_UNIT": "other"}, proc=proc) == {}
    assert missing_variables({"BOA_JOB_ID": "mine"}, proc=proc) == {"BOA_UNIT": "u"}


def test_an_errand_of_the_keeper_takes_none_and_writes_no_note_of_a_training(tmp_path: Path) -> None:
    """A job may have put a pipe where the note goes, on which the last upload would wait for ever."""
    own = tmp_path / "n0"
    own.mkdir()
    os.mkfifo(own / "early-0.json")
    given = {**os.environ, **GIVEN, "BOA_PROGRESS_FILE": str(tmp_path / "progress.json")}
    words = f'env -i BOA_ERRAND=u PYTHONPATH={Path(__file__).parents[3]} {sys.executable} -c "{ASK}"'
    done = subprocess.run(
        ["bash", "-c", f"{words}; true"],
        env={**given, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert "BOA_UNIT" not in eval(done.stdout)
    assert done.stderr == ""


def test_the_keepers_note_serves_where_no_parent_has_them(tmp_path: Path) -> None:
    """`exec env -i python train.py`: the only parent is the keeper, whose environment is not the job's."""
    place = temporary_folder(tmp_path)
    place.mkdir(mode=0o700)
    try:
        note_variables(place, GIVEN)
        keeper = b"python\0-m\0boa_daemon.job.keeper\0" + os.fsencode(tmp_path) + b"\0"
        assert missing_variables({}, proc=a_proc(tmp_path / "a", cmdline=keeper)) == OURS
        other = keeper.replace(b"boa_daemon.job.keeper", b"other")
        assert missing_variables({}, proc=a_proc(tmp_path / "b", cmdline=other)) == {}
    finally:
        (place / NOTE).unlink()
        place.rmdir()


@pytest.mark.parametrize("cmdline", [b"", b"\0", b"\0\0", b"boa_daemon.job.keeper\0", b"\xff\0\xfe\0"])
@pytest.mark.parametrize("environ", [b"", b"\0\0", b"=\0A", b"\xff=\xfe\0", None])
def test_nothing_that_is_odd_raises(tmp_path: Path, cmdline: bytes, environ: bytes | None) -> None:
    """Parents are any programs; this runs while a script imports the package."""
    assert missing_variables({}, proc=a_proc(tmp_path, cmdline=cmdline, environ=environ)) == {}


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 100_000, '{"BOA_UNIT": 1}', "\x00"])
def test_a_note_that_a_job_has_changed_does_no_harm(tmp_path: Path, content: str) -> None:
    """The note lies in a folder of the job's."""
    place = temporary_folder(tmp_path)
    place.mkdir(mode=0o700)
    try:
        (place / NOTE).write_text(content)
        keeper = b"python\0-m\0boa_daemon.job.keeper\0" + os.fsencode(tmp_path) + b"\0"
        found = missing_variables({}, proc=a_proc(tmp_path / "a", cmdline=keeper))
        assert found in ({}, {"BOA_UNIT": "1"})
    finally:
        (place / NOTE).unlink()
        place.rmdir()
