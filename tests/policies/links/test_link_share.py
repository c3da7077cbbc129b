"""The mean slowdown of jobs that share links."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.links.contention import Link
from policies.links.link_share import across_nodes, network_share, slowdowns
from policies.model import AllReduce
from policies.speedup import Amdahl, Table

SHARES = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.01, 10.0), min_size=1)


def test_the_share_is_the_time_of_a_lone_message_over_the_compute() -> None:
    """The share is c / t with c = a + b M."""
    link = Link(latency_seconds=0.001, seconds_per_byte=1e-9, contention_seconds_per_byte=0.0)
    need = AllReduce(message_bytes=99e6, compute_seconds=0.2)

    assert network_share(link, need) == pytest.approx((0.001 + 0.099) / 0.2)


def test_a_width_beyond_one_node_pays_for_the_link() -> None:
    """Up to one node's GPUs the curve is unchanged; beyond, speed is divided by 1 + c / t."""
    curve = Amdahl(parallel_fraction=0.9, max_gpus=8)

    linked = across_nodes(curve, gpus_per_node=4, share=0.25)

    assert linked.speed_at(4) == curve.speed_at(4)
    assert linked.speed_at(5) == pytest.approx(curve.speed_at(5) / 1.25)


def test_a_measured_table_includes_its_link_already() -> None:
    """Tables stay unchanged, whatever the network."""
    table = Table(gpus=(1, 8), speeds=(1.0, 6.0))

    assert across_nodes(table, gpus_per_node=4, share=3.0) is table


@given(shares=SHARES, in_order=st.booleans())
def test_jobs_with_links_of_their_own_are_not_slowed(shares: dict[str, float], in_order: bool) -> None:
    """Every factor is one where no two jobs share a link."""
    apart = {job: (f"{job}-0", f"{job}-1") for job in shares}

    assert slowdowns(apart, shares, crowding=0.3, in_order=in_order) == pytest.approx(
        dict.fromkeys(shares, 1.0)
    )


@given(shares=SHARES, in_order=st.booleans(), crowding=st.floats(0.0, 1.0))
def test_sharing_never_speeds_a_job_up(shares: dict[str, float], in_order: bool, crowding: float) -> None:
    """Every factor is one or more."""
    together = dict.fromkeys(shares, (0, 1))

    factors = slowdowns(together, shares, crowding=crowding, in_order=in_order)

    assert min(factors.values()) >= 1.0 - 1e-12


@given(shares=SHARES)
def test_the_best_ranked_job_is_not_slowed(shares: dict[str, float]) -> None:
    """In order, the first job sends as if alone."""
    factors = slowdowns(dict.fromkeys(shares, (0, 1)), shares)

    assert factors[next(iter(shares))] == 1.0


def test_the_second_job_gets_the_link_time_that_the_first_leaves() -> None:
    """With c = t the first job uses half of the time, so the second job's message takes twice as long."""
    factors = slowdowns({"first": (0, 1), "second": (1, 2)}, {"first": 1.0, "second": 1.0})

    assert factors["second"] == pytest.approx((1.0 + 1.0 / 0.5) / (1.0 + 1.0))


def test_a_faster_uplink_carries_two_jobs_without_slowing_them() -> None:
    """With c = t the first job uses an eighth of the time of an uplink four times as fast as a card.

    So the second job has the whole speed of its card. On an uplink as fast as a card the second job waits as
    for a card.
    """
    shares = {"first": 1.0, "second": 1.0}
    fast = {job: {f"{job}-card": 1.0, "uplink": 0.25} for job in shares}
    same = {job: {f"{job}-card": 1.0, "uplink": 1.0} for job in shares}

    assert slowdowns(fast, shares)["second"] == 1.0
    assert slowdowns(same, shares)["second"] == pytest.approx(1.5)
    assert slowdowns(fast, shares, in_order=False)["second"] == pytest.approx(1.0)
    assert slowdowns(same, shares, in_order=False)["second"] > 1.1
