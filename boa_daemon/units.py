"""Conversions of units: budgets as people write them, dollars and micro-dollars, hours and seconds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from boa_daemon.errors import InputError

if TYPE_CHECKING:
    from policies.model import Budget

SECONDS_PER_HOUR = 3600.0
HOURS_PER_DAY = 24.0
HOURS_PER_WEEK = 168.0
HOURS_PER_MONTH = 730.0
"""A month is 365 / 12 days, as cloud price lists count it."""
MICRO_DOLLARS_PER_DOLLAR = 1_000_000

_HOURS = {
    "h": 1.0,
    "hour": 1.0,
    "day": HOURS_PER_DAY,
    "d": HOURS_PER_DAY,
    "week": HOURS_PER_WEEK,
    "w": HOURS_PER_WEEK,
    "month": HOURS_PER_MONTH,
    "mo": HOURS_PER_MONTH,
}
_RATE = re.compile(r"\$?\s*(?P<amount>[^/\s]+)\s*/\s*(?P<per>[a-z]+)", re.IGNORECASE)
_BUDGET_HINT = "Write dollars per time, such as 60/h, 900/day or 25000/month, or a GPU count, such as gpus:48"


def parse_budget(text: str, *, name: str = "--budget") -> Budget:
    """Return the budget in `text`: ``60/h``, ``900/day``, ``25000/month`` or ``gpus:48``.

    `name` is the option or key that the text was given for; errors quote it.

    Raises:
        InputError: when the text is none of these, or the amount is not a positive finite number.
    """
    from policies.model import Budget  # noqa: PLC0415 - it imports numpy, which most commands do without

    cleaned = text.strip()
    if cleaned.lower().startswith("gpus:"):
        return Budget(amount=_amount(cleaned[5:], text, name), unit="gpus")
    match = _RATE.fullmatch(cleaned)
    if match is None:
        is_bare = re.fullmatch(r"\$?\s*\d[\d,.]*", cleaned) is not None
        problem = "does not say for how long" if is_bare else "has no unit that BOA knows"
        raise InputError(f"{name} {text!r} {problem}", hint=_BUDGET_HINT)
    per = match["per"].lower()
    if per not in _HOURS:
        raise InputError(f"{name} {text!r}: unknown unit of time {match['per']!r}", hint=_BUDGET_HINT)
    return Budget(amount=_amount(match["amount"], text, name) / _HOURS[per])


@dataclass(frozen=True, slots=True)
class Per:
    """A unit of time for rates of money: its name in text, such as ``month``, and its hours."""

    name: str
    hours: float

    @property
    def said(self) -> str:
        """The unit as text after an amount: ``an hour``, ``a month``."""
        return "an hour" if self.name == "h" else f"a {self.name}"

    def usd(self, usd_per_hour: float, *, digits: int = 2) -> str:
        """Return a rate of money in this unit, such as ``$25,000.00/month``."""
        return f"${usd_per_hour * self.hours:,.{digits}f}/{self.name}"


PER_HOUR = Per("h", 1.0)


def per_of(text: str | None) -> Per:
    """Return the unit of time of a budget as typed; an hour for anything else."""
    match = None if text is None else _RATE.fullmatch(text.strip())
    word = "" if match is None else match["per"].lower()
    hours = _HOURS.get(word, 1.0)
    names = {HOURS_PER_DAY: "day", HOURS_PER_WEEK: "week", HOURS_PER_MONTH: "month"}
    return Per(names[hours], hours) if hours in names else PER_HOUR


@dataclass(frozen=True, slots=True)
class BudgetTexts:
    """Several budgets as typed, each a text for `parse_budget`, and the points of a range if it is one.

    A range has two texts; `points` is None if it goes in steps of one.
    """

    texts: tuple[str, ...]
    is_range: bool
    points: int | None = None

    @property
    def per(self) -> Per:
        """The unit of time of the first one."""
        return per_of(self.texts[0])


_RANGE = re.compile(r"(?P<low>.+?)\.\.(?P<high>[^:]+?)")
_POINTS = re.compile(r"(?<!gpus):(?P<points>\d+)(?=$|/)", re.IGNORECASE)


def split_budgets(text: str) -> BudgetTexts:
    """Return the budgets of a list or a range: ``8..40``, ``200..900/day:15``, ``8,12,20/h``, ``gpus:8..40``.

    A unit at the end, or `gpus:` at the beginning, holds for all that have none of their own.
    """
    found = _POINTS.search(text)
    plain = text if found is None else text[: found.start()] + text[found.end() :]
    match = _RANGE.fullmatch(plain.strip())
    words = plain.split(",") if match is None else [match["low"], match["high"]]
    words = [word.strip() for word in words]
    _, slash, per = words[-1].partition("/")
    counts = words[0].lower().startswith("gpus:")
    texts = []
    for word in words:
        if "/" in word or word.lower().startswith("gpus:"):
            texts.append(word)
        else:
            texts.append(f"gpus:{word}" if counts else f"{word}{slash}{per}")
    points = None if found is None or match is None else int(found["points"])
    if found is not None and match is None:
        texts[-1] += found[0]
    return BudgetTexts(texts=tuple(texts), is_range=match is not None, points=points)


def parse_dollars(text: str) -> float:
    """Return a total amount in dollars from ``$1,500`` or ``1500``.

    Raises:
        InputError: when the text is not a positive finite number.
    """
    return _amount(text.strip().removeprefix("$"), text, "--budget")


def _amount(digits: str, text: str, name: str) -> float:
    """Return the positive finite number in `digits`; commas may group thousands."""
    found = number_readings(digits)
    amount = float(found[0]) if found else math.nan
    if not math.isfinite(amount) or amount <= 0:
        raise InputError(f"{name} {text!r}: {digits.strip()!r} is not a positive number", hint=_BUDGET_HINT)
    if "," in digits and "." not in digits and not _THOUSANDS.fullmatch(digits.strip()):
        hint = f"Write {text.strip().replace(digits.strip(), found[0])}"
        raise InputError(f"{name} {text!r}: {digits.strip()!r} has a decimal comma", hint=hint)
    return amount


_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_GROUP_SIGNS = " _'\u2019\u00a0\u202f\u2009"
"""Signs between groups of three digits that never are decimal signs."""
_PLAIN_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_OTHER_BASE = re.compile(r"[+-]?0([xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)")


def number_readings(text: str) -> tuple[str, ...]:
    """Return the numbers that a text may mean, as they are to be written; empty when it is no number.

    One reading: ``12,50`` is 12.50, ``1,250,000`` and ``1 250 000`` are 1250000, ``1.250,5`` is 1250.5. Two:
    ``1,250`` may be 1250 or 1.250, the thousands first. A comma before anything but groups of three digits
    separates no thousands. Digits are kept as typed, so 3.10 stays 3.10.
    """
    text = text.strip()
    if _PLAIN_NUMBER.fullmatch(text):
        return (text,)
    if _OTHER_BASE.fullmatch(text):
        return (str(int(text.replace("+", ""), 0)),)
    sign = text[:1] if text[:1] in ("+", "-") else ""
    body = text[len(sign) :]
    for mark in _GROUP_SIGNS:
        if mark in body:
            whole, point, rest = body, "", ""
            for decimal in ".,":
                if decimal in body:
                    whole, point, rest = body.partition(decimal)
            groups = whole.split(mark)
            is_grouped = re.fullmatch(r"\d{1,3}", groups[0]) and all(
                re.fullmatch(r"\d{3}", g) for g in groups[1:]
            )
            if not (
                is_grouped or (mark == "_" and all(group.isascii() and group.isdigit() for group in groups))
            ):
                return ()
            body = "".join(groups) + ("." + rest if point else "")
            return (sign + body,) if _PLAIN_NUMBER.fullmatch(body) else ()
    if not re.fullmatch(r"[0-9.,]*[0-9][0-9.,]*", body):
        return ()
    by_comma, by_point = _separated(body, group=",", point="."), _separated(body, group=".", point=",")
    return tuple(sign + one for one in dict.fromkeys((*by_comma, *by_point)))


def _separated(body: str, *, group: str, point: str) -> tuple[str, ...]:
    """Return the number in digits with these signs for groups and for decimals; empty if it is none."""
    whole, has_point, rest = body.partition(point)
    groups = whole.split(group)
    if len(groups) > 1:
        is_grouped = re.fullmatch(r"[1-9]\d{0,2}", groups[0]) and all(
            re.fullmatch(r"\d{3}", g) for g in groups[1:]
        )
        if not is_grouped:
            return ()
    if has_point and not rest and point == ",":
        return ()
    number = "".join(groups) + (f".{rest}" if has_point else "")
    number = f"0{number}" if number.startswith(".") else number
    return (number,) if _PLAIN_NUMBER.fullmatch(number) else ()


def micro_dollars(usd: float) -> int:
    """Return whole micro-dollars, rounded to nearest."""
    return round(usd * MICRO_DOLLARS_PER_DOLLAR)


def dollars(micro: int) -> float:
    """Return dollars from whole micro-dollars."""
    return micro / MICRO_DOLLARS_PER_DOLLAR


GPU_MEMORY_FOR_JOBS_FRACTION = 0.94
"""Fraction of a shared GPU's memory that its jobs divide; each process's context needs the rest."""


def format_hours(hours: float) -> str:
    """Return a duration for people: ``42 s``, ``12.5 min``, ``3.20 h`` or ``2.1 days``."""
    if not math.isfinite(hours):
        return "unknown"
    if hours < 1.0 / 60.0:
        return f"{hours * SECONDS_PER_HOUR:.0f} s"
    if hours < 1.0:
        return f"{hours * 60.0:.1f} min"
    if hours < 48.0:
        return f"{hours:.2f} h"
    return f"{hours / HOURS_PER_DAY:.1f} days"


def format_instant(at: float) -> str:
    """Format an instant, in seconds since the epoch, as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
