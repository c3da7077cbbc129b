"""A database that was restored from an older copy: what was spent since still counts against the caps."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daemon_time import pass_time

from boa_daemon.daemon.loop.last_state import LastStateFile
from boa_daemon.store.database_setup import StoreOfOthers
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.ledger import bill

HOUR = 3600.0
START = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0 + HOUR
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 10.0, "usd_per_day_cap": 100.0, "usd_per_month_cap": 1000.0},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
}


COVERS_ONE_NODE = """
as_of = 2027-01-01
source = "a test"
[[commitments]]
name = "ours"
kind = "compute"
discounts = {g5 = 0.2}
usd_per_hour = 0.81
"""


class Forgetful:
    """A cloud that can stop to list nodes that ended, as every cloud does after a while."""

    def __init__(self, cloud: Any) -> None:
        self._cloud, self.forgets = cloud, False
        self.lists: list[NodeState] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cloud, name)

    def nodes(self) -> list[NodeState]:
        if self.lists is not None:
            return self.lists
        return [node for node in self._cloud.nodes() if node.ended_at is None or not self.forgets]


class Site:
    """A daemon in a folder, with a file of its last state and an older copy of its database."""

    def __init__(self, folder: Path, settings: dict[str, dict[str, Any]] = SETTINGS) -> None:
        self.settings = settings
        self.folder, self.clock, self.live, self.old = (
            folder, ManualClock(START), folder / "boa.sqlite", folder / "copy.sqlite",
        )  # fmt: skip
        self.last = LastStateFile(folder / "last_state")
        self.open()

    def open(self) -> None:
        self.play = DaemonInAFolder(self.folder, self.clock, self.settings, wrap_cloud=self.wrapped)
        self.play.daemon.last_state_file = self.last

    def wrapped(self, cloud: Any) -> Any:
        self.cloud = Forgetful(cloud)
        return self.cloud

    def run_a_job(self, name: str) -> None:
        """Run a job for half an hour until its node is gone and billed."""
        self.play.service.submit([job_content(name, hours=0.5)], user="ann")
        pass_time(self.play, HOUR)

    def copy(self) -> None:
        with closing(sqlite3.connect(self.live)) as source:
            source.execute("VACUUM INTO ?", (str(self.old),))

    def restore(self) -> None:
        """Write the copy into the database in use, as a restored dump does on a server."""
        with closing(sqlite3.connect(self.old)) as copy, closing(sqlite3.connect(self.live)) as live:
            copy.backup(live)

    def take_the_copy(self) -> None:
        """Put the copy in the place of the database of a daemon that has ended."""
        for path in self.folder.glob("boa.sqlite*"):
            path.unlink()
        self.live.write_bytes(self.old.read_bytes())

    def reopen(self, lists: list[NodeState]) -> None:
        """Do the first tick of a new daemon, whose cloud lists these nodes alone."""
        self.open()
        self.cloud.lists = lists
        self.play.daemon.standing.is_started = False
        assert self.play.daemon.tick() is not None

    @property
    def spent(self) -> tuple[int, int]:
        """Micro-dollars of bills of the day, and of all days."""
        store = self.play.storage.store
        return store.settled_since(self.clock.now()), store.settled_micro_dollars()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.play.close()


def a_node_of_a_third_job(site: Site) -> NodeState:
    """Return the node of a job that runs on, as the last tick saw it, whose state is in its file."""
    site.play.service.submit([job_content("last", hours=9.0)], user="ann")
    pass_time(site.play, 0.25 * HOUR)
    decision = site.play.daemon.tick()
    assert decision is not None
    store = site.play.storage.store
    LastStateFile(site.folder / "last_state").write(store.last_text, ledger_id=store.known_name)
    (node,) = decision.state.nodes.values()
    return node


def with_a_copy(site: Site) -> tuple[int, int]:
    """Run a job, make a copy, run another; return what both cost."""
    site.run_a_job("a")
    site.copy()
    first = site.spent
    site.run_a_job("b")
    decision = site.play.daemon.tick()
    assert decision is not None
    store = site.play.storage.store
    # A new object: one that has just written waits some seconds.
    LastStateFile(site.folder / "last_state").write(store.last_text, ledger_id=store.known_name)
    assert site.spent > first > (0, 0)
    return site.spent


def test_money_spent_since_the_copy_counts_after_a_restore_under_a_running_daemon(site: Site) -> None:
    """The first tick says what happened, and the next one goes on with the spend of before."""
    spent = with_a_copy(site)
    site.cloud.forgets = True
    site.restore()
    assert site.play.daemon.tick() is None
    assert "older copy took the place of the database" in site.play.daemon.standing.fault
    assert site.play.daemon.tick() is not None
    assert site.spent == spent
    tick = site.play.storage.store.tick
    assert site.play.daemon.tick() is not None
    assert (site.spent, site.play.storage.store.tick) == (spent, tick + 1)


def test_money_spent_since_the_copy_counts_after_a_restart_on_it(site: Site) -> None:
    """The file of the last state says what was spent; a second restart charges nothing again."""
    spent = with_a_copy(site)
    site.play.close()
    site.take_the_copy()
    for _ in range(2):
        site.open()
        site.cloud.forgets = True
        site.play.daemon.standing.is_started = False
        assert site.play.daemon.tick() is not None
        assert site.spent == spent
        site.play.close()
    site.open()


def test_an_end_that_a_killed_daemon_recorded_without_its_bill_is_charged(site: Site) -> None:
    """The next daemon starts when the cloud no longer lists the node."""
    site.run_a_job("a")
    spent = site.spent
    site.play.close()
    with closing(sqlite3.connect(site.live)) as database, database:
        assert database.execute("DELETE FROM charges").rowcount == 1
        database.execute("DELETE FROM charge_days")
    for _ in range(2):
        site.reopen([])
        assert site.spent == spent > (0, 0)
        site.play.close()
    site.open()


def test_what_the_cloud_still_lists_is_billed_once(site: Site) -> None:
    """A node that ended since the copy and is listed yet has its own bill again, and no second one."""
    spent = with_a_copy(site)
    site.restore()
    assert site.play.daemon.tick() is None
    assert site.play.daemon.tick() is not None
    assert site.spent == spent == (site.play.cloud.bill_micro_dollars(),) * 2


def test_a_node_that_the_copy_believes_alive_and_that_is_gone_is_billed_once(site: Site) -> None:
    """It ended after the copy was made: neither its absence nor its end is charged a second time."""
    site.play.service.submit([job_content("a", hours=0.5)], user="ann")
    pass_time(site.play, 0.25 * HOUR)
    site.copy()
    pass_time(site.play, HOUR)
    site.run_a_job("b")
    spent = site.spent
    site.cloud.forgets = True
    site.restore()
    assert site.play.daemon.tick() is None
    for _ in range(2):
        assert site.play.daemon.tick() is not None
        assert site.spent == spent


def test_what_ran_on_after_the_last_tick_hides_nothing_that_the_copy_lacks(site: Site) -> None:
    """A node that outlived the daemon is billed for that beside what was forgotten."""
    site.run_a_job("a")
    site.copy()
    site.run_a_job("b")
    _, settled = site.spent
    live = a_node_of_a_third_job(site)
    site.play.close()
    site.take_the_copy()
    site.clock.instant += 8.0 * HOUR
    ended = replace(live, phase="terminated", ended_at=site.clock.now(), gpus=())
    site.reopen([ended])
    assert site.spent[1] == settled + bill(ended, until=site.clock.now())


def test_standing_costs_since_the_copy_are_charged_once(tmp_path: Path) -> None:
    """Their hours are charged again as what they are, and not as what the copy lacks as well."""
    site = Site(tmp_path, {**SETTINGS, "budget": {**SETTINGS["budget"], "standing_usd_per_hour": 1.0}})
    spent = with_a_copy(site)
    site.play.close()
    site.take_the_copy()
    site.reopen([])
    assert site.spent == spent
    site.play.close()


def test_nodes_that_commitments_cover_hide_nothing_that_the_copy_lacks(tmp_path: Path) -> None:
    """The meter of a node that costs nothing more counts nothing, as it did in the last tick."""
    file = tmp_path / "commitments.toml"
    file.write_text(COVERS_ONE_NODE, encoding="utf-8")
    site = Site(tmp_path, {**SETTINGS, "cloud": {**SETTINGS["cloud"], "commitments": str(file)}})
    site.run_a_job("a")
    site.copy()
    site.play.service.submit([job_content(name, hours=0.5) for name in ("b", "c")], user="ann")
    pass_time(site.play, HOUR)
    _, settled = site.spent
    live = a_node_of_a_third_job(site)
    assert settled > 0
    assert live.usd_per_hour == 0.0
    site.play.close()
    site.take_the_copy()
    site.reopen([replace(live, prices=(), gpus=())])
    assert site.spent[1] == settled
    site.play.close()


def test_another_database_in_its_place_is_not_used(site: Site, tmp_path: Path) -> None:
    """Nothing is started of what another daemon's database holds; the own one back in its place goes on."""
    site.run_a_job("a")
    site.copy()
    with closing(sqlite3.connect(site.live)) as live:
        live.execute("UPDATE meta SET value = '\"other\"' WHERE key = 'name'")
        # A node that lives, and that another cloud lists.
        live.execute("UPDATE instances SET ended_at = NULL")
        live.execute("UPDATE instances SET id = 'theirs', node = json_set(node, '$.id', 'theirs')")
        live.commit()
        before = list(live.iterdump())
    site.cloud.forgets = True
    for _ in range(3):
        assert site.play.daemon.tick() is None
        assert "another database took the place" in site.play.daemon.standing.fault
        with pytest.raises(StoreOfOthers):
            site.play.service.submit([job_content("b")], user="ann")
        # A node of its own is no news for the other's database.
        (ended,) = site.play.cloud.everything()
        site.cloud.lists = [replace(ended, id=f"node-{site.clock.now():.0f}", phase="ready", ended_at=None)]
        site.clock.instant += 300.0
    with closing(sqlite3.connect(site.live)) as live:
        assert list(live.iterdump()) == before, "nothing is written in it"
    site.cloud.lists = None
    site.restore()
    assert [site.play.daemon.tick() is not None for _ in range(2)][-1]
