"""Warm pool of stopped nodes: stops, starts, restarts, bills and its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.loop.fallback_tick import FallbackTick
from boa_daemon.daemon.money.cost_labels import CostBy
from boa_daemon.daemon.planner.warm_pool import start_seconds_of, warm_pool_of
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.watch.minute_history import current_figures
from boa_daemon.learning.boot_times import BootTimes
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.actions import TerminateNode
from boa_daemon.tick.facts.state import WarmPool

COSTS_BY: tuple[CostBy, ...] = ("job", "class", "user", "day")
START = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 10.0, "usd_per_day_cap": 200.0},
    "cloud": {"boot_seconds": 180.0, "start_seconds": 30.0, "warm_pool_nodes": 2},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
}


class Site:
    """A daemon in a folder, with a clock that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, ManualClock(START)
        self.play = DaemonInAFolder(folder, self.clock, SETTINGS)

    def open(self, **cloud: Any) -> None:
        """Restart the daemon with other settings of the cloud."""
        self.play.close()
        settings = SETTINGS | {"cloud": SETTINGS["cloud"] | cloud}
        self.play = DaemonInAFolder(self.folder, self.clock, settings)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Tick until `is_so` returns true, for at most two hours."""
        for _ in range(240):
            self.play.daemon.tick()
            assert not self.play.daemon.standing.fault
            self.clock.instant += 30.0
            if is_so():
                return
        pytest.fail(f"never came: {self.phases()}")

    def phases(self) -> dict[str, str]:
        """Return the phases of all nodes that have not ended."""
        return {row["id"]: row["phase"] for row in self.play.service.instances()["instances"]}

    def cost(self, node: str) -> float:
        """Return the dollars that a node has cost so far."""
        [row] = [row for row in self.play.service.instances()["instances"] if row["id"] == node]
        return float(row["usd"])

    def submit(self, name: str = "job") -> str:
        """Submit a job of a quarter of an hour and return its id."""
        (job,) = self.play.service.submit([job_content(name, hours=0.25)], user="ann")["jobs"]
        return str(job)

    def is_finished(self, job: str) -> bool:
        """Return whether a job is finished."""
        return self.play.service.job(job)["status"] == "finished"

    def stop_one(self) -> str:
        """Run a job to its end and return the id of its stopped node."""
        job = self.submit()
        self.until(lambda: self.is_finished(job) and list(self.phases().values()) == ["stopped"])
        (name,) = self.phases()
        return name


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Yield a daemon with room for two stopped nodes."""
    found = Site(tmp_path)
    yield found
    found.play.close()


def test_the_next_job_starts_the_stopped_node(site: Site) -> None:
    """The job runs within 120 s, each stop and start has a charge, and the ledger equals the cloud's bill."""
    stopped = site.stop_one()
    assert stopped.endswith("~2")
    row = site.play.service.instances()["instances"][0]
    assert (row["gpus"], row["jobs"], row["usd_per_hour"]) == (1, [], 0.0219)

    job, ordered_at = site.submit("next"), site.clock.instant
    site.until(lambda: site.play.service.job(job)["status"] == "running")
    assert site.clock.instant - ordered_at <= 120.0
    assert site.phases() == {stopped.replace("~2", "~3"): "ready"}
    site.until(lambda: site.is_finished(job) and list(site.phases().values()) == ["stopped"])
    boots = site.play.daemon.boots.document()
    assert {name: row["boots"] for name, row in boots.items()} == {"g5.xlarge": 1, "g5.xlarge (started)": 1}

    site.play.daemon.set_down(True)
    site.until(lambda: not site.phases())
    bills = site.play.storage.store.settled_micro_dollars()
    assert bills == site.play.cloud.bill_micro_dollars() > 0
    for by in COSTS_BY:
        assert site.play.service.cost(by=by)["usd"] == pytest.approx(bills / 1e6, abs=2e-5)
    ended = site.play.service.instances(ended=True)["instances"]
    assert [row["id"].partition("~")[2] for row in ended] == ["", "2", "3", "4"]


def test_a_restarted_daemon_keeps_stopped_nodes(site: Site) -> None:
    """The stopped node is neither ended nor rented again, and its disk is billed on."""
    stopped = site.stop_one()
    before = site.cost(stopped)
    site.open()
    site.clock.instant += 60.0
    site.play.daemon.tick()

    assert site.phases() == {stopped: "stopped"}
    assert site.cost(stopped) > before
    assert site.play.daemon.standing.decision is not None
    assert site.play.daemon.standing.decision.actions == ()


def test_stopped_nodes_are_found_again_without_the_database(site: Site) -> None:
    """The cloud lists them, and the next job starts the stopped node."""
    stopped = site.stop_one()
    site.play.close()
    for name in site.folder.glob("boa.sqlite*"):
        name.unlink()
    site.play = DaemonInAFolder(site.folder, site.clock, SETTINGS)
    site.play.daemon.tick()
    assert site.phases() == {stopped: "stopped"}

    site.submit("next")
    site.until(lambda: site.phases() == {stopped.replace("~2", "~3"): "ready"})


def test_a_stopped_node_with_an_expired_lease_is_unwanted(site: Site) -> None:
    """Ten minutes after its last renewal it is listed as unwanted and can be ended, as `boa gc` does."""
    stopped = site.stop_one()
    assert site.play.cloud.unwanted() == {}
    site.clock.instant += 600.0
    assert list(site.play.cloud.unwanted()) == [stopped]
    site.play.cloud.terminate([TerminateNode(id="gc", node=stopped, reason="unwanted")])

    assert [node for node in site.play.cloud.nodes() if node.ended_at is None] == []


def test_the_fallback_tick_ends_stopped_nodes_on_down(site: Site) -> None:
    """The fallback tick needs no plan for this."""
    stopped = site.stop_one()
    daemon = site.play.daemon
    assert daemon.storage is not None
    resort = FallbackTick(
        cloud=site.play.cloud,
        clock=site.clock,
        fleet=daemon.fleet,
        runner=site.play.runner,
        work=daemon.work,
        storage=daemon.storage,
        grace_seconds=60.0,
    )
    resort.act(daemon.planner.rules(), None, now=site.clock.instant, is_down=True)

    assert resort.troubles == []
    assert {node.id: node.phase for node in site.play.cloud.nodes()}[stopped] == "terminated"


def test_stopped_nodes_end_when_the_warm_pool_is_turned_off(site: Site) -> None:
    """The daemon is restarted with `warm_pool_nodes` 0, and ends them in its first tick."""
    site.stop_one()
    site.open(warm_pool_nodes=0)
    site.play.daemon.tick()
    assert [node for node in site.play.cloud.nodes() if node.ended_at is None] == []
    site.until(lambda: not site.phases())


def test_a_stopped_node_counts_neither_as_a_node_nor_as_gpus(site: Site) -> None:
    """The disk of a stopped node counts as spend in the state "stopped"."""
    site.stop_one()
    site.play.daemon.tick()
    decision = site.play.daemon.standing.decision
    assert decision is not None
    figures = current_figures(decision.state, {})
    assert figures == {"usd_per_hour": 0.0219, "market:on-demand": 0.0219, "state:stopped": 0.0219}
    status = site.play.service.status()
    assert (status["nodes"], status["stopped_nodes"], status["gpus"]) == (0, 1, 0)


def test_start_times_are_set_or_learned_or_a_third_of_the_boot_time() -> None:
    """The learned mean is used after three starts; without a pool there is no start time."""
    settings = Settings.model_validate({"cloud": {"warm_pool_nodes": 3}})
    assert warm_pool_of(settings, 180.0, None) == WarmPool(nodes=3, start_seconds=60.0)
    boots = BootTimes()
    for number in range(3):
        boots.take(f"i-{number}~3", "g5.xlarge", launched_at=0.0, ready_at=20.0)
        boots.take(f"i-{number}", "g5.xlarge", launched_at=0.0, ready_at=200.0)
    seen = warm_pool_of(settings, 180.0, boots)
    assert seen is not None
    assert seen.start_seconds == pytest.approx(20.0, rel=0.12)
    assert boots.planned_seconds(["g5.xlarge"], otherwise=180.0) == pytest.approx(200.0, rel=0.12)

    assert warm_pool_of(Settings(), 180.0, boots) is None
    assert start_seconds_of(Settings.model_validate({"cloud": {"start_seconds": 5}}), 180.0) == 5.0
