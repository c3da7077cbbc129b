"""How wide a job may be that is spread: the closed form against counting GPUs."""

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
def test_it_is_the_widest_job_whose_own_gpus_cost_less_than_a_node(gpus: int, share: float) -> None:
    """Kept together at worst it pays for a whole node; spread it holds its GPUs 1 + s times as long."""
    pays = [n for n in range(2, gpus + 1) if n * (1.0 + share) < gpus]
    edge = gpus / (1.0 + share)

    if not math.isclose(edge, round(edge)):
        assert widest_to_spread(gpus, share) == max(pays, default=1)


@pytest.mark.parametrize(
    ("gigabits", "most"), [(1.0, 1), (10.0, 1), (25.0, 1), (100.0, 2), (400.0, 3), (1e6, 3)]
)
def test_vgg16_on_nodes_of_four_by_the_speed_of_their_links(gigabits: float, most: int) -> None:
    """526 MB for 90 ms of computing: at 100 Gbit/s half a second per second, so 4 / 1.5 = 2.67."""
    share = network_share(Link.of_gigabits(gigabits), AllReduce(message_bytes=526.4e6, compute_seconds=0.090))

    assert widest_to_spread(4, share) == most


def test_a_job_that_fills_a_node_is_never_spread() -> None:
    """It leaves nothing empty there: not even free messages would make up for two nodes instead of one."""
    assert widest_to_spread(8, 0.0) == 7
    assert widest_to_spread(2, 0.0) == 1
