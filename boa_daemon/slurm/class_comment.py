"""What BOA plans a job of Slurm by, from its comment: `--comment=boa:class=vision,min_gpus=1,elastic`."""

from __future__ import annotations

import re

from boa_daemon.errors import did_you_mean

MARK = "boa:"
KEYS = ("class", "min_gpus", "max_gpus", "elastic", "shrink", "tasks", "max_usd", "weight", "scale", "team")
NUMBERS = ("min_gpus", "max_gpus", "max_usd", "weight", "scale")
WHOLE = ("min_gpus", "max_gpus")
FLAGS = ("elastic", "shrink", "tasks")
OWN_JOBS = ("max_usd", "team")
"""Keys for jobs of BOA alone: no tick watches the money of a job of Slurm, and its account says the team."""


def read_class_comment(comment: str) -> dict[str, str]:
    """Return the keys of a comment with their values; a key without a value is "true". Empty if it has none.

    Raises:
        ValueError: when a key is not known, a number is none or zero, or a flag is neither true nor false.
    """
    found: dict[str, str] = {}
    _, mark, text = comment.partition(MARK)
    for each in [part.strip() for part in text.split(",") if part.strip()] if mark else []:
        key, equals, given = each.partition("=")
        if key not in KEYS:
            raise ValueError(f"--comment: boa:{key} is not known. {did_you_mean(key, KEYS)}".strip())
        if key in NUMBERS and not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", given):
            raise ValueError(f"--comment: boa:{key} must be a number; got {given!r}")
        if key in WHOLE and not re.fullmatch(r"[1-9][0-9]{0,6}", given):
            raise ValueError(f"--comment: boa:{key} must be a whole number from 1; got {given!r}")
        if key in NUMBERS and float(given) == 0.0:
            raise ValueError(f"--comment: boa:{key} must be more than zero; got {given!r}")
        value = given if equals else "true"
        if key in FLAGS and value not in ("true", "false"):
            raise ValueError(f"--comment: boa:{key} must be true or false; got {given!r}")
        found[key] = value
    return found


def names_class(comment: str) -> bool:
    """Return whether a comment names a class."""
    return re.search(r"\bboa:(?:[^,]*,)*\s*class=", comment) is not None
