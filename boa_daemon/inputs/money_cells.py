"""Money in cells of price lists, as people write it: ``2.49``, ``$2.49``, ``$2.49/hr``, ``1,99``."""

from __future__ import annotations

import re
from pathlib import Path

from boa_daemon.errors import InputError
from boa_daemon.number_text import NotOneNumber, ascii_digits, number_of, without_dollars

_HOUR = r"std\.? hour|hourly|hours?|hrs?|h"
_UNIT = rf"(?:gpu-?h(?:r|our)?|gpu|card|accelerator|node|instance|machine|server|vm|{_HOUR})"
_PER = re.compile(
    rf"(?:\s*(?:/|\bper\b|\ban?\b|\bp/|[-\u00b7]|(?=\bhourly\b))\s*(?:1\s+)?{_UNIT}\b\.?)+\s*$", re.IGNORECASE
)
"""What an amount is per: an hour, of the machine or of a GPU."""
_OTHER_TIME = re.compile(
    r"(?:/|\bper\b|\ba\b|\s)\s*(month(?:ly)?|mo|day|daily|week(?:ly)?|years?|yr|annual|min(?:ute)?|second|sec|s)\b",
    re.IGNORECASE,
)
_BOUND = re.compile(
    r"\b(?:from|starting|starts|low|up to|under|over|avg|about|approx)\b|[<>~\u2248]", re.IGNORECASE
)
MAX_USD_PER_HOUR = 1e9
"""No machine costs this much: a larger number is a fault of the list, and its sums may have no end."""
NOTHING = frozenset({
    "", "-", "--", "\u2013", "\u2014", "?", "n/a", "na", "n.a.", "#n/a", "<na>", "nan", "none", "null",
    "nil", "tbd", "tba", "unavailable", "not available", "sold out", "out of stock", "coming soon",
    "waitlist", "contact sales", "contact us", "on request", "price on request",
})  # fmt: skip
"""Cells that state nothing, in lower case."""


def usd_cell(
    text: str, name: str, path: Path, line: int | None = None, *, has_decimal_commas: bool = False
) -> float | None:
    """Return the dollars in a cell; None for a cell that states none.

    `name` says in errors what the cell is.

    Raises:
        InputError: when it is no amount, is in another currency, or may be read in two ways.
    """
    text = text.strip()
    if text.lower() in NOTHING:
        return None
    try:
        bare = without_dollars(_PER.sub("", ascii_digits(text)).strip())
        value = number_of(bare, has_decimal_commas=has_decimal_commas)
    except NotOneNumber as error:
        said = error.reason.removeprefix(", which ")
        problem = f"{name} {text!r} {said}" if said else f"{name} must be dollars per hour; got {text!r}"
        raise InputError(problem, file=path, line=line, hint=error.hint or _hint(text)) from None
    if not 0.0 <= value < MAX_USD_PER_HOUR:
        raise InputError(f"{name} must be dollars per hour; got {text!r}", file=path, line=line)
    return value


def _hint(text: str) -> str:
    """Return what to write in place of a text that is no amount of dollars per hour."""
    if _OTHER_TIME.search(text):
        return "Write the price of an hour"
    if len(re.findall(r"\d+(?:[.,]\d+)*", text)) > 1:
        return "Write the one price that you pay by"
    if _BOUND.search(text):
        return "Write the price itself in place of a bound"
    return (
        "Write the number alone, such as 2.49"
        if re.search(r"\d", text)
        else "Leave the cell empty if there is none"
    )


def usd_number(value: object, name: str, path: Path) -> float:
    """Return a number of dollars per hour from JSON, zero or more.

    Raises:
        InputError: when it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < MAX_USD_PER_HOUR:
        raise InputError(f"{name} must be dollars; got {value!r}", file=path)
    return float(value)
