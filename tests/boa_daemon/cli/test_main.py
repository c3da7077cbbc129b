"""The entry point: exit codes, one sentence for a known error, and `python -m boa_daemon`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import boa_daemon.cli
from boa_daemon import __version__
from boa_daemon.cli import main

PROBLEM = """
budget: {gpus: 6}
classes:
- name: vision
  arrivals_per_hour: 2.0
  phases: [{size_gpu_hours: 1.0, speedup: {table: {1: 1.0, 2: 1.8, 4: 3.0}}}]
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the program and gives its exit code and both streams."""

    def program(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["boa", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        streams = capsys.readouterr()
        return int(end.value.code or 0), streams.out, streams.err

    return program


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """Write a problem whose least budget is 2 GPUs."""
    (tmp_path / "problem.yaml").write_text(PROBLEM)
    return tmp_path / "problem.yaml"


def test_success_exits_with_0_and_prints_one_document(run: Run, problem: Path) -> None:
    """Standard error is empty."""
    code, out, err = run("solve", problem, "--json")

    assert (code, err) == (0, "")
    assert json.loads(out)["status"] == "optimal"
    assert len(out.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["solve", "{file}", "--budget", "1"], 3, "InfeasibleBudget: "),
        (["plan", "--classes", "{file}", "--budget", "1"], 3, "InfeasibleBudget: 1 GPUs is too small"),
        (["frontier", "{file}", "--budgets", "1"], 3, ""),
        (["solve", "{file}", "--budget", "soon"], 2, "InputError: --budget 'soon' has no unit"),
        (["solve", "{file}.gone"], 2, "InputError: {file}.gone: there is no such file"),
        (["frontier", "{file}", "--plot", "a.bmp"], 2, "InputError: --plot a.bmp: .bmp is no picture"),
        (["solve"], 2, "Missing argument"),
        (["slove"], 2, "No such command"),
        (["plan"], 2, "InputError: nothing to plan"),
    ],
)
def test_errors_have_their_exit_codes(
    run: Run, problem: Path, arguments: list[str], code: int, says: str
) -> None:
    """The message is on standard error, without a traceback."""
    got, _, err = run(*(word.format(file=problem) for word in arguments))

    assert got == code
    assert says.format(file=problem) in err
    assert "Traceback" not in err


def test_brackets_in_a_message_are_not_read_as_markup(run: Run, problem: Path) -> None:
    """Text such as [red] is shown literally."""
    _, _, err = run("solve", problem, "--budget", "[red]5[/]")

    assert "'[red]5[/]'" in err


def test_an_interrupted_command_exits_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shells expect this code of a program that got SIGINT."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(boa_daemon.cli, "app", interrupted)

    assert run()[0] == 130


def test_version_prints_the_version_and_no_command_prints_help(run: Run) -> None:
    """The help lists the commands."""
    assert run("--version")[1] == f"boa {__version__}\n"
    code, out, err = run()
    assert code in (0, 2)
    assert "frontier" in out + err


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_closed_output_pipe_exits_with_0(problem: Path, form: list[str]) -> None:
    """The command `boa ... | head -1` prints no error, with tables and with JSON."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "boa_daemon", "solve", str(problem), "--budget", "4", *form],
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )

    assert (done.returncode, done.stderr) == (0, "")


NO_ROOM = (
    "--version",
    "--help",
    "catalog --help",
    "catalog",
    "catalog -o json",
    "catalog -o csv",
    "solve PROBLEM",
)


@pytest.mark.parametrize("words", NO_ROOM)
def test_an_answer_that_cannot_be_written_fails_in_a_sentence(problem: Path, words: str) -> None:
    """As on a disk that is full: a file without an answer is no success, and a trace helps nobody."""
    code, said = with_full(problem, words, stdout=True)
    assert code == 1
    assert "OutputError: the answer could not be written to standard output: No space left" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("solve PROBLEM --budget 1 -o json", 1),
        ("solve --no-such -o json", 2),
        ("solve nothing.yaml -o json", 2),
    ],
)
def test_an_error_that_cannot_be_written_keeps_its_sentence(problem: Path, words: str, code: int) -> None:
    found, said = with_full(problem, words, stdout=True)
    assert found == code
    assert said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("catalog", 0),
        ("solve PROBLEM --budget 4", 0),
        ("solve PROBLEM --budget 1", 3),
        ("solve --no-such", 2),
    ],
)
def test_notes_that_cannot_be_written_change_nothing(problem: Path, words: str, code: int) -> None:
    """A full disk below standard error takes no answer and no exit code."""
    found, answer = with_full(problem, words, stdout=False)
    assert found == code
    assert bool(answer) is (code == 0)


@pytest.mark.parametrize("words", ["status", "submit a.yaml", "init -y", "config show", "doctor"])
def test_a_folder_that_is_gone_is_said(tmp_path: Path, words: str) -> None:
    """Somebody else has removed the folder of this shell."""
    folder = tmp_path / "gone"
    folder.mkdir()
    line = f"rmdir ../gone; exec {sys.executable} -m boa_daemon {words}"
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert ("is gone" in done.stderr) is (words == "status")


@pytest.mark.parametrize("backend", ["nonsense", "module://nowhere", "TkAgg", ""])
def test_a_plot_needs_no_display(problem: Path, backend: str) -> None:
    """A notebook or an old setting names a backend that is not here: pictures go into files."""
    picture = problem.parent / "curve.svg"
    words = ["frontier", str(problem), "--budgets", "4,5", "--plot", str(picture)]
    environment = {**os.environ, "MPLBACKEND": backend}
    command = [sys.executable, "-m", "boa_daemon", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert picture.stat().st_size > 1000


def with_full(problem: Path, words: str, *, stdout: bool) -> tuple[int, str]:
    """Run a command one of whose streams has no room; return its exit code and what the other one says."""
    command = [sys.executable, "-m", "boa_daemon", *words.replace("PROBLEM", str(problem)).split()]
    with open("/dev/full", "w") as full:
        streams = {"stdout": full, "stderr": subprocess.PIPE}
        if not stdout:
            streams = {"stdout": subprocess.PIPE, "stderr": full}
        done = subprocess.run(command, **streams, text=True, check=False, timeout=60)  # type: ignore[call-overload]
    return done.returncode, done.stderr if stdout else done.stdout


def test_python_m_boa_daemon_runs_boa(problem: Path) -> None:
    """The output is one JSON document, and the exit code is that of the command."""
    done = subprocess.run(
        [sys.executable, "-m", "boa_daemon", "solve", str(problem), "--budget", "1", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 3
    assert json.loads(done.stdout)["cheapest_feasible_spend"] == 2.0


@pytest.mark.first_set(3)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["for people", "for programs"])
def test_characters_that_an_output_lacks_end_no_command(
    tmp_path: Path, encoding: str, form: list[str]
) -> None:
    """A name in the file, and a terminal or a locale that has no such sign, or half of one."""
    file = tmp_path / "problem.yaml"
    file.write_text(PROBLEM.replace("vision", "İstanbul-✓-\U0001f600"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "boa_daemon", "solve", *form, str(file)],
        env={**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"stanbul" in done.stdout
    assert not form or json.loads(done.stdout.decode(encoding))["status"] == "optimal"
