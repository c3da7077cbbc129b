"""How old a price is, and when that is said."""

from __future__ import annotations

from datetime import date

import pytest

from boa_daemon.inputs.price_age import PriceNote, days_old, stale_prices


def note(name: str, as_of: str) -> PriceNote:
    """Return a note of a day."""
    return PriceNote(gpu_type="g", instance_type=name, usd_per_hour=1.0, as_of=as_of, source="s")


@pytest.mark.parametrize(("as_of", "is_said"), [("2026-10-23", False), ("2026-10-22", True), ("", False)])
def test_a_price_of_more_than_thirty_days_is_said(as_of: str, is_said: bool) -> None:
    """Thirty days are fine; of a price without a day nothing is known."""
    assert bool(stale_prices([note("x", as_of)], date(2026, 11, 22))) is is_said


def test_the_sentence_names_types_and_days() -> None:
    """Each day once."""
    said = stale_prices(
        [note("x", "2026-01-01"), note("y", "2026-01-01"), note("z", "2025-01-01")], date(2026, 11, 22)
    )

    assert "(z: 2025-01-01; x, y: 2026-01-01)" in said


def test_a_text_that_is_no_day_has_no_age() -> None:
    """Price files may say anything as as_of."""
    assert days_old("last week", date(2026, 11, 22)) is None
    assert days_old("2026-11-02", date(2026, 11, 22)) == 20
