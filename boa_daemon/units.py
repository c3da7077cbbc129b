"""Conversions of units: budgets as people write them, dollars and micro-dollars, hours and seconds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from boa_daemon.errors import InputError
from boa_daemon.number_text import NotOneNumber, is_grouped, number_of, number_readings, without_dollars
from policies.money_text import in_dollars

if TYPE_CHECKING:
    from policies.model import Budget

SECONDS_PER_HOUR = 3600.0
HOURS_PER_DAY = 24.0
HOURS_PER_WEEK = 168.0
HOURS_PER_MONTH = 730.0
"""A month is 365 / 12 days, as cloud price lists count it."""
HOURS_PER_YEAR = 8760.0
MICRO_DOLLARS_PER_DOLLAR = 1_000_000

_HOURS = {
    name: hours
    for names, hours in {
        "h hr hrs hour hours": 1.0,
        "d day days": HOURS_PER_DAY,
        "w wk week weeks": HOURS_PER_WEEK,
        "mo month months": HOURS_PER_MONTH,
        "y yr year years": HOURS_PER_YEAR,
    }.items()
    for name in names.split()
}
_RATE = re.compile(r"(?P<amount>[^/]*[^/\s])\s*/\s*(?P<per>[a-z]+)\.?", re.IGNORECASE)
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
        is_bare = re.fullmatch(r"[^\d/a-z]*\d[^/a-z]*", cleaned) is not None
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
        amount = usd_per_hour * self.hours
        return f"{in_dollars(amount) if digits == 2 else f'${amount:,.{digits}f}'}/{self.name}"

    def budget(self, amount: float, unit: str) -> str:
        """Return a budget as text: dollars in this unit, or GPUs."""
        return f"{amount:,.4g} GPUs" if unit == "gpus" else self.usd(amount)


PER_HOUR = Per("h", 1.0)


def per_of(text: str | None) -> Per:
    """Return the unit of time of a budget as typed; an hour for anything else."""
    match = None if text is None else _RATE.fullmatch(text.strip())
    word = "" if match is None else match["per"].lower()
    hours = _HOURS.get(word, 1.0)
    names = {HOURS_PER_DAY: "day", HOURS_PER_WEEK: "week", HOURS_PER_MONTH: "month", HOURS_PER_YEAR: "year"}
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
    return _amount(text, text, "--budget")


def _amount(digits: str, text: str, name: str) -> float:
    """Return the positive finite number in `digits`; commas may group thousands, and dollars have a sign.

    A comma before three digits groups them, since nobody writes tenths of a cent; a point before three digits
    of which the last is a zero may do so too.
    """
    try:
        bare = without_dollars(digits)
        found = number_readings(bare)
        amount = number_of(found[0] if len(found) == 2 else bare)
    except NotOneNumber as error:
        said = str(error) if "budgets" in str(error) else f"{digits.strip()!r} is not a positive number"
        shown = re.match(r"Write ([\d.]+)(?:, or|$)", error.hint)
        hint = text.strip().replace(bare, shown[1]) if shown else ""
        raise InputError(f"{name} {text!r}: {said}", hint=f"Write {hint}" if hint else _BUDGET_HINT) from None
    if amount <= 0:
        raise InputError(f"{name} {text!r}: {digits.strip()!r} is not a positive number", hint=_BUDGET_HINT)
    if "," in bare and "." not in bare and not is_grouped(bare):
        hint = f"Write {text.strip().replace(bare, found[0])}"
        raise InputError(f"{name} {text!r}: {bare!r} has a decimal comma", hint=hint)
    if _POINT_GROUP.fullmatch(bare):
        both = [text.strip().replace(bare, one) for one in (bare.replace(".", ""), f"{amount:g}")]
        problem = f"{name} {text!r}: {bare!r} may be {bare.replace('.', '')} or {amount:g}"
        raise InputError(problem, hint=f"Write {' or '.join(both)}")
    return amount


_POINT_GROUP = re.compile(r"[1-9]\d{0,2}\.\d\d0", re.ASCII)


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
