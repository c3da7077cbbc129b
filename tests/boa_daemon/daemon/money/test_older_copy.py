"""A database that was restored from an older copy: what was spent since still counts against the caps."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from daemon_time import pass_time

from boa_daemon.daemon.loop.last_state import LastStateFile
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.state import NodeState

HOUR = 3600.0
START = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0 + HOUR
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 10.0, "usd_per_day_cap": 100.0, "usd_per_month_cap": 1000.0},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
}


class Forgetful:
    """A cloud that can stop to list nodes that ended, as every cloud does after a while."""

    def __init__(self, cloud: Any) -> None:
        self._cloud, self.forgets = cloud, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cloud, name)

    def nodes(self) -> list[NodeState]:
        return [node for node in self._cloud.nodes() if node.ended_at is None or not self.forgets]


class Site:
    """A daemon in a folder, with a file of its last state and an older copy of its database."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.live, self.old = (
            folder, ManualClock(START), folder / "boa.sqlite", folder / "copy.sqlite",
        )  # fmt: skip
        self.last = LastStateFile(folder / "last_state")
        self.open()

    def open(self) -> None:
        self.play = DaemonInAFolder(self.folder, self.clock, SETTINGS, wrap_cloud=self.wrapped)
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
    for path in site.folder.glob("boa.sqlite*"):
        path.unlink()
    site.live.write_bytes(site.old.read_bytes())
    for _ in range(2):
        site.open()
        site.cloud.forgets = True
        site.play.daemon.standing.is_started = False
        assert site.play.daemon.tick() is not None
        assert site.spent == spent
        site.play.close()
    site.open()


def test_what_the_cloud_still_lists_is_billed_once(site: Site) -> None:
    """A node that ended since the copy and is listed yet has its own bill again, and no second one."""
    spent = with_a_copy(site)
    site.restore()
    assert site.play.daemon.tick() is None
    assert site.play.daemon.tick() is not None
    assert site.spent == spent == (site.play.cloud.bill_micro_dollars(),) * 2


def test_another_database_in_its_place_is_not_used(site: Site, tmp_path: Path) -> None:
    """Nothing is started of what another daemon's database holds; the own one back in its place goes on."""
    site.run_a_job("a")
    site.copy()
    with closing(sqlite3.connect(site.live)) as live:
        live.execute("UPDATE meta SET value = '\"other\"' WHERE key = 'name'")
        live.commit()
    for _ in range(2):
        assert site.play.daemon.tick() is None
        assert "another database took the place" in site.play.daemon.standing.fault
    site.restore()
    assert [site.play.daemon.tick() is not None for _ in range(2)][-1]
