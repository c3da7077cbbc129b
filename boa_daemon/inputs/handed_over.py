"""Commands that hand their work to another machine or service, where no stop of the job reaches it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

_ALWAYS = frozenset({"ssh", "at", "batch", "sbatch", "crontab", "kubectl", "machinectl"})
_WITH = {
    "docker": frozenset({"run", "exec", "start", "compose"}),
    "podman": frozenset({"run", "exec", "start"}),
    "nerdctl": frozenset({"run", "exec", "start"}),
}
"""Programs that do so by some of their verbs."""
_WRAPPERS = (
    "exec",
    "command",
    "sudo",
    "env",
    "nohup",
    "time",
    "nice",
    "ionice",
    "setsid",
    "timeout",
    "stdbuf",
)
_IN_FRONT = frozenset((*_WRAPPERS, "if", "then", "else", "while", "until", "do", "!", "{"))
_ENDS = re.compile(r"[;&|()\n]+")
_ASSIGNMENT = re.compile(r"\w+=")


def handed_over(command: str) -> str:
    """Return the first program of a shell command that hands its work over; empty if there is none.

    A command that is no valid shell is left to the shell.
    """
    return next(
        (words[0].rpartition("/")[2] for words in _simple_commands(command) if _hands_over(words)), ""
    )


def _hands_over(words: list[str]) -> bool:
    program, rest = words[0].rpartition("/")[2], words[1:]
    if program == "systemd-run":
        return "--scope" not in rest
    return program in _ALWAYS or not _WITH.get(program, frozenset()).isdisjoint(rest[:3])


def _simple_commands(command: str) -> Iterator[list[str]]:
    """Yield the words of each simple command, from its program on."""
    signs = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=";&|()\n")
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
    for number, word in enumerate(words):
        is_wrapped = number > 0 and (word.startswith("-") or word[:1].isdigit())
        if not (_ASSIGNMENT.match(word) or word in _IN_FRONT or is_wrapped):
            return words[number:]
    return []
