"""Kappa, the widest job that is worth spreading: the closed form against counting GPUs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.links.contention import Link
from policies.links.link_share import network_share
from policies.model import AllReduce
from policies.placement.kappa import widest_to_spread


@given(gpus=st.integers(1, 16), share=st.floats(0.0, 50.0))
def test_kappa_is_the_widest_job_whose_own_gpus_cost_less_than_a_node(gpus: int, share: float) -> None:
    """Together a job may pay for a whole node; spread, it holds its GPUs 1 + s times as long."""
    pays = [n for n in range(2, gpus + 1) if n * (1.0 + share) < gpus]
    edge = gpus / (1.0 + share)

    if not math.isclose(edge, round(edge)):
        assert widest_to_spread(gpus, share) == max(pays, default=1)


@pytest.mark.parametrize(
    ("gigabits", "most"), [(1.0, 1), (10.0, 1), (25.0, 1), (100.0, 2), (400.0, 3), (1e6, 3)]
)
def test_kappa_of_vgg16_grows_with_the_speed_of_links(gigabits: float, most: int) -> None:
    """526 MB per 90 ms of computing: at 100 Gbit/s half a second per second, so 4 / 1.5 = 2.67."""
    share = network_share(Link.of_gigabits(gigabits), AllReduce(message_bytes=526.4e6, compute_seconds=0.090))

    assert widest_to_spread(4, share) == most


def test_a_job_that_fills_a_node_is_never_spread() -> None:
    """The job leaves no GPU of its node empty, so even free messages do not justify a second node."""
    assert widest_to_spread(8, 0.0) == 7
    assert widest_to_spread(2, 0.0) == 1
