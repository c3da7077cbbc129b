"""A spot price history as a world: shares of the price on demand, and how often they came to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from boa_daemon.sim.price_history import LEAST_FRACTION, PriceHistory, cheapest_zone, price_history
from boa_daemon.sim.world_settings import Spot

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)


def history(*prices: float, every_hours: float = 1.0, usd: float = 2.0) -> PriceHistory:
    """Return the history of prices at equal times, for a machine of two dollars on demand."""
    return price_history(
        [(BEGIN + timedelta(hours=every_hours * n), one) for n, one in enumerate(prices)], usd
    )


def test_prices_are_shares_of_on_demand_and_end_at_it() -> None:
    """In the order of time; a price of nothing would divide by zero."""
    found = history(0.5, 3.0, 0.0)
    assert found.steps == ((0.0, 0.25), (3600.0, 1.0), (7200.0, LEAST_FRACTION))
    assert found.hours == 2.0
    rows = [(BEGIN + timedelta(hours=2), 1.0), (BEGIN, 0.5)]
    assert price_history(rows, 2.0).steps == ((0.0, 0.25), (7200.0, 0.5))
    assert (price_history(rows, 2.0).begins_at, price_history(rows, 2.0).ends_at) == (BEGIN, rows[0][0])


@pytest.mark.parametrize(
    ("prices", "reached"),
    [((0.5, 1.9), 0), ((0.5, 2.0), 1), ((2.0, 2.0, 3.0), 1), ((2.0, 1.0, 2.0, 1.0, 2.5), 3)],
)
def test_a_price_that_stays_at_on_demand_came_to_it_once(prices: tuple[float, ...], reached: int) -> None:
    """A history that begins there has reached it."""
    assert history(*prices).reached == reached


def test_interruptions_come_as_often_as_the_price_did_if_that_is_oftener_than_usual() -> None:
    """At most one a minute; without any, the default's."""
    usual = Spot().mean_interruption_hours
    assert history(0.5, 0.6).mean_interruption_hours == usual
    assert history(0.5, 2.0, 0.5, 2.0, 0.5).mean_interruption_hours == 2.0
    assert history(0.5, 2.0, every_hours=1000.0).mean_interruption_hours == usual
    assert history(0.5, 2.0, every_hours=1e-6).mean_interruption_hours == 1.0 / 60.0


def test_the_mean_price_is_that_over_time() -> None:
    """An hour at a quarter, three at a half; the last price holds as long as they do on average."""
    rows = [(BEGIN, 0.5), (BEGIN + timedelta(hours=1), 1.0), (BEGIN + timedelta(hours=4), 2.0)]
    assert price_history(rows, 2.0).mean_fraction == pytest.approx((0.25 + 3 * 0.5 + 2 * 1.0) / 6.0)


def test_the_cheapest_zone_is_the_first_of_the_cheapest() -> None:
    """By name where they are equal."""
    assert cheapest_zone({"c": history(0.5), "b": history(0.5), "a": history(0.9)}) == "b"
