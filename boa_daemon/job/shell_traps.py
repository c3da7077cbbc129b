"""How a shell is ended that a stop has suspended, so that its traps run, and not its next command.

A shell with a trap for SIGTERM runs the trap and then its next command, unless the trap ends it. Nobody sees
from outside where the trap ends. But bash runs the trap and ends afterwards, if another signal that it does
not trap comes together with SIGTERM, and it has a trap for EXIT. All other shells end at once at that signal:
it is for traps of which nothing is lost. The text tells of which kind a trap is: the words of the command
line, and the script that the shell has open. Where no text is found, a shell gets SIGTERM alone. Standard
library only.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from boa_daemon.job.processes import PROC, catches, ignores, parent_of
from boa_daemon.job.regular_files import open_regular

UNTRAPPED = signal.SIGVTALRM
"""A signal that ends each shell, that no script traps, and at which no core is dumped."""
MOST_BYTES, MOST_WORDS, MOST_TRAPS = 50_000, 20, 20
"""How much of a script and of a command line is read, and how many traps: a job writes what it likes."""
MOST_CHARACTERS = 2000
"""The longest trap or function; of a longer one nothing is known."""
_TRAP = re.compile(
    r"\btrap\s{1,9}(?:--\s{1,9})?('[^']{0,2000}'|\"(?:[^\"\\]|\\.){0,2000}\"|[\w.:-]{1,99})"
    r"((?:[ \t]{1,9}[A-Z0-9]{1,12}\b){1,99})"
)
_ZSH_TRAP = re.compile(r"\bTRAP([A-Z]{1,9})\s{0,9}\(\)\s{0,9}\{([^}]{0,2000})\}")
_FISH_TRAP = re.compile(
    r"--on-signal[ =](?:SIG)?([A-Z]{1,9})[^\n;]{0,99}[\n;](.{0,2000}?)(?:[\n;]\s{0,99}end\b)", re.DOTALL
)
_READS_IN = re.compile(r"(?:^|[;&|{(\n])[ \t]{0,99}(?:source|\.)[ \t]{1,9}[\"']?([\w./-]{1,999})")
_ENDS = re.compile(r"\b(?:exit|exec)\b|\$\$|\bBASHPID\b|\bkill\b[^;\n]*\s-?0\b|\bfish_pid\b")
_DATE = re.compile(r"\$\(date[^()`]*\)|`date[^`]*`|[0-9]?>&[0-9]|[0-9&]?>>?\s*/dev/\w+")
_SAYS = re.compile(
    r"echo|printf|print|:|true|false|test|\[|\[\[|wait|kill|set|unset|export|local|declare|typeset|readonly|let|"
    r"shift|jobs|trap|fi|done|for|case|esac|\}|break|continue|return|sleep|date|\w+\+?=.*"
)
"""Commands of which nothing is lost if a shell ends without them."""
_KEYWORDS = frozenset(("if", "then", "else", "elif", "while", "until", "do", "!", "{", "time"))
"""Words that a command follows."""


def signals_to_end(pid: int, program: str) -> tuple[signal.Signals, ...]:
    """Return the signals by which a shell ends after its traps; it gets them all before it goes on."""
    if ignores(pid, signal.SIGTERM):
        is_for_exit = program.startswith("zsh") and not ignores(pid, signal.SIGHUP)
        return (signal.SIGHUP if is_for_exit else UNTRAPPED,)
    if not catches(pid, signal.SIGTERM):
        return (signal.SIGTERM,)
    text, traps = "", list[tuple[str, set[str]]]()
    handlers: set[str] = set()
    # What comes by a pipe can often be found in the text of the shell above.
    line = [pid, *(above for above in (parent_of(pid),) if above)]
    for one in line:
        text = "\n".join(_texts(one))
        traps = list(_traps(text))
        handlers = {handler for handler, names in traps if names & {"TERM", "15"} and handler != "-"}
        if handlers:
            break
    if not handlers and program.startswith("ksh"):
        return (UNTRAPPED,)  # One that takes itself for interactive catches SIGTERM to ignore it.
    if len(handlers) > MOST_TRAPS:
        return (signal.SIGTERM,)
    at_exit = {handler for handler, names in traps if names & {"EXIT", "0"}}
    does = {handler: _with_functions(handler, text) for handler in handlers}
    if not handlers or any(_ENDS.search(whole) for whole, _ in does.values()):
        return (signal.SIGTERM,)
    if program.endswith("bash") and catches(pid, UNTRAPPED):
        return (signal.SIGTERM, UNTRAPPED)  # At both it runs its trap for EXIT, too.
    ends = UNTRAPPED
    if program.startswith("zsh") and at_exit and not any(names & {"HUP", "1"} for _, names in traps):
        ends = signal.SIGHUP  # The one at which it runs its trap for EXIT.
    runs_at_exit = at_exit if program.startswith("ksh") or ends == signal.SIGHUP else set()
    if all(handler in runs_at_exit or _only_says(*does[handler]) for handler in handlers):
        return (ends,)
    return (signal.SIGTERM,)


def _texts(pid: int) -> Iterator[str]:
    """Yield the words of a shell's command line, the scripts that it has, and those that these read in."""
    here = PROC / str(pid)
    try:
        words = (here / "cmdline").read_bytes()[:MOST_BYTES].split(b"\0")[1 : 1 + MOST_WORDS]
    except OSError:
        return
    texts = [os.fsdecode(word) for word in words if word]
    places = [_place_of(here, word) for word in texts if "\n" not in word and len(word) < 4096]
    places += [here / "fd" / number for number in ("0", "10", "11", "255")]
    texts += map(_text_of, places)
    read_in = [found for text in texts for found in _READS_IN.findall(text)[:MOST_WORDS]]
    yield from texts
    yield from (_text_of(_place_of(here, word)) for word in read_in[:MOST_WORDS])


def _text_of(file: Path) -> str:
    with suppress(OSError, ValueError), open_regular(file) as stream:
        return stream.read(MOST_BYTES).decode(errors="replace")
    return ""


def _place_of(here: Path, word: str) -> Path:
    """Return the path of a script as the shell sees it."""
    return Path(f"{here / 'root'}{word}") if word.startswith("/") else here / "cwd" / word


def _traps(text: str) -> Iterator[tuple[str, set[str]]]:
    """Yield what each trap in a text does, and the names of its signals without SIG."""
    for handler, names in _TRAP.findall(text):
        yield (
            handler[1:-1] if handler[0] in "'\"" else handler,
            {name.removeprefix("SIG") for name in names.split()},
        )
    for found in _ZSH_TRAP.findall(text):
        yield found[1], {found[0]}
    for name, body in _FISH_TRAP.findall(text):
        yield body, {name}


def _with_functions(handler: str, text: str) -> tuple[str, set[str]]:
    """Return what a trap does, with what the functions do that it calls, and the names of these."""
    done: set[str] = set()
    for _ in range(MOST_TRAPS):
        names = [name for name in dict.fromkeys(_first_words(handler)) if name not in done][:MOST_TRAPS]
        bodies = {name: body for name in names if (body := _body_of(name, text)) is not None}
        if not bodies:
            return handler, done
        done |= bodies.keys()
        handler = "\n".join([handler, *bodies.values()])
    return f"{handler}; exit", done


def _body_of(name: str, text: str) -> str | None:
    if not re.fullmatch(r"[A-Za-z_][\w-]*", name):
        return None
    begin = re.search(
        rf"(?:^|[\s;])(?:function\s+{re.escape(name)}\s*(?:\(\s*\))?|{re.escape(name)}\s*\(\s*\))\s*\{{", text
    )
    if begin is None:
        return None
    depth = 1
    for at in range(begin.end(), min(len(text), begin.end() + MOST_CHARACTERS)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth:
            return text[begin.end() : at]
    return None


def _only_says(handler: str, functions: set[str]) -> bool:
    """Return whether a trap only prints, or sets what only this shell sees."""
    plain = _DATE.sub("", handler)
    if re.search(r"[<>`]|\$\(", plain):
        return False
    return all(word in functions or _SAYS.fullmatch(word) for word in _first_words(plain))


def _first_words(text: str) -> list[str]:
    """Return the first word of each command in a text."""
    found = []
    for part in re.split(r"[;&|\n]+", _unquoted(text)):
        words = [word for word in part.split() if word not in _KEYWORDS]
        found += words[:1]
    return found


def _unquoted(text: str) -> str:
    """Return a text with nothing between quotes, where a semicolon separates nothing."""
    return re.sub(r"'[^']{0,2000}'|\"(?:[^\"\\]|\\.){0,2000}\"", "''", text)
