"""`backends/slurm.py`: partitions are offers, nodes are taken by name, and Slurm's states are observed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.backends.slurm import FREE_USD_PER_HOUR, Partition, SlurmCloud
from boa_daemon.slurm.commands import SlurmJob, SlurmNode
from boa_daemon.testing import ManualClock, an_instance_type
from boa_daemon.testing.contracts import check_cloud
from boa_daemon.testing.fake_slurm import FakeSlurm
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.ports import Launched, Refused
from boa_daemon.tick.money.ledger import bill


def a_slurm() -> FakeSlurm:
    """Return a Slurm with three own nodes and two that are powered down."""
    own = [SlurmNode(name=f"n{number}", partition="own", state="idle") for number in (1, 2, 3)]
    rented = [SlurmNode(name=f"c{number}", partition="rented", state="idle", marks="~") for number in (1, 2)]
    return FakeSlurm([*own, *rented])


def a_cloud(slurm: FakeSlurm, folder: Path, clock: ManualClock, **changes: Any) -> SlurmCloud:
    """Return the cloud of that Slurm: own nodes cost nothing, rented ones 3 USD an hour."""
    partitions = {
        "own": Partition(name="own", **changes),
        "rented": Partition(name="rented", usd_per_hour=3.0),
    }
    return SlurmCloud(slurm, clock, partitions=partitions, file=folder / "slurm.json")


def order(partition: str = "own", count: int = 1, *, name: str = "l1", is_gang: bool = False) -> LaunchNodes:
    """Return a launch in a partition."""
    machine = replace(an_instance_type(gpus=4), name=partition)
    return LaunchNodes(id=name, instance_type=machine, count=count, is_gang=is_gang, reason="")


def names(cloud: SlurmCloud) -> dict[str, str]:
    """Return the phase of each listed node."""
    return {node.id: node.phase for node in cloud.nodes()}


def test_it_keeps_the_contract_of_a_cloud(tmp_path: Path) -> None:
    """Launches, listings, ends, and the daemon's other calls."""
    clock = ManualClock(1000.0)

    def pass_time(seconds: float) -> None:
        clock.instant += seconds

    cloud = a_cloud(a_slurm(), tmp_path, clock)
    kind = replace(an_instance_type(gpus=4), name="own")
    check_cloud(cloud, kind=kind, now=clock.now, pass_time=pass_time)


def test_partitions_are_offers_with_a_price_and_the_nodes_that_are_free(tmp_path: Path) -> None:
    """A node of another job is not free, and a limit of the settings holds."""
    slurm = a_slurm()
    cloud = a_cloud(slurm, tmp_path, ManualClock(0.0), most_nodes=2)
    slurm.set("n3", state="allocated")
    own, rented = cloud.offers()
    assert (own.usd_per_hour, own.nodes_left) == (FREE_USD_PER_HOUR, 2)
    assert (rented.usd_per_hour, rented.nodes_left) == (3.0, 2)
    cloud.launch(order())
    assert [offer.nodes_left for offer in cloud.offers()] == [1, 2]


def test_an_own_node_costs_nothing_and_a_rented_one_its_price(tmp_path: Path) -> None:
    """The ledger knows the price 0: an hour of both costs 0 and 3 dollars."""
    clock = ManualClock(0.0)
    cloud = a_cloud(a_slurm(), tmp_path, clock)
    cloud.launch(order())
    cloud.launch(order("rented", name="l2"))
    bills = {node.id: bill(node, until=3600.0) for node in cloud.nodes()}
    assert bills == {"n1": 0, "c1": 3_000_000}


def test_a_node_taken_again_is_a_new_node_and_another_process_knows_it(tmp_path: Path) -> None:
    """So each has a bill of its own."""
    slurm, clock = a_slurm(), ManualClock(0.0)
    cloud = a_cloud(slurm, tmp_path, clock)
    cloud.launch(order())
    assert names(cloud) == {"n1": "ready"}
    cloud.terminate([TerminateNode(id="t", node="n1", reason="")])
    assert cloud.launch(order(name="l2")) == Launched(nodes=("n1~3",))
    again = a_cloud(slurm, tmp_path, clock)
    assert {node.id for node in again.nodes() if node.ended_at is None} == {"n1~3"}
    assert again.launch(order(name="l2")) == Launched(nodes=("n1~3",))


def test_a_full_partition_refuses_a_gang_whole(tmp_path: Path) -> None:
    """Two of three nodes are no gang of four; without a gang what is there is given."""
    cloud = a_cloud(a_slurm(), tmp_path, ManualClock(0.0))
    said = cloud.launch(order(count=4, is_gang=True))
    assert isinstance(said, Refused)
    assert said.kind == "no-capacity"
    part = cloud.launch(order(count=4, name="l2"))
    assert isinstance(part, Launched)
    assert (len(part.nodes), part.short is not None) == (3, True)


def test_a_sleeping_node_is_powered_up_and_down_again(tmp_path: Path) -> None:
    """It is requested until Slurm shows it up."""
    slurm = a_slurm()
    cloud = a_cloud(slurm, tmp_path, ManualClock(0.0))
    cloud.launch(order("rented"))
    assert slurm.told == [(("c1",), {"state": "power_up"})]
    assert names(cloud) == {"c1": "requested"}
    slurm.set("c1", marks="")
    assert names(cloud) == {"c1": "ready"}
    cloud.terminate([TerminateNode(id="t", node="c1", reason="")])
    assert slurm.told[-1] == (("c1",), {"state": "power_down"})


@pytest.mark.parametrize(
    ("changes", "ends", "leaves"),
    [
        ({"state": "down"}, True, False),
        ({"state": "down", "marks": "*"}, True, False),
        ({"state": "draining"}, False, True),
        ({"state": "drained"}, False, True),
        ({"state": "allocated", "marks": "*"}, False, False),
        ({"state": "mixed"}, False, False),
    ],
)
def test_states_of_slurm_are_observed(
    tmp_path: Path, changes: dict[str, str], ends: bool, leaves: bool
) -> None:
    """A node that is down has ended, one that is drained leaves; one that is late is waited for."""
    slurm, clock = a_slurm(), ManualClock(10.0)
    cloud = a_cloud(slurm, tmp_path, clock)
    cloud.launch(order())
    cloud.nodes()
    slurm.set("n1", **changes)
    (node,) = cloud.nodes()
    assert (node.ended_at is not None, node.ends_by is not None) == (ends, leaves)
    if leaves:
        slurm.set("n1", state="idle")
        (node,) = cloud.nodes()
        assert node.ends_by is None


@pytest.mark.parametrize("theirs", ["theirs", "boa:class=default", "boa: hello"])
def test_a_node_that_somebody_elses_job_got_is_given_up_with_a_warning(tmp_path: Path, theirs: str) -> None:
    """Our own jobs are known by their comment; a user's words to BOA make no job ours."""
    slurm = a_slurm()
    cloud = a_cloud(slurm, tmp_path, ManualClock(0.0))
    cloud.launch(order(count=2))
    slurm.queue = [
        SlurmJob(id="1", state="RUNNING", nodes="n1", comment="boa:a:g1:0a1b2c3d"),
        SlurmJob(id="2", state="RUNNING", nodes="n[2-3]", comment=theirs),
    ]
    assert {node.id: node.ends_by is not None for node in cloud.nodes()} == {"n1": False, "n2": True}


def test_a_queue_with_a_broken_list_of_nodes_is_read(tmp_path: Path) -> None:
    """The tick goes on, and nothing ends."""
    slurm = a_slurm()
    cloud = a_cloud(slurm, tmp_path, ManualClock(0.0))
    cloud.launch(order())
    slurm.queue = [SlurmJob(id="2", state="RUNNING", nodes="n[1-", comment="theirs")]
    assert {node.id: node.ends_by for node in cloud.nodes()} == {"n1": None}


def test_a_silent_controller_changes_nothing(tmp_path: Path) -> None:
    """Nodes stay as last seen, none is taken, and a note says so."""
    slurm = a_slurm()
    cloud = a_cloud(slurm, tmp_path, ManualClock(0.0))
    cloud.launch(order())
    slurm.is_silent = True
    assert set(names(cloud)) == {"n1"}
    assert isinstance(cloud.launch(order(name="l2")), Refused)
    assert [offer.nodes_left for offer in cloud.offers()] == [None, None]
    assert "does not answer" in cloud.notes()[0]
