"""Boots, limits and prices of a world."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from boa_daemon.errors import InputError
from boa_daemon.sim.world_settings import AWS_BOOTS, Boot, Checkpoints, Spot, Stock, WorldSettings


def test_a_lognormal_boot_has_its_median_its_p99_and_its_mean() -> None:
    """180 s half of the time, 900 s exceeded once in a hundred; 5 standard errors of 20,000 draws."""
    boot = AWS_BOOTS["g"]
    rng = Random(1)
    drawn = np.array([boot.draw(rng) for _ in range(20_000)])

    assert (drawn < 180.0).mean() == pytest.approx(0.5, abs=0.018)
    assert (drawn > 900.0).mean() == pytest.approx(0.01, abs=0.0036)
    assert boot.mean_seconds == pytest.approx(drawn.mean(), rel=0.03)


def test_a_constant_boot_draws_nothing() -> None:
    """The median is the p99 and the mean, also at zero."""
    assert Boot.constant(180.0).draw(Random(1)) == Boot.constant(180.0).mean_seconds == 180.0
    assert Boot.constant(0.0).draw(Random(1)) == 0.0


@pytest.mark.parametrize(("median", "p99"), [(2.0, 1.0), (-1.0, 1.0), (0.0, 5.0), (1.0, float("inf"))])
def test_a_boot_that_cannot_be_is_refused(median: float, p99: float) -> None:
    """A p99 below the median, say."""
    with pytest.raises(InputError, match="boot"):
        Boot(median_seconds=median, p99_seconds=p99)


def test_checkpoints_are_apart() -> None:
    """Every zero seconds would be always."""
    with pytest.raises(InputError, match="every_seconds > 0"):
        Checkpoints(every_seconds=0.0)


def test_the_most_nodes_of_a_job_are_those_of_the_best_zone_and_market_within_the_quota() -> None:
    """4 in a, 6 in b, 9 on spot, 8 by quota."""
    zone_stock = {"a": {"": Stock(nodes=4)}, "b": {"k": Stock(path=((0.0, 1), (9.0, 6)))}}
    world = WorldSettings(zones=("a", "b"), zone_stock=zone_stock)

    assert world.most_nodes("k", "gpu") == 6
    assert WorldSettings(zones=("a", "c"), zone_stock=zone_stock).most_nodes("k", "gpu") is None
    spot = Spot(stock=Stock(nodes=9))
    both = WorldSettings(zones=("a", "b"), zone_stock=zone_stock, spot=spot, quotas={"gpu": 8})
    assert both.most_nodes("k", "gpu") == 8
    assert WorldSettings().most_nodes("k", "gpu") is None


def test_a_plan_counts_on_the_mean_spot_price() -> None:
    """Half of the time 0.2 and half 0.4; without a spot market the price is the price."""
    assert WorldSettings(spot=Spot(prices=((0.0, 0.2), (1.0, 0.4)))).mean_price_fraction == pytest.approx(0.3)
    assert WorldSettings(spot=Spot(price_fraction=0.5)).mean_price_fraction == 0.5
    assert WorldSettings().mean_price_fraction == 1.0
