"""Stock and prices over time: reproducible paths with the stated averages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.sim.step_functions import StepFunction, price_path, stock_path
from boa_daemon.sim.world_settings import Spot, Stock

HOUR = 3600.0


def test_a_path_holds_each_value_until_the_next_step() -> None:
    """The first value also holds before its step, and the last one for ever."""
    path = StepFunction(iter([(10.0, 1), (20.0, 2)]))

    assert [path.at(t) for t in (0.0, 10.0, 19.9, 20.0, 1e9)] == [1, 1, 1, 2, 2]
    assert [path.next_change(t) for t in (0.0, 10.0, 20.0)] == [20.0, 20.0, math.inf]
    assert path.steps_from(15.0, 25.0) == ((15.0, 1), (20.0, 2))


@given(looks=st.lists(st.floats(0.0, 1e6), max_size=20))
def test_reading_a_path_does_not_change_it(looks: list[float]) -> None:
    """In any order of reading, the values are those of the seed."""
    stock = Stock(nodes=5, mean_in_hours=2.0)
    one, other = (stock_path(stock, "seed", start=0.0) for _ in range(2))
    other.at(2e6)

    assert [one.at(at) for at in looks] == [other.at(at) for at in looks]


def test_stock_is_available_for_the_stated_share_of_the_time() -> None:
    """6 hours in and 2 hours out give 0.75, within 5 standard errors."""
    path = stock_path(Stock(nodes=5, mean_in_hours=6.0, mean_out_hours=2.0), "s", start=0.0)
    at = np.linspace(0.0, 40_000.0 * HOUR, 200_000)
    share = np.mean([path.at(t) == 5.0 for t in at])

    assert share == pytest.approx(0.75, abs=5.0 * 0.75 * 0.25 * math.sqrt(2.0 / 5000.0))


def test_spot_prices_vary_around_their_mean_and_never_exceed_on_demand() -> None:
    """The mean logarithm is that of 0.3 of 10 USD, its spread is 0.2, and its memory is a day."""
    path = price_path(Spot(price_fraction=0.3), 10.0, "s", start=0.0)
    logs = np.log([path.at(hour * HOUR) for hour in range(20_000)])

    assert logs.mean() == pytest.approx(math.log(3.0), abs=0.05)
    assert logs.std() == pytest.approx(0.2, rel=0.1)
    assert np.corrcoef(logs[:-24], logs[24:])[0, 1] == pytest.approx(math.exp(-1.0), abs=0.1)
    dear = price_path(Spot(price_fraction=0.95, price_volatility=0.5), 10.0, "s", start=0.0)
    assert max(dear.at(hour * HOUR) for hour in range(1000)) == 10.0


def test_recorded_paths_are_replayed_from_the_start_of_the_run() -> None:
    """Seconds in a file count from the start of the run."""
    stock = stock_path(Stock(path=((0.0, 3), (60.0, 0))), "s", start=1000.0)
    price = price_path(Spot(prices=((0.0, 0.5), (60.0, 0.25))), 8.0, "s", start=1000.0)

    assert [stock.at(t) for t in (1000.0, 1059.0, 1060.0)] == [3.0, 3.0, 0.0]
    assert [price.at(t) for t in (1000.0, 1060.0)] == [4.0, 2.0]
