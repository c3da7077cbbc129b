"""The course of a unit: what one keeper notes and another reads, and the pipe that outlives both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engine_bench import until

from boa_daemon.job import course as courses
from boa_daemon.job.course import COURSE, Course, make_output, read_course, reopen_output, strays
from boa_daemon.job.processes import boot_id, carrying
from boa_daemon.job.seal import KEY_FILE
from boa_daemon.job.unit import Unit


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    """Return a unit whose generation has a key."""
    (tmp_path / "g1" / "n0").mkdir(parents=True)
    (tmp_path / "g1" / KEY_FILE).write_text("ab" * 32 + "\n")
    (tmp_path / "g1" / KEY_FILE).chmod(0o600)
    return Unit(
        name=f"u-{os.getpid()}-{tmp_path.name}",
        job="a",
        generation=1,
        rank=0,
        run="true",
        folder=tmp_path / "g1" / "n0",
        workdir=str(tmp_path),
        progress_file="",
        checkpoint_dir=str(tmp_path),
    )


def test_a_course_is_read_as_it_was_noted(unit: Unit) -> None:
    """With the state of a stop in it."""
    course = Course(child=42, ticks=7, boot=boot_id(), stop={"told": [1]}, stop_asked_at=1.5, status=256)
    course.write(unit.folder)
    assert read_course(unit.folder) == course


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"child": 1, "boot": ""}', '{"unit": "n0"}', "\0"])
def test_a_course_that_no_keeper_noted_does_not_count(unit: Unit, text: str) -> None:
    """It is missing, cut short, or without the seal of the generation."""
    assert read_course(unit.folder) is None
    (unit.folder / COURSE).write_text(text)
    assert read_course(unit.folder) is None


@pytest.mark.parametrize("change", [{"boot": "another"}, {"unknown": 1}])
def test_a_course_of_another_boot_or_version_does_not_count(
    unit: Unit, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """Its process ids mean nothing here."""
    monkeypatch.setattr(courses, "asdict", lambda course: {**vars(course), **change})
    Course(child=1, boot=boot_id()).write(unit.folder)
    assert read_course(unit.folder) is None


def test_a_writer_meets_no_closed_pipe(unit: Unit) -> None:
    """What it writes while nobody reads is there for the next reader."""
    reader, writer = make_output(unit, None, 0)
    with subprocess.Popen(["/bin/sh", "-c", "read x; echo late; read x"], stdin=-1, stdout=writer) as child:
        os.close(writer)
        os.close(reader)
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        again = reopen_output(unit.folder)
        assert again is not None
        assert os.read(again, 100) == b"late\n"
        child.stdin.close()
        assert os.read(again, 100) == b""
        os.close(again)
    assert child.returncode == 1


def test_a_file_system_without_named_pipes_gets_one_without_a_name(
    unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command runs; another keeper cannot find its output."""

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "mkfifo", refuse)
    reader, writer = make_output(unit, None, 0)
    os.write(writer, b"x")
    assert os.read(reader, 1) == b"x"
    assert reopen_output(unit.folder) is None
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("kind", ["marked", "of its session"])
def test_strays_are_found_by_variable_and_by_session(unit: Unit, kind: str) -> None:
    """A process may have cleared its variables, or have left the session."""
    marked = f"exec env -i {sys.executable} -c 'import time; time.sleep(600)'"
    run = "exec sleep 600" if kind == "marked" else f"({marked}) & {marked}"
    variables = {**os.environ, "BOA_UNIT": unit.name}
    with subprocess.Popen(["/bin/bash", "-c", run], env=variables, start_new_session=True) as child:
        try:
            wanted = 1 if kind == "marked" else 2
            course = Course(child=0 if kind == "marked" else child.pid, boot=boot_id())
            until(lambda: len(strays(unit, course)) == wanted)
            assert child.pid in strays(unit, course)
            # Each has the variable until its shell has become `env -i`.
            until(lambda: kind == "marked" or not carrying(f"BOA_UNIT={unit.name}"))
            assert len(strays(unit, course)) == wanted
        finally:
            os.killpg(child.pid, 9)
