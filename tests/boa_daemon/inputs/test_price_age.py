"""The age of prices, and the warning about old prices."""

from __future__ import annotations

from datetime import date

import pytest

from boa_daemon.inputs.price_age import PriceNote, days_old, stale_prices


def note(name: str, as_of: str) -> PriceNote:
    """Return a price note of this date."""
    return PriceNote(gpu_type="g", instance_type=name, usd_per_hour=1.0, as_of=as_of, source="s")


@pytest.mark.parametrize(("as_of", "is_said"), [("2026-10-23", False), ("2026-10-22", True), ("", False)])
def test_a_price_older_than_thirty_days_gives_a_warning(as_of: str, is_said: bool) -> None:
    """A price without a date gives none."""
    assert bool(stale_prices([note("x", as_of)], date(2026, 11, 22))) is is_said


def test_the_warning_groups_types_by_date() -> None:
    """Each date occurs once."""
    said = stale_prices(
        [note("x", "2026-01-01"), note("y", "2026-01-01"), note("z", "2025-01-01")], date(2026, 11, 22)
    )

    assert "(z: 2025-01-01; x, y: 2026-01-01)" in said


def test_a_price_date_that_cannot_be_read_has_no_age() -> None:
    """A price file may have any text as `as_of`."""
    assert days_old("last week", date(2026, 11, 22)) is None
    assert days_old("2026-11-02", date(2026, 11, 22)) == 20
