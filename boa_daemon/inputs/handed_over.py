"""Commands that hand their work to another machine or service, where no stop of the job reaches it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from io import StringIO

_BATCH = frozenset({"at", "batch", "crontab", "sbatch", "qsub", "bsub", "condor_submit"})
_ALWAYS = _BATCH | frozenset({"ssh", "mosh", "rsh", "pdsh", "kubectl", "oc", "machinectl"})
_WITH = {
    "docker": frozenset({"run", "exec", "start", "compose"}),
    "podman": frozenset({"run", "exec", "start"}),
    "nerdctl": frozenset({"run", "exec", "start"}),
    "sky": frozenset({"launch", "exec", "jobs"}),
    "modal": frozenset({"run"}),
    "ray": frozenset({"submit"}),
}
"""Programs that do so by some of their verbs."""
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_WRAPPERS = frozenset(
    {"exec", "command", "sudo", "env", "nohup", "time", "nice", "ionice", "setsid", "timeout"}
)
_KEYWORDS = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{"})
_IN_FRONT = _WRAPPERS | _KEYWORDS | {"stdbuf", "xargs"}
_WITH_VALUE = re.compile(r"-[ugCskcpIL]")
"""Options of programs in front whose value is a word of its own."""
_ENDS = re.compile(r"[;&|()\n]+")
_ASSIGNMENT = re.compile(r"\w+=")
_NO_COMMENT = re.compile(r"(?<=[^\s;&|()\\])#")
"""A sign within a word, which begins no comment."""


def handed_over(command: str) -> str:
    """Return the first program of a shell command that hands its work over; empty if there is none.

    A command that is no valid shell is left to the shell.
    """
    return next(filter(None, map(_taker, _simple_commands(command))), "")


def _taker(words: list[str]) -> str:
    """Return the program that hands work over, of a simple command or of what a shell in it runs."""
    program, rest = words[0].rpartition("/")[2], words[1:]
    if program in _SHELLS:
        inner = next((rest[at + 1] for at, word in enumerate(rest[:-1]) if re.fullmatch(r"-\w*c", word)), "")
        return handed_over(inner)
    if program == "systemd-run":
        return "" if "--scope" in rest else program
    return program if program in _ALWAYS or not _WITH.get(program, frozenset()).isdisjoint(rest[:3]) else ""


class _Text:
    """A text of which a comment ends before the end of its line, as in a shell: `shlex` takes both."""

    def __init__(self, text: str) -> None:
        self._file = StringIO(text)
        self.read, self.close = self._file.read, self._file.close

    def readline(self) -> str:
        """Return the rest of the line without its end."""
        line = self._file.readline()
        self._file.seek(self._file.tell() - line.endswith("\n"))
        return line.removesuffix("\n")


def _simple_commands(command: str) -> Iterator[list[str]]:
    """Yield the words of each simple command, from its program on."""
    text = _Text(_NO_COMMENT.sub(r"\#", command.replace("\\\n", " ")))
    signs = shlex.shlex(text, posix=True, punctuation_chars=";&|()\n")
    signs.whitespace, signs.whitespace_split = " \t\r", True
    words: list[str] = []
    try:
        for sign in (*signs, ";"):
            if not _ENDS.fullmatch(sign):
                words.append(sign)
                continue
            if found := _from_program(words):
                yield found
            words = []
    except ValueError:
        return


def _from_program(words: list[str]) -> list[str]:
    """Return the words without assignments, and wrappers with their options, in front of a program."""
    before = ""
    for number, word in enumerate(words):
        is_of_wrapper = number > 0 and (
            word.startswith("-") or word[:1].isdigit() or _WITH_VALUE.fullmatch(before) is not None
        )
        if not (_ASSIGNMENT.match(word) or word.rpartition("/")[2] in _IN_FRONT or is_of_wrapper):
            return words[number:]
        before = word
    return []
