"""What BOA plans a job of Slurm by, from its comment: `--comment=boa:class=vision,min_gpus=1,elastic`."""

from __future__ import annotations

import re

from boa_daemon.errors import did_you_mean

MARK = "boa:"
KEYS = ("class", "min_gpus", "max_gpus", "elastic", "shrink", "tasks", "max_usd", "weight", "scale", "team")
NUMBERS = ("min_gpus", "max_gpus", "max_usd", "weight", "scale")
WHOLE = ("min_gpus", "max_gpus")


def read_class_comment(comment: str) -> dict[str, str]:
    """Return the keys of a comment with their values; a key without a value is "true". Empty if it has none.

    Raises:
        ValueError: when a key is not known, or a number is none.
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
        found[key] = given if equals else "true"
    return found


def names_class(comment: str) -> bool:
    """Return whether a comment names a class."""
    return re.search(r"\bboa:(?:[^,]*,)*\s*class=", comment) is not None
