"""Runs the commands in the docs and compares their output with the output recorded on the page.

In a ```console block a line that begins with ``$ boa`` is a command, continued after a backslash. The lines
below it are its output on a terminal of 100 columns; a command without output is not run. ``...`` stands for
text that varies, and on a line of its own for any lines. ``$ echo $?`` shows the exit code of the last
command. A block after ``<!-- file: NAME -->`` is a file that later commands of the page may read. The
commands of a page run in order in one folder with the folders of a checkout.

To record a wanted change of output: ``BOA_RECORD_DOCS=1 pytest tests/docs``, then read the difference.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from boa_daemon.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
IS_RECORDING = bool(os.environ.get("BOA_RECORD_DOCS"))
_FENCE = re.compile(
    r"^(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<kind>[a-z]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PROGRESS = re.compile(r"^\d+ of \d+ \w+, \d+ runs, ")
"""Said once a minute, so only where the machine is slow."""
_VARIES = ((re.compile(r" in \d+\.\d+ s$"), " in ... s"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page; `file` is the file that the block is written to, if any."""

    kind: str
    body: str
    file: str | None
    start: int


def blocks_of(text: str) -> list[Block]:
    """Return the fenced blocks of a page in order; `start` is the place of the body."""
    return [
        Block(kind=found["kind"], body=found["body"], file=found["file"], start=found.start("body"))
        for found in _FENCE.finditer(text)
    ]


def commands_of(body: str) -> list[tuple[str, str]]:
    """Return (command, recorded output) of a console block."""
    found: list[tuple[str, list[str]]] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\") and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        elif found:
            found[-1][1].append(line)
    return [(command, "\n".join(output)) for command, output in found]


def run_boa(arguments: list[str]) -> tuple[str, int]:
    """Run the command in this process; return (its output and errors as a terminal mixes them, exit code)."""
    screen = io.StringIO()
    before, sys.argv = sys.argv, ["boa", *arguments]
    code = 0
    try:
        with redirect_stdout(screen), redirect_stderr(screen):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = before
    lines = (line.rstrip() for line in screen.getvalue().rstrip().splitlines())
    return "\n".join(line for line in lines if not _PROGRESS.match(line)), code


def is_as_recorded(output: str, recorded: str) -> bool:
    """Return whether the output is what the page says, ``...`` standing for anything."""
    pattern = re.escape(recorded.rstrip())
    # `re.escape` puts a backslash before the end of a line as well.
    pattern = re.sub(r"(?m)^\\\.\\\.\\\.(?=\\?$)", r"(?s:.*?)", pattern).replace(r"\.\.\.", r"[^\n]*")
    return re.fullmatch(pattern, output) is not None


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder that looks like a checkout, on a terminal of 100 columns without colour."""
    for name in ("boa_daemon", "examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "docs" / "images").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "GITHUB_ACTIONS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def follow(checkout: Path) -> Callable[[Path], None]:
    """Return a function that runs a page's commands and compares their output, or records it."""

    def do(page: Path) -> None:
        text = page.read_text(encoding="utf-8")
        shift, code = 0, 0
        for block in blocks_of(text):
            if block.file is not None:
                (checkout / block.file).write_text(block.body, encoding="utf-8")
            if block.kind != "console":
                continue
            parts = []
            for command, said in commands_of(block.body):
                recorded = said
                if not recorded:
                    parts.append(f"$ {command}\n")
                    continue
                words = shlex.split(command.replace("\\\n", " "))
                if words == ["echo", "$?"]:
                    output = str(code)
                else:
                    assert words[0] == "boa", f"{page.name}: {command} is not a command of this project"
                    output, code = run_boa(words[1:])
                if IS_RECORDING and not is_as_recorded(output, recorded):
                    recorded = "\n".join(_steady(line) for line in output.splitlines())
                assert is_as_recorded(output, recorded), f"{page.name}: $ {command}\n{output}"
                parts.append(f"$ {command}\n{recorded}\n")
            body = "".join(parts)
            if IS_RECORDING and body != block.body:
                begin = block.start + shift
                text = text[:begin] + body + text[begin + len(block.body) :]
                shift += len(body) - len(block.body)
                page.write_text(text, encoding="utf-8")

    return do


def _steady(line: str) -> str:
    """Return the line with the parts that vary from run to run replaced."""
    for pattern, words in _VARIES:
        line = pattern.sub(words, line)
    return line
