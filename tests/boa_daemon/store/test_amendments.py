"""`store/amendments.py`: final bills that are corrected, with what jobs and teams have paid of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from job_records import a_row, a_start, with_nodes

from boa_daemon.daemon.loop.assembly import open_storage
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store.amendments import amend_bills
from boa_daemon.store.purses import read_purses
from boa_daemon.store.records import InstanceRecord
from boa_daemon.store.storage import Storage
from boa_daemon.testing import a_node
from boa_daemon.tick.money.ledger import charge_for

HOUR = 3600.0


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    """A storage of its own."""
    found = open_storage(sqlite_url(tmp_path / "boa.sqlite"), durable=False)
    yield found
    found.close()


def _with_a_bill(storage: Storage) -> InstanceRecord:
    """Have a job of a team hold one of four GPUs at 4 USD an hour from 0:30 to 1:30; the node ends at 2."""
    queue = storage.queue
    with_nodes(queue, "n")
    (job,) = queue.submit([a_row("a", team="ml")], at=0.0)
    queue.claim([a_start(job.id, ("n", 0))], at=0.5 * HOUR)
    queue.release(
        queue.active[job.id], at=1.5 * HOUR, end="finished", status="finished", micro_dollars=1_000_000
    )
    record = queue.instances["n"]
    node = replace(record.node, phase="terminated", ended_at=2.0 * HOUR, prices=((0.0, 4.0),))
    ended = replace(record, node=node)
    queue.save_instance(ended)
    storage.store.record_charge(charge_for(node))
    return ended


def test_a_dearer_price_is_charged_to_the_node_its_job_and_its_team(storage: Storage) -> None:
    """From the first hour on it costs 8 USD an hour: 4 more, half an hour of a quarter is the job's."""
    record = _with_a_bill(storage)
    node = replace(record.node, prices=((0.0, 4.0), (HOUR, 8.0)))

    assert amend_bills(storage, [(record, node)]) == 4_000_000
    assert storage.store.settled_micro_dollars() == 12_000_000
    assert storage.store.settled_since(0.0) == 12_000_000
    assert [each.node.prices for each in storage.queue.past_instances(0.0)] == [node.prices]
    (usage,) = storage.queue.usages(0.0)
    job = storage.queue.job(usage.job)
    assert job is not None
    assert (job.micro_dollars, job.status) == (1_500_000, "finished")
    assert read_purses(storage.store.database, since=0) == [("ml", 0, 500_000), ("ml", 1, 1_000_000)]
    assert amend_bills(storage, [(replace(record, node=node), node)]) == 0
    storage.store.reload()
    assert storage.store.settled_micro_dollars() == 12_000_000


def test_nothing_is_corrected_of_a_node_that_lives_or_has_no_bill(storage: Storage) -> None:
    """Its bill will be made at its end, by what is known then."""
    with_nodes(storage.queue, "n")
    record = storage.queue.instances["n"]

    assert amend_bills(storage, [(record, record.node)]) == 0
    assert amend_bills(storage, []) == 0
    ended = replace(a_node("m"), phase="terminated", ended_at=HOUR)
    assert amend_bills(storage, [(InstanceRecord(node=ended), ended)]) == 0
    assert storage.store.settled_micro_dollars() == 0
