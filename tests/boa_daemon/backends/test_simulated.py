"""`backends/simulated.py`: a cloud in a file, which keeps its nodes and bills them whoever watches."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.backends.simulated import (
    LEASE_SECONDS,
    RENEW_SECONDS,
    SHOWN_SECONDS,
    FileCloud,
    SimulatedLimits,
)
from boa_daemon.testing import ManualClock, an_instance_type
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.ports import WARNING_SECONDS, Launched, Refused
from boa_daemon.tick.facts.state import DISK_USD_PER_HOUR, NodeState

HOUR = 3600.0


class Cloud:
    """A cloud whose nodes cost 4 USD per hour, boot in 90 s and start in 20 s."""

    def __init__(self, folder: Path, stock: int | None = None) -> None:
        self.clock, self.folder = ManualClock(1000.0), folder
        limits = SimulatedLimits(boot_seconds=90.0, start_seconds=20.0, stock=stock)
        self.file = FileCloud(folder / "cloud.sqlite", self.clock, limits=limits, durable=False)

    def launch(self, name: str = "t1", count: int = 1, **changes: Any) -> Launched | Refused:
        """Order nodes."""
        return self.file.launch(
            LaunchNodes(id=name, instance_type=an_instance_type(), count=count, reason="", **changes)
        )

    def end(self, *names: str, stops: bool = False, after: float = 0.0) -> None:
        """Order the end of nodes some time later."""
        self.clock.instant += after
        self.file.terminate([TerminateNode(id=name, node=name, reason="", stops=stops) for name in names])

    def node(self, name: str, *, after: float = 0.0) -> NodeState | None:
        """Return a node as it is listed some time later."""
        self.clock.instant += after
        return next((node for node in self.file.nodes() if node.id == name), None)

    def phases(self) -> dict[str, str]:
        """Return the phase of each listed node."""
        return {node.id: node.phase for node in self.file.nodes()}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """Yield a cloud without a limit."""
    made = Cloud(tmp_path)
    yield made
    made.file.close()


def test_the_same_order_is_the_same_nodes_also_after_a_restart(cloud: Cloud) -> None:
    """Another daemon opens the file, and repeats what it does not know to be done."""
    first = cloud.launch(count=2)
    again = FileCloud(cloud.folder / "cloud.sqlite", cloud.clock)
    order = LaunchNodes(id="t1", instance_type=an_instance_type(), count=2, reason="")
    assert first == again.launch(order) == Launched(nodes=("sim-t1-0", "sim-t1-1"))
    assert {node.launched_by for node in again.nodes()} == {"t1"}
    again.close()
    assert len(cloud.phases()) == 2


def test_a_node_is_ready_when_it_has_booted_and_listed_for_an_hour_after_its_end(cloud: Cloud) -> None:
    """It is idle since it was ready; its end is the instant of the order."""
    cloud.launch()
    booting, ready = cloud.node("sim-t1-0", after=89.9), cloud.node("sim-t1-0", after=0.1)
    assert booting is not None
    assert ready is not None
    assert (booting.phase, booting.idle_since, ready.phase, ready.idle_since) == (
        "requested",
        None,
        "ready",
        1090.0,
    )
    assert (ready.launched_at, len(ready.gpus)) == (1000.0, 4)
    cloud.end("sim-t1-0", after=10.0)
    gone = cloud.node("sim-t1-0", after=SHOWN_SECONDS - 0.1)
    assert gone is not None
    assert (gone.phase, gone.ended_at, gone.idle_since) == ("terminated", 1100.0, None)
    assert cloud.node("sim-t1-0", after=0.1) is None
    assert [node.id for node in cloud.file.everything()] == ["sim-t1-0"]


@pytest.mark.parametrize(
    ("count", "is_gang", "come"), [(2, False, 2), (3, False, 3), (5, False, 3), (3, True, 3), (5, True, 0)]
)
def test_what_is_in_stock_comes_and_a_gang_whole_or_not_at_all(
    tmp_path: Path, count: int, is_gang: bool, come: int
) -> None:
    """A short answer says why, so that the offer rests."""
    cloud = Cloud(tmp_path, stock=3)
    answer = cloud.launch(count=count, is_gang=is_gang)
    if come:
        assert isinstance(answer, Launched)
        assert (len(answer.nodes), answer.short is not None) == (come, come < count)
    else:
        assert isinstance(answer, Refused)
        assert answer.kind == "no-capacity"
    assert len(cloud.phases()) == come
    cloud.file.close()


def test_what_has_ended_or_is_stopped_is_in_stock_again(tmp_path: Path) -> None:
    """The last node of a stock that is taken refuses any order."""
    cloud = Cloud(tmp_path, stock=2)
    cloud.launch(count=2)
    assert isinstance(cloud.launch("t2"), Refused)
    cloud.end("sim-t1-0")
    cloud.end("sim-t1-1", stops=True)
    assert cloud.launch("t3", 2) == Launched(nodes=("sim-t3-0", "sim-t3-1"))
    cloud.file.close()


def test_a_stop_begins_a_life_that_costs_its_disk_and_a_start_the_next(cloud: Cloud) -> None:
    """It starts sooner than a new node boots; what is not stopped is rented anew."""
    cloud.launch()
    cloud.end("sim-t1-0", stops=True, after=100.0)
    stopped = cloud.node("sim-t1-0~2")
    assert stopped is not None
    assert (stopped.phase, stopped.launched_at, stopped.gpus, stopped.launched_by) == (
        "stopped",
        1100.0,
        (),
        "",
    )
    assert stopped.usd_per_hour == DISK_USD_PER_HOUR
    answer = cloud.launch("t2", 2, starts=("sim-t1-0~2", "sim-t1-0"))
    assert answer == Launched(nodes=("sim-t1-0~3", "sim-t2-0"))
    assert cloud.phases()["sim-t1-0~2"] == "terminated"
    cloud.clock.instant += 20.0
    assert [cloud.phases()[name] for name in ("sim-t1-0~3", "sim-t2-0")] == ["ready", "requested"]


def test_no_more_nodes_start_than_were_asked_for(cloud: Cloud) -> None:
    """The others stay stopped."""
    cloud.launch(count=2)
    cloud.end("sim-t1-0", "sim-t1-1", stops=True)
    assert cloud.launch("t2", 1, starts=("sim-t1-0~2", "sim-t1-1~2")) == Launched(nodes=("sim-t1-0~3",))
    assert cloud.phases()["sim-t1-1~2"] == "stopped"


def test_a_stopped_node_ends_whatever_the_order_says(cloud: Cloud) -> None:
    """It cannot be stopped once more, and an end that is repeated changes nothing."""
    cloud.launch()
    cloud.end("sim-t1-0", stops=True)
    cloud.end("sim-t1-0~2", stops=True, after=5.0)
    cloud.end("sim-t1-0", "sim-t1-0~2", "unknown", after=5.0)
    ended = {node.id: node.ended_at for node in cloud.file.nodes()}
    assert ended == {"sim-t1-0": 1000.0, "sim-t1-0~2": 1005.0}


def test_the_bill_runs_from_launch_to_end_and_counts_disks(cloud: Cloud) -> None:
    """One hour of a run, and half an hour of its disk."""
    cloud.launch()
    cloud.end("sim-t1-0", stops=True, after=HOUR)
    cloud.clock.instant += HOUR / 2
    assert cloud.file.bill_micro_dollars() == 4_000_000 + round(DISK_USD_PER_HOUR / 2 * 1e6)
    cloud.end("sim-t1-0~2")
    before = cloud.file.bill_micro_dollars()
    cloud.clock.instant += HOUR
    assert cloud.file.bill_micro_dollars() == before


def test_an_announced_end_comes_at_its_instant_whoever_looks(cloud: Cloud) -> None:
    """Two minutes later; a second announcement does not put it off, and a node that is gone has none."""
    cloud.launch()
    assert cloud.file.rehearse_end("sim-t1-0") == 1000.0 + WARNING_SECONDS
    cloud.clock.instant += 60.0
    assert cloud.file.rehearse_end("sim-t1-0") == 1000.0 + WARNING_SECONDS
    running, gone = cloud.node("sim-t1-0", after=59.9), cloud.node("sim-t1-0", after=0.1)
    assert running is not None
    assert gone is not None
    assert (running.ends_by, running.ended_at) == (1000.0 + WARNING_SECONDS, None)
    assert (gone.ends_by, gone.ended_at, gone.phase) == (None, 1000.0 + WARNING_SECONDS, "terminated")
    assert cloud.file.rehearse_end("sim-t1-0") is None
    cloud.launch("t2")
    cloud.file.rehearse_end("sim-t2-0")
    cloud.clock.instant += HOUR
    assert [node.ended_at for node in cloud.file.everything()][1] == 1120.0 + WARNING_SECONDS


def test_a_node_that_nobody_renews_is_a_leak(cloud: Cloud) -> None:
    """Notes are written every half minute at most; what has ended is no leak."""
    cloud.launch(count=2)
    cloud.clock.instant += LEASE_SECONDS - 0.1
    assert cloud.file.unwanted() == {}
    cloud.file.renew(["sim-t1-0"])
    cloud.clock.instant += RENEW_SECONDS - 0.1
    cloud.file.renew(["sim-t1-0"])
    cloud.clock.instant += LEASE_SECONDS - RENEW_SECONDS + 0.1
    assert set(cloud.file.unwanted()) == {"sim-t1-0", "sim-t1-1"}
    assert cloud.file.unwanted()["sim-t1-0"] == pytest.approx(LEASE_SECONDS)
    cloud.file.renew(["sim-t1-0"])
    cloud.end("sim-t1-1")
    assert cloud.file.unwanted() == {}


def test_an_end_that_a_full_disk_refuses_counts_at_once_and_is_written_later(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node stops at the instant of its order, and its disk costs from then on."""
    cloud.launch(count=2)

    def refuse(*_: object, **__: object) -> list[str]:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as full:
        full.setattr(cloud.file, "_end", refuse)
        cloud.end("sim-t1-0", after=100.0)
        cloud.end("sim-t1-1", stops=True)
        cloud.clock.instant += 50.0
        assert {node.id: node.ended_at for node in cloud.file.nodes()} == {
            "sim-t1-0": 1100.0,
            "sim-t1-1": 1100.0,
        }
    ended = {node.id: (node.ended_at, node.launched_at) for node in cloud.file.nodes()}
    assert ended["sim-t1-0"] == ended["sim-t1-1"] == (1100.0, 1000.0)
    assert ended["sim-t1-1~2"] == (None, 1100.0)


def test_the_cloud_names_no_offers(cloud: Cloud) -> None:
    """There is one zone, and each type has its own price."""
    assert cloud.file.offers() == ()
