"""`daemon/loop/late_prices.py`: known prices are stored, and final bills are corrected by them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from boa_daemon.backends.simulated import FileCloud
from boa_daemon.daemon.loop.assembly import open_storage
from boa_daemon.daemon.loop.late_prices import AMENDED_SECONDS, LatePrices
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store.records import InstanceRecord
from boa_daemon.store.storage import Storage
from boa_daemon.testing import ManualClock, a_node
from boa_daemon.tick.facts.ports import Provider
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.ledger import charge_for
from policies.model import NodeId

HOUR, NOW = 3600.0, 100 * 86_400.0


@dataclass
class Prices:
    """A cloud that says another price of each node that it is asked about."""

    version: int = 0
    lately: dict[NodeId, float] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    asked: list[list[NodeId]] = field(default_factory=list)
    usd: float = 8.0

    def price_version(self) -> int:
        return self.version

    def lately_priced(self) -> Mapping[NodeId, float]:
        return dict(self.lately)

    def amended(self, nodes: Sequence[NodeState]) -> Sequence[NodeState]:
        self.asked.append([node.id for node in nodes])
        return [replace(node, prices=((node.launched_at, self.usd),)) for node in nodes]

    def bills_are_right(self, nodes: Iterable[NodeId]) -> None:
        for name in nodes:
            self.lately.pop(name, None)

    def price_documents(self) -> Mapping[str, str]:
        return self.documents

    def restore_prices(self, documents: Mapping[str, str]) -> None:
        self.documents = dict(documents)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    """A storage with a node that ended an hour ago, one that ended long ago, and one that lives."""
    found = open_storage(sqlite_url(tmp_path / "boa.sqlite"), durable=False)
    for name, ended_at in (("new", NOW - HOUR), ("old", NOW - AMENDED_SECONDS - HOUR), ("lives", None)):
        node = replace(a_node(name), launched_at=(ended_at or NOW) - HOUR, ended_at=ended_at)
        found.queue.save_instance(InstanceRecord(node=node))
        if ended_at is not None:
            found.store.record_charge(charge_for(node))
    yield found
    found.close()


def late_prices(cloud: Any, storage: Storage) -> LatePrices:
    """Return the part of a daemon with this cloud."""
    return LatePrices(cast(Provider, cloud), storage)


def test_a_new_price_corrects_the_bills_of_five_weeks_once(storage: Storage) -> None:
    """The bill of the node doubles; a second look asks nothing, and other prices are looked at again."""
    cloud = Prices()
    found = late_prices(cloud, storage)

    said = found.look(now=NOW, has_commitments=False)
    assert said == "bills of ended nodes are $4.00 more than charged, as prices became known late: new"
    assert storage.store.settled_micro_dollars() == 12_000_000
    assert found.look(now=NOW, has_commitments=False) == ""
    cloud.version, cloud.usd = 1, 2.0
    assert "$6.00 less" in found.look(now=NOW, has_commitments=False)
    assert cloud.asked == [["new"], ["new"]]


def test_what_commitments_may_have_covered_stays_without_list_prices(storage: Storage) -> None:
    """The record of an older version has what was not covered, not list prices."""
    cloud = Prices()
    assert late_prices(cloud, storage).look(now=NOW, has_commitments=True) == ""
    assert cloud.asked == [[]]


@pytest.mark.parametrize("has_commitments", [True, False])
def test_what_commitments_did_not_cover_is_charged_at_the_late_price(
    storage: Storage, has_commitments: bool
) -> None:
    """Three quarters were covered at a list price of $4; at $8 the quarter costs $2 in place of $1."""
    (record,) = (each for each in storage.queue.past_instances(0.0) if each.node.id == "new")
    begin = record.node.launched_at
    node = replace(record.node, prices=((begin, 1.0),), list_prices=((begin, 4.0),))
    storage.queue.save_instance(replace(record, node=node))
    storage.store.amend_charge(charge_for(node))
    before = storage.store.settled_micro_dollars()
    found = late_prices(Prices(), storage)
    assert "$1.00 more" in found.look(now=NOW, has_commitments=has_commitments)
    assert storage.store.settled_micro_dollars() == before + 1_000_000
    assert found.look(now=NOW, has_commitments=has_commitments) == ""


def test_a_node_whose_last_prices_came_is_looked_at_without_the_others(storage: Storage) -> None:
    """A busy spot site does not read weeks of records each time that a node has ended."""
    cloud = Prices(usd=4.0)
    found = late_prices(cloud, storage)
    found.look(now=NOW, has_commitments=False)
    cloud.lately, cloud.usd = {"new": NOW - HOUR}, 5.0

    assert "$1.00 more" in found.look(now=NOW, has_commitments=False)
    assert cloud.lately == {}


def test_the_next_process_reads_what_is_known(storage: Storage) -> None:
    """Also after a look that changed nothing."""
    late_prices(Prices(usd=4.0, documents={"us-east-1 price t": "text"}), storage).look(
        now=NOW, has_commitments=False
    )
    cloud = Prices()
    late_prices(cloud, storage).restore()

    assert cloud.documents == {"us-east-1 price t": "text"}


def test_a_cloud_without_such_prices_is_left_alone(storage: Storage, tmp_path: Path) -> None:
    """A cloud in a file has one price."""
    cloud = FileCloud(tmp_path / "cloud.sqlite", ManualClock(NOW), durable=False)
    found = late_prices(cloud, storage)
    found.restore()

    assert found.look(now=NOW, has_commitments=False) == ""
    cloud.close()


def test_a_database_that_fails_is_tried_again(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is corrected by half, and no tick fails for it."""
    cloud = Prices()
    found = late_prices(cloud, storage)

    def full(charge: object) -> int:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(storage.store, "amend_charge", full)
        assert found.look(now=NOW, has_commitments=False) == ""
    assert storage.store.settled_micro_dollars() == 8_000_000
    assert "$4.00 more" in found.look(now=NOW, has_commitments=False)
