"""No text of a job reaches a terminal, a mail or a log of ours with a character that a terminal obeys."""

from __future__ import annotations

import io
import logging
import os
import pty
import sys
from collections.abc import Callable

import pytest
from rich.table import Table

from boa_daemon.cli.common.output import print_text, stderr_console, stdout_console
from boa_daemon.daemon.loop.log_lines import JsonLines, PlainLines
from boa_daemon.daemon.settings.config import AlertSettings
from boa_daemon.daemon.watch.alerts import Alerts, subject_of
from boa_daemon.inputs.plain_text import one_line, plain_text

HOSTILE = {
    "title": "\x1b]0;owned\x07",
    "title by C1": "\x9d0;owned\x9c",
    "clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "link": "\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\",
    "cursor up and erase": "\x1b[2A\x1b[2K",
    "by C1": "\x9b2J",
    "clear": "\x1bc",
    "report back": "\x1b[6n\x1b[c\x05",
    "device control": '\x1bP$q"p\x1b\\',
    "hidden colour": "\x1b[8mhidden",
    "backspaces": "rm\x08\x08ls",
    "overwritten line": "bad\rgood",
    "vertical tab and form feed": "a\x0bb\x0c",
    "null and bell": "\x00\x07",
    "delete": "\x7f",
    "bidi": "\u202eexe.txt\u202c \u2066x\u2069",
    "zero width": "a\u200bb",
    "line separator": "a\u2028b\u2029c\x85d",
    "tags": "\U000e0041",
    "half a character": "\ud83d",
}
OBEYED = [chr(n) for n in (*range(9), *range(11, 32), *range(127, 160), 0x202E, 0x2066, 0x200B, 0x2028)]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_character_that_a_terminal_obeys_is_left(name: str) -> None:
    """Visible signs stand in their place, so that a reader sees that something was there."""
    for text in (HOSTILE[name], f"before {HOSTILE[name]} after"):
        for told in (plain_text(text), one_line(text)):
            assert not [sign for sign in told if sign in OBEYED], told
            told.encode()
    assert "before" in plain_text(f"before {HOSTILE[name]} after")


def test_ordinary_text_stays_as_it_is() -> None:
    """Letters of any script, tabs and ends of lines; a progress bar becomes lines, and colours go."""
    text = "Größe 模型 👩‍🔬 עברית\n\tstep 1\n"
    assert plain_text(text) == text
    assert plain_text("1%\r2%\r\n\x1b[32mok\x1b[0m") == "1%\n2%\nok"


def printed(function: Callable[[], None]) -> str:
    """Return what a function writes to a terminal."""
    ours, theirs = pty.openpty()
    before = sys.stdout, sys.stderr
    with os.fdopen(theirs, "w", encoding="utf-8", errors="replace") as terminal:
        sys.stdout = sys.stderr = terminal
        try:
            function()
        finally:
            sys.stdout, sys.stderr = before
        terminal.flush()
        found = b""
        os.set_blocking(ours, False)
        try:
            while block := os.read(ours, 1 << 16):
                found += block
        except BlockingIOError:
            pass
    os.close(ours)
    return found.decode(errors="replace")


def table(text: str) -> None:
    rows = Table("job", "cause")
    rows.add_row("a-1", text)
    stdout_console().print(rows)


EDGES: dict[str, Callable[[str], None]] = {
    "text": print_text,
    "line": lambda text: stdout_console().print(text, markup=False),
    "table": table,
    "error": lambda text: stderr_console().print(text, markup=False),
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", ["title", "cursor up and erase", "by C1", "clipboard", "bidi"])
def test_a_terminal_gets_plain_text(edge: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines, tables, logs and errors, on a real terminal."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    said = printed(lambda: EDGES[edge](HOSTILE[name]))
    for sequence in ("\x1b]", "\x1b[2A", "\x9b", "\u202e"):
        assert sequence not in said


def test_a_pipe_gets_a_log_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read what the job printed; on a terminal `--raw` does the same."""
    print_text(HOSTILE["title"])
    assert capsys.readouterr().out == HOSTILE["title"]
    assert HOSTILE["title"] in printed(lambda: print_text(HOSTILE["title"], is_raw=True))


def test_alerts_and_the_daemons_log_are_plain(caplog: pytest.LogCaptureFixture) -> None:
    """Alerts of every channel start as plain text, and both formats of the log have no control characters."""
    alerts, sentence = Alerts(None, AlertSettings()), "job a-1 failed: \x1b]0;owned\x07\nSubject: x"
    with caplog.at_level("INFO", "boa.alerts"):
        alerts.say("failed:a-1", sentence, at=0.0)
    assert "\x1b" not in caplog.text
    assert not {"\n", "\x1b", "\r"} & set(subject_of("\x1b[2J\nBcc: all@x"))
    record = logging.LogRecord("boa", 20, "f", 1, sentence, (), None)
    for formatter in (PlainLines("%(message)s"), JsonLines()):
        assert "\x1b" not in formatter.format(record)
        assert "\x07" not in formatter.format(record)
    assert io.StringIO(JsonLines().format(record)).read().count("\n") == 0
