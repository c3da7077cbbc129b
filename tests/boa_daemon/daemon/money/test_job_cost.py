"""A running job costs its GPUs' share of each of its nodes since its start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from boa_daemon.daemon.money.job_cost import cost_of
from boa_daemon.store.records import InstanceRecord, JobRecord
from boa_daemon.testing import a_node, some_slots
from policies.model import GpuSlot


def a_record(*slots: GpuSlot, started_at: float | None = 3600.0) -> JobRecord:
    """Return a job on these GPUs."""
    values: dict[str, Any] = {"id": "a-1", "seq": 1, "user": "ann", "class_name": "c", "content": {}}
    hours = {"arrived_at": 0.0, "remaining_gpu_hours": 1.0, "size_gpu_hours": 1.0}
    return JobRecord(**values, **hours, slots=slots, started_at=started_at)


NODE = a_node("n1")  # Four GPUs for 4 dollars an hour.
DEAR = replace(a_node("n2", gpus=2), prices=((0.0, 1.0), (7200.0, 3.0)), extras=(("disk", 0.5),))
NODES = {node.id: InstanceRecord(node=node) for node in (NODE, DEAR)}


def test_a_job_pays_for_its_gpus_from_its_start_on() -> None:
    """Three of four GPUs for two hours, however long the node was there before."""
    job = a_record(*some_slots("n1", 0, 1, 2))
    assert cost_of(job, NODES, until=3 * 3600.0) == 6_000_000
    assert cost_of(job, NODES, until=3600.0) == 0
    assert cost_of(job, NODES, until=1800.0) == 0


def test_each_second_costs_what_the_node_cost_then() -> None:
    """One of two GPUs: an hour at 1 dollar, an hour at 3, and half a dollar for the disk in each."""
    assert cost_of(a_record(*some_slots("n2", 1)), NODES, until=3 * 3600.0) == 2_500_000


def test_the_shares_of_several_nodes_add_up() -> None:
    """A node that nobody knows any more costs nothing here."""
    job = a_record(*some_slots("n1", 3), *some_slots("n2", 0, 1), *some_slots("gone", 0))
    assert cost_of(job, NODES, until=3 * 3600.0) == 2_000_000 + 5_000_000


def test_a_job_that_has_not_started_costs_nothing() -> None:
    """Its GPUs may be claimed already."""
    assert cost_of(a_record(*some_slots("n1", 0), started_at=None), NODES, until=1e6) == 0
