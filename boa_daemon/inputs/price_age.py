"""The day and the source of each price, and a warning when prices are too old."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

SPOT_SOURCE = "spot: "
"""Begins the source of a price that is of the spot market."""
STALE_DAYS = 30
"""Age in days above which a price is reported as stale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceNote:
    """The price of an instance type in a plan; `as_of` is an ISO date, empty if unknown."""

    gpu_type: str
    instance_type: str
    usd_per_hour: float
    as_of: str
    source: str

    def to_document(self) -> dict[str, object]:
        """Return the note as JSON."""
        return {
            "gpu_type": self.gpu_type,
            "instance_type": self.instance_type,
            "usd_per_hour": self.usd_per_hour,
            "as_of": self.as_of or None,
            "source": self.source,
        }


def days_old(as_of: str, today: date) -> int | None:
    """Return how many days ago an ISO date is; None if the text is not a date."""
    try:
        return (today - date.fromisoformat(as_of)).days
    except ValueError:
        return None


def stale_prices(notes: Iterable[PriceNote], today: date) -> str:
    """Return a sentence about prices that are too old; empty if there are none."""
    old: dict[str, list[str]] = {}
    for note in notes:
        age = days_old(note.as_of, today)
        if age is not None and age > STALE_DAYS:
            old.setdefault(note.as_of, []).append(note.instance_type)
    if not old:
        return ""
    said = "; ".join(f"{', '.join(names)}: {day}" for day, names in sorted(old.items()))
    return f"prices are older than {STALE_DAYS} days ({said}); `boa prices refresh FILE`, then --prices FILE"


def spot_priced(notes: Iterable[PriceNote]) -> str:
    """Return a sentence about types that are planned at spot prices; empty if there are none."""
    names = [note.instance_type for note in notes if note.source.startswith(SPOT_SOURCE)]
    if not names:
        return ""
    return (
        f"spot prices are the only ones of {', '.join(names)}: the plan pays them and counts no "
        "interruption; add a price on demand to plan with both"
    )
