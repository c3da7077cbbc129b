"""Totals over the nodes of a run: GPU time, bills, and what commitments could have paid for."""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.sim.node_totals import NodeTotals
from boa_daemon.testing import a_node

NODE = a_node(launched_at=100.0)  # Four GPUs for 4 dollars an hour.


def test_a_node_counts_its_gpus_from_launch_to_end() -> None:
    """A boot that was not over counts as long as it lasted."""
    totals = NodeTotals()
    totals.ended(NODE, at=3700.0, boot_seconds=180.0)
    assert (totals.rented_gpu_seconds, totals.booting_gpu_seconds) == (4 * 3600.0, 4 * 180.0)
    assert totals.micro_dollars == 4_000_000
    totals.ended(NODE, at=200.0, boot_seconds=180.0)
    assert totals.booting_gpu_seconds == 4 * 280.0


def test_commitments_pay_for_nodes_on_demand_alone() -> None:
    """Spot has prices of its own."""
    totals = NodeTotals()
    totals.ended(NODE, at=3700.0, boot_seconds=0.0)
    totals.ended(replace(NODE, market="spot"), at=3700.0, boot_seconds=0.0)
    assert totals.on_demand == [("gpu", 4, 100.0, 3700.0)]


def test_a_stopped_node_costs_its_disk_until_it_is_started_or_ended() -> None:
    """One that is still stopped has no time yet."""
    totals = NodeTotals()
    disk = replace(NODE, phase="stopped", prices=((100.0, 0.0),), extras=(("disk", 0.5),))
    totals.stopped(replace(disk, ended_at=7300.0))
    assert (totals.stops, totals.stopped_node_seconds, totals.micro_dollars) == (1, 7200.0, 1_000_000)
    totals.stopped(disk)
    assert totals.stopped_node_seconds == 7200.0


def test_the_most_that_was_spent_allows_for_a_rounding_of_each_bill() -> None:
    """A micro-dollar for each launch and each stop."""
    assert NodeTotals(micro_dollars=5_000_000, launches=3, stops=2).most_usd == 5.000005


def test_refusals_are_counted_by_kind() -> None:
    """Those of one kind together."""
    totals = NodeTotals()
    for kind in ("no-capacity", "quota", "no-capacity"):
        totals.refused(kind)
    assert totals.refusals == {"no-capacity": 2, "quota": 1}
