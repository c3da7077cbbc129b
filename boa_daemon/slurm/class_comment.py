"""What BOA plans a job of Slurm by, from its comment: `--comment=boa:class=vision,min_gpus=1,elastic`.

Keys stand behind `boa:`, in any case, with commas or semicolons between them; what stands before it is for
people. Everything behind it is read or refused, so that no misspelt key is lost in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from boa_daemon.errors import did_you_mean

KEYS = ("class", "min_gpus", "max_gpus", "elastic", "shrink", "tasks", "max_usd", "weight", "scale", "team")
NUMBERS = ("min_gpus", "max_gpus", "max_usd", "weight", "scale")
WHOLE = ("min_gpus", "max_gpus")
FLAGS = ("elastic", "shrink", "tasks")
OWN_JOBS = ("max_usd", "team")
"""Keys for jobs of BOA alone: no tick watches the money of a job of Slurm, and its account says the team."""
_MARK = re.compile(r"(?<![\w./:@-])boa\s*:(?!/)", re.IGNORECASE)
_ENGINE_JOB = re.compile(r"boa:[^,;:=\s]+:[^,;:=\s]+:[0-9a-f]{8}")
_QUOTES = "\"'\u2018\u2019\u201c\u201d"


def read_class_comment(comment: str) -> dict[str, str]:
    """Return the keys of a comment with their values; a key without a value is "true". Empty if it has none.

    Raises:
        ValueError: when a key is not known or given twice, a number is none or zero, a flag is neither true
            nor false, or nothing or other words stand behind `boa:`.
    """
    found: dict[str, str] = {}
    for each in _entries(comment):
        typed, equals, value = (part.strip() for part in each.partition("="))
        key, given = typed.strip(_QUOTES).lower(), value.strip(_QUOTES).strip()
        if key not in KEYS:
            hint = did_you_mean(key, KEYS)
            raise ValueError(f"--comment: boa:{typed} is not known. {hint}".strip())
        if key in found:
            raise ValueError(f"--comment: boa:{key} is given twice")
        if key in NUMBERS and not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", given):
            raise ValueError(f"--comment: boa:{key} must be a number; got {given!r}")
        if key in WHOLE and not re.fullmatch(r"[1-9][0-9]{0,6}", given):
            raise ValueError(f"--comment: boa:{key} must be a whole number from 1; got {given!r}")
        if key in NUMBERS and float(given) == 0.0:
            raise ValueError(f"--comment: boa:{key} must be more than zero; got {given!r}")
        if key in FLAGS:
            given = given.lower() if equals else "true"
            if given not in ("true", "false"):
                raise ValueError(f"--comment: boa:{key} must be true or false; got {value!r}")
        elif not given:
            raise ValueError(f"--comment: boa:{key} has no value")
        elif re.search(r"\s", given):
            hint = "Put commas between keys, and other words before boa:"
            raise ValueError(f"--comment: boa:{key} has a space in its value {given!r}. {hint}")
        found[key] = given
    if not found and speaks_to_boa(comment):
        raise ValueError(f"--comment: boa: names no key. Known: {', '.join(KEYS)}")
    return found


def speaks_to_boa(comment: str) -> bool:
    """Return whether a comment has keys for BOA, or means to: whether `boa:` is in it."""
    return _MARK.search(comment) is not None and not is_of_engine(comment)


def is_of_engine(comment: str) -> bool:
    """Return whether a comment is of a job that BOA's own engine has submitted: ``boa:JOB:gN:DIGEST``."""
    return _ENGINE_JOB.fullmatch(comment) is not None


def _entries(comment: str) -> Iterator[str]:
    """Yield what stands between the commas behind each `boa:`."""
    if speaks_to_boa(comment):
        for text in _MARK.split(comment)[1:]:
            yield from (part.strip() for part in re.split(r"[,;\n]", text) if part.strip().strip(_QUOTES))
