"""Boots, limits and prices of a world."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from boa_daemon.errors import InputError
from boa_daemon.sim.world_settings import AWS_BOOTS, Boot, Checkpoints, Spot, Stock, WorldSettings


def test_a_lognormal_boot_has_its_median_its_p99_and_its_mean() -> None:
    """Half of 20,000 draws are below 180 s and one in a hundred is above 900 s, within 5 standard errors."""
    boot = AWS_BOOTS["g"]
    rng = Random(1)
    drawn = np.array([boot.draw(rng) for _ in range(20_000)])

    assert (drawn < 180.0).mean() == pytest.approx(0.5, abs=0.018)
    assert (drawn > 900.0).mean() == pytest.approx(0.01, abs=0.0036)
    assert boot.mean_seconds == pytest.approx(drawn.mean(), rel=0.03)


def test_a_constant_boot_always_takes_the_same_time() -> None:
    """Its mean is the same time, also at zero."""
    assert Boot.constant(180.0).draw(Random(1)) == Boot.constant(180.0).mean_seconds == 180.0
    assert Boot.constant(0.0).draw(Random(1)) == 0.0


@pytest.mark.parametrize(("median", "p99"), [(2.0, 1.0), (-1.0, 1.0), (0.0, 5.0), (1.0, float("inf"))])
def test_an_impossible_boot_is_refused(median: float, p99: float) -> None:
    """An example is a p99 below the median."""
    with pytest.raises(InputError, match="boot"):
        Boot(median_seconds=median, p99_seconds=p99)


def test_a_checkpoint_interval_of_zero_is_refused() -> None:
    """It would mean checkpoints all the time."""
    with pytest.raises(InputError, match="every_seconds > 0"):
        Checkpoints(every_seconds=0.0)


def test_a_job_may_have_the_nodes_of_the_best_zone_and_market_within_the_quota() -> None:
    """There are 4 nodes in zone a, 6 in b, 9 on spot, and 8 by quota."""
    zone_stock = {"a": {"": Stock(nodes=4)}, "b": {"k": Stock(path=((0.0, 1), (9.0, 6)))}}
    world = WorldSettings(zones=("a", "b"), zone_stock=zone_stock)

    assert world.most_nodes("k", "gpu") == 6
    assert WorldSettings(zones=("a", "c"), zone_stock=zone_stock).most_nodes("k", "gpu") is None
    spot = Spot(stock=Stock(nodes=9))
    both = WorldSettings(zones=("a", "b"), zone_stock=zone_stock, spot=spot, quotas={"gpu": 8})
    assert both.most_nodes("k", "gpu") == 8
    assert WorldSettings().most_nodes("k", "gpu") is None


def test_a_plan_counts_on_the_mean_spot_price() -> None:
    """Without a spot market the fraction is 1."""
    assert WorldSettings(spot=Spot(prices=((0.0, 0.2), (1.0, 0.4)))).mean_price_fraction == pytest.approx(0.3)
    assert WorldSettings(spot=Spot(price_fraction=0.5)).mean_price_fraction == 0.5
    assert WorldSettings().mean_price_fraction == 1.0
