"""What commitments were worth: their use at on-demand prices, less what they cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boa_daemon.daemon.money.commitment_worth import commitment_worths
from boa_daemon.testing import a_node
from boa_daemon.tick.facts.limits import FixedCost
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.commitments import CommitmentLevel, SiteCommitments
from policies.model import InstanceType

HOUR, NOON = 3600.0, 1_800_014_400.0
SMALL = InstanceType(name="g5.xlarge", gpu_type="a10g", gpus=1, usd_per_hour=1.0)
OTHER = InstanceType(name="g6.xlarge", gpu_type="l4", gpus=1, usd_per_hour=0.8)


def level(name: str, usd: float, rates: dict[str, float], *, is_block: bool = False, **when: float) -> Any:
    cost = FixedCost(name=name, usd_per_hour=usd, **when)
    return CommitmentLevel(cost=cost, rates=rates, is_block=is_block)


def site(*levels: CommitmentLevel) -> SiteCommitments:
    return SiteCommitments(levels=levels, machines=(SMALL, OTHER))


def node(name: str, *prices: tuple[float, float], kind: InstanceType = SMALL, **changes: Any) -> NodeState:
    found = replace(a_node(name, kind=kind), launched_at=NOON, prices=tuple(prices))
    return replace(found, **changes)


def test_a_covered_hour_is_worth_its_price_on_demand() -> None:
    """0.8 USD/h cover one node of 1 USD/h: ten hours save 2 dollars; uncovered hours lose 0.8 each."""
    ours = site(level("ours", 0.8, {"g5.xlarge": 0.8}))
    ended = node("a", (NOON, 0.0), ended_at=NOON + 10 * HOUR)
    (worth,) = commitment_worths(ours, [ended], since=NOON, now=NOON + 10 * HOUR)
    assert (worth.paid_usd, worth.used_usd) == (pytest.approx(8.0), pytest.approx(10.0))
    assert worth.saved_usd == pytest.approx(2.0)
    (worth,) = commitment_worths(ours, [ended], since=NOON, now=NOON + 20 * HOUR)
    assert worth.saved_usd == pytest.approx(10.0 - 16.0)


def test_parts_of_nodes_price_changes_and_other_nodes() -> None:
    """Half a node for an hour, then a whole one; spot and full-price nodes are worth nothing."""
    ours = site(level("ours", 0.8, {"g5.xlarge": 0.8}))
    nodes = [
        node("half", (NOON, 0.5), (NOON + HOUR, 0.0)),
        node("full", (NOON, 1.0)),
        node("spot", (NOON, 0.2), market="spot"),
        node("other", (NOON, 0.1), kind=OTHER),
    ]
    (worth,) = commitment_worths(ours, nodes, since=NOON, now=NOON + 2 * HOUR)
    assert worth.used_usd == pytest.approx(0.5 + 1.0)


def test_two_commitments_share_a_type_in_the_order_in_which_they_cover() -> None:
    """Three covered nodes: the first commitment covers two of them, the second the third."""
    first = level("first", 1.6, {"g5.xlarge": 0.8})
    second = level("second", 0.5, {"g5.xlarge": 0.5, "g6.xlarge": 0.4})
    nodes = [node(name, (NOON, 0.0)) for name in "abc"] + [node("d", (NOON, 0.8), kind=OTHER)]
    worths = commitment_worths(site(first, second), nodes, since=NOON, now=NOON + HOUR)
    assert [one.used_usd for one in worths] == [pytest.approx(2.0), pytest.approx(1.0)]


def test_a_block_is_worth_the_hours_of_its_nodes_while_it_lasts() -> None:
    """Two instances for four hours at 4 dollars in all; a third node in it counts for nothing."""
    block = level("now", 1.0, {"g5.xlarge": 0.5}, is_block=True, begins_at=NOON, ends_at=NOON + 4 * HOUR)
    nodes = [node(name, (NOON, 0.0), market="reserved") for name in "abc"]
    (worth,) = commitment_worths(site(block), nodes, since=NOON - HOUR, now=NOON + 9 * HOUR)
    assert (worth.paid_usd, worth.used_usd) == (pytest.approx(4.0), pytest.approx(8.0))
    assert worth.to_document()["kind"] == "block"


def test_nothing_is_said_of_what_was_not_paid_for() -> None:
    """A commitment that begins later, and a site without any."""
    later = level("later", 1.0, {"g5.xlarge": 0.8}, begins_at=NOON + HOUR)
    assert commitment_worths(site(later), [], since=NOON, now=NOON + HOUR) == []
    assert commitment_worths(site(), [node("a", (NOON, 0.0))], since=NOON, now=NOON + HOUR) == []
