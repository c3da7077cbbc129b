"""Errors that users see, each with the exit code of the command.

Exception
├── BoaError                exit 1    the command failed
│   ├── InputError          exit 2    a file or flag is wrong: correct the named line
│   │   ├── MissingPrice              a type has no price: name one, never assume zero
│   │   └── MissingExtra              an optional library is needed: install the named extra
│   ├── CloudFailed         exit 1    the cloud refused or failed: the hint names the remedy
│   └── GateUnreachable     exit 5    no gate answers: start one, or correct the address
└── policies.PolicyError              no plan is possible; `exit_code_of` maps its subclasses

A message says what happened, with which value, and what to try.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from policies import errors as policy_errors

DONE, FAILED, USAGE, INFEASIBLE, PARTLY_DONE = 0, 1, 2, 3, 4
DAEMON_UNREACHABLE, DRIFT_FOUND, CHANGES_PRESENT = 5, 6, 10


class BoaError(Exception):
    """An error that a command reports in one sentence."""

    exit_code = FAILED


class InputError(BoaError):
    """A file or a flag has an unusable value; nothing was done.

    `setting` is the path of the setting that is wrong, such as ``("cloud", "region")``, for whoever can say
    which file and line set it.
    """

    exit_code = USAGE

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        hint: str = "",
        setting: tuple[str, ...] = (),
    ) -> None:
        self.setting = setting
        self.problem, self.file, self.line, self.hint = problem, file, line, hint
        where = "" if file is None else f"{file}:{line}: " if line is not None else f"{file}: "
        super().__init__(f"{where}{problem}{'. ' + hint if hint else ''}")


class MissingPrice(InputError):
    """An instance type in use has no price; a price of zero would be wrong."""


class MissingExtra(InputError):
    """The command needs an optional library."""


NOT_SENT = "NotSent"
"""`code` of a call that was not made, as the region that it is for does not answer."""


class CloudFailed(BoaError):
    """The cloud refused a call or did not answer; `code` is the cloud's error code."""

    def __init__(self, problem: str, *, code: str = "", hint: str = "") -> None:
        self.problem, self.code, self.hint = problem, code, hint
        super().__init__(f"{problem}{'. ' + hint if hint else ''}")


class GateUnreachable(BoaError):
    """No gate answers at the address, or the gate does not accept the secret."""

    exit_code = DAEMON_UNREACHABLE


def did_you_mean(word: str, known: Iterable[str], *, meanings: Mapping[str, str] | None = None) -> str:
    """Return a hint: the closest known word and its meaning, else all words if there are few."""
    words = sorted(known)
    close = get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        meaning = (meanings or {}).get(close[0], "")
        return f"Did you mean {close[0]!r}{f' ({meaning})' if meaning else ''}?"
    return f"Known: {', '.join(words)}" if 0 < len(words) <= 30 else ""


_CHOICE = re.compile(r"'([^']*)'")


def not_one_of(value: str, known: Iterable[str]) -> str:
    """Return that a value is in no closed set: what is possible, and the nearest spelling."""
    words = list(known)
    # Of a name with several words one is often typed alone: "mixd" for integer-mixed.
    parts = {part: word for word in words for part in word.split("-")}
    typed = value.strip().lower().replace("_", "-")
    close = get_close_matches(typed, words, n=1) or [
        parts[part] for part in get_close_matches(typed, parts, n=1)
    ]
    near = f". Did you mean {close[0]!r}?" if close else ""
    return f"{value!r} is not one of {', '.join(repr(word) for word in words)}{near}"


def choices_in(said: str) -> list[str]:
    """Return the quoted words of a sentence that lists what is possible."""
    return _CHOICE.findall(said)


def column_hint(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown CSV column; the usual cause is a wrong separator."""
    for sign, said in ((";", "';'"), ("\t", "TABs")):
        if sign in name:
            return f"Separate the columns by commas, not by {said}"
    return did_you_mean(name, known)


def near_files(path: str | Path) -> str:
    """Return a hint for a missing file: the closest name in its folder."""
    path = Path(path)
    if not path.parent.is_dir():
        return f"There is no folder {str(path.parent)!r} either"
    close = get_close_matches(path.name, [file.name for file in path.parent.iterdir()], n=1, cutoff=0.75)
    return f"Did you mean {str(path.with_name(close[0]))!r}?" if close else ""


def exit_code_of(error: Exception) -> int:
    """Return the exit code of an error."""
    if isinstance(error, BoaError):
        return error.exit_code
    if isinstance(error, policy_errors.InfeasibleBudget | policy_errors.InfeasibleDeadline):
        return INFEASIBLE
    if isinstance(error, policy_errors.InvalidProblem | policy_errors.UnknownPolicy):
        return USAGE
    return FAILED
