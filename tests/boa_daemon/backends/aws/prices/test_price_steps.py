"""`aws/prices/price_steps.py`: list prices over time."""

from __future__ import annotations

import pytest

from boa_daemon.backends.aws.prices.price_steps import (
    ListPrice,
    PricePath,
    PriceStep,
    PriceSteps,
    after_steps,
    day_of,
)


def live(usd: float, since: float | None = None) -> ListPrice:
    """Return a price that AWS lists."""
    return ListPrice(usd_per_hour=usd, since=since, is_live=True)


NOTED: dict[str, tuple[list[ListPrice], PricePath]] = {
    "one price": ([live(1.0, 50.0)], ((100.0, 1.0),)),
    "a later one": ([live(1.0, 50.0), live(2.0, 300.0)], ((100.0, 1.0), (300.0, 2.0))),
    "one without a date": ([live(1.0), live(2.0)], ((100.0, 1.0), (1000.0, 2.0))),
    "another than that of the launch, without a date": ([live(2.0)], ((100.0, 1.0), (1000.0, 2.0))),
    "another one of the same date": ([live(1.0, 50.0), live(2.0, 50.0)], ((100.0, 1.0), (1000.0, 2.0))),
    "one before the launch": ([live(2.0, 60.0)], ((100.0, 1.0), (100.0, 2.0))),
    "the same price with another date": ([live(1.0, 50.0), live(1.0, 300.0)], ((100.0, 1.0),)),
    "a price that goes back": (
        [live(1.0, 50.0), live(2.0, 300.0), live(1.0, 400.0)],
        ((100.0, 1.0), (300.0, 2.0), (400.0, 1.0)),
    ),
    "an old price of a file": ([ListPrice(usd_per_hour=9.0, since=50.0)], ((100.0, 1.0),)),
    "a newer price of a file": ([ListPrice(usd_per_hour=9.0, since=150.0)], ((100.0, 1.0), (150.0, 9.0))),
    "a file that changes": (
        [ListPrice(usd_per_hour=1.0, since=50.0), ListPrice(usd_per_hour=2.0, since=150.0)],
        ((100.0, 1.0), (1000.0, 2.0)),
    ),
    "a file, and then AWS itself": (
        [ListPrice(usd_per_hour=1.0, since=50.0), live(2.0, 80.0)],
        ((100.0, 1.0), (100.0, 2.0)),
    ),
}


@pytest.mark.parametrize("name", NOTED)
def test_an_instance_is_charged_what_is_in_effect(name: str) -> None:
    """Launched at 100 for a dollar, looked at at 1000; looking again changes nothing."""
    prices, expected = NOTED[name]
    steps = PriceSteps()
    for price in prices:
        steps.note("t", price, now=1000.0)
    path = after_steps(((100.0, 1.0),), steps.of("t"))

    assert path == expected
    assert after_steps(path, steps.of("t")) == path


def test_a_tag_rounds_and_is_no_other_price() -> None:
    """Tags have six digits."""
    assert after_steps(((0.0, 1.00000),), [PriceStep(since=5.0, usd_per_hour=1.0000004)]) == ((0.0, 1.0),)


def test_a_day_begins_in_utc_and_other_text_is_no_day() -> None:
    """Files state days."""
    assert (day_of("1970-01-02"), day_of(""), day_of("spring")) == (86_400.0, None, None)
