"""Money in cells of price lists, as people write it: ``2.49``, ``$2.49``, ``$2.49/hr``, ``1,99``."""

from __future__ import annotations

import re
from pathlib import Path

from boa_daemon.errors import InputError
from boa_daemon.number_text import NotOneNumber, number_of, without_dollars

_PER = re.compile(
    r"\s*(?:/|per)\s*(?:gpu)?\s*(?:/|per|-)?\s*(?:h|hr|hour|std\.? hour)?\s*\.?$", re.IGNORECASE
)
MAX_USD_PER_HOUR = 1e9
"""No machine costs this much: a larger number is a fault of the list, and its sums may have no end."""
_NOTHING = ("", "-", "n/a", "na", "nan", "none", "null", "unavailable", "sold out", "contact sales")


def usd_cell(
    text: str, name: str, path: Path, line: int | None = None, *, has_decimal_commas: bool = False
) -> float | None:
    """Return the dollars in a cell; None for a cell that states none.

    `name` says in errors what the cell is.

    Raises:
        InputError: when it is no amount, is in another currency, or may be read in two ways.
    """
    text = text.strip()
    if text.lower() in _NOTHING:
        return None
    try:
        bare = without_dollars(_PER.sub("", text))
        value = number_of(bare, has_decimal_commas=has_decimal_commas)
    except NotOneNumber as error:
        said = error.reason.removeprefix(", which ")
        problem = f"{name} {text!r} {said}" if said else f"{name} must be dollars per hour; got {text!r}"
        raise InputError(problem, file=path, line=line, hint=error.hint) from None
    if not 0.0 <= value < MAX_USD_PER_HOUR:
        raise InputError(f"{name} must be dollars per hour; got {text!r}", file=path, line=line)
    return value


def usd_number(value: object, name: str, path: Path) -> float:
    """Return a number of dollars per hour from JSON, zero or more.

    Raises:
        InputError: when it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < MAX_USD_PER_HOUR:
        raise InputError(f"{name} must be dollars; got {value!r}", file=path)
    return float(value)
