"""`store/purses.py`: what a job costs by the hour, and what teams have spent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from job_records import a_queue, a_row, a_start, with_nodes

from boa_daemon.store.purses import add_to_purse, hourly_costs, read_purses
from boa_daemon.store.records import JobRecord
from boa_daemon.testing import a_node
from policies.model import GpuSlot

HOUR = 3600.0


def a_record(*slots: tuple[str, int], started_at: float | None = 0.0) -> JobRecord:
    """Return a job that holds these GPUs."""
    return JobRecord(
        id="a-1",
        seq=1,
        user="ann",
        class_name="default",
        content=a_row("a")[0],
        arrived_at=0.0,
        remaining_gpu_hours=1.0,
        size_gpu_hours=1.0,
        slots=tuple(GpuSlot(*slot) for slot in slots),
        started_at=started_at,
    )


def test_a_job_pays_its_share_of_each_node_in_each_hour() -> None:
    """One of four GPUs at 4 USD an hour from 0:30 to 2:15 costs 0.50, 1.00 and 0.25 USD."""
    found = hourly_costs(a_record(("n", 0), started_at=0.5 * HOUR), {"n": a_node("n")}, until=2.25 * HOUR)
    assert found == {0: 500_000, 1: 1_000_000, 2: 250_000}


def test_gpus_on_two_nodes_add_up() -> None:
    """Three GPUs of one node and one of another cost as much as four of one."""
    nodes = {name: a_node(name) for name in ("n", "m", "other")}
    slots = (("n", 0), ("n", 1), ("n", 2), ("m", 3))
    assert hourly_costs(a_record(*slots), nodes, until=HOUR) == {0: 4_000_000}


def test_a_part_of_a_micro_dollar_counts_as_a_whole_one() -> None:
    """A cap is never exceeded by what was rounded away: a third of 10 micro-dollars are 4."""
    kind = replace(a_node("n").instance_type, gpus=3, usd_per_hour=10e-6)
    node = replace(a_node("n"), instance_type=kind, gpus=(None, None, None))
    assert hourly_costs(a_record(("n", 0)), {"n": node}, until=HOUR) == {0: 4}


def test_a_node_that_ended_costs_nothing_afterwards() -> None:
    """The job's release comes later than the end of its node."""
    node = replace(a_node("n"), ended_at=0.25 * HOUR)
    assert hourly_costs(a_record(("n", 0)), {"n": node}, until=2.0 * HOUR) == {0: 250_000, 1: 0}


@pytest.mark.parametrize(
    ("since", "hours"), [(0.0, {0, 1, 2}), (HOUR, {1, 2}), (2.5 * HOUR, {2}), (3.0 * HOUR, set())]
)
def test_hours_before_an_instant_are_left_out(since: float, hours: set[int]) -> None:
    """Whole hours: that of the instant is there."""
    assert hourly_costs(a_record(("n", 0)), {"n": a_node("n")}, until=3.0 * HOUR, since=since).keys() == hours


def test_a_job_that_never_started_costs_nothing() -> None:
    """It holds no GPUs."""
    assert hourly_costs(a_record(started_at=None), {}, until=HOUR) == {}


def test_spending_is_added_up_by_team_and_hour(tmp_path: Path) -> None:
    """The release of a team's job adds to its purse, and earlier hours can be left out."""
    with a_queue(tmp_path) as queue:
        with queue.database.write() as connection:
            add_to_purse(connection, "vision", {4: 10, 5: 20})
            add_to_purse(connection, "vision", {5: 3})
            add_to_purse(connection, "speech", {5: 7})
        assert sorted(read_purses(queue.database, since=5)) == [("speech", 5, 7), ("vision", 5, 23)]
        assert len(read_purses(queue.database, since=0)) == 3

        with_nodes(queue, "n")
        [job] = queue.submit([a_row("a", team="vision")], at=0.0)
        queue.claim([a_start(job.id, ("n", 0))], at=5.0 * HOUR)
        queue.release(queue.active[job.id], at=6.0 * HOUR, end="finished", status="finished")
        assert ("vision", 5, 23 + 1_000_000) in read_purses(queue.database, since=5)
