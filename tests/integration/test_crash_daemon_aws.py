"""The daemon is killed at calls to EC2 and at commits of its database, over a moto server.

A first run counts the points of death. Then each point has its own run, which dies there and is started again
with nothing but what is on disk.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_rigs import START
from kill_points import shares

from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_terms import Lifetime, Terms
from boa_daemon.testing.fronts import FAKE_CREDENTIALS, FakeServer

ROOT = Path(__file__).resolve().parents[2]
TICKS = [*range(0, 180, 20), 460, *range(530, 720, 20)]
"""After a lost launch nothing is rented for five minutes, and its offer rests for one more."""
USD_PER_HOUR = 1.006
TEAM_CAP_USD = 0.6
"""Room for two starts of a quarter of an hour at once, and little more."""
EXTRA_USD_PER_HOUR = (0.021918, 0.005)
"""Disk and public address of a node."""


class Site:
    """The server, the child process that forks, and the runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, 0
        self.fake = FakeCloud(
            self.now, Terms(boot_seconds=15.0, shutdown_seconds=10.0, invisible_seconds=5.0)
        )
        self.url, self.child = "", None

    @property
    def here(self) -> Path:
        return self.folder / f"run{self.runs}"

    def now(self) -> float:
        file = self.here / "now"
        return float(file.read_text()) if file.exists() else START

    def begin(self) -> None:
        self.runs += 1
        self.here.mkdir()
        (self.here / "now").write_text(str(START + 10_000.0 * self.runs))

    def order(self, kill_at: int | None) -> int:
        began = START + 10_000.0 * self.runs
        order = {
            "folder": str(self.here),
            "cluster": f"run{self.runs}",
            "endpoint": self.url,
            "plan": [began + at for at in TICKS],
            "kill_at": kill_at,
            "team_cap_usd": TEAM_CAP_USD,
        }
        child: Any = self.child
        child.stdin.write(json.dumps(order) + "\n")
        child.stdin.flush()
        return int(child.stdout.readline())

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.here / "done").read_text())
        return found

    def mine(self) -> list[Lifetime]:
        return [life for life in self.fake.history() if life.tags.get("boa:cluster") == f"run{self.runs}"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server and one child process for all runs."""
    site = Site(tmp_path_factory.mktemp("crash-daemon"))
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)))
    environment = {
        **os.environ,
        **FAKE_CREDENTIALS,
        "PYTHONPATH": path,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    command = [sys.executable, str(Path(__file__).with_name("crash_daemon_child.py"))]
    with (
        FakeServer(site.fake) as url,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as child,
    ):
        site.url, site.child = url, child  # type: ignore[assignment]
        yield site


def one_run(site: Site, kill_at: int | None) -> int:
    """Run up to a point of death, start again, check everything; return how many points the run passed."""
    site.begin()
    ended = site.order(kill_at)
    if ended == -signal.SIGKILL:
        ended = site.order(None)
    assert ended == 0, f"killed at {kill_at}"
    report, lives = site.report(), site.mine()
    assert report["statuses"] == ["finished", "finished"], f"killed at {kill_at}: a job is lost"
    assert len(set(map(tuple, report["started"]))) == len(report["started"]), "a generation started twice"
    assert all(life.ended_at is not None for life in lives), f"killed at {kill_at}: one still lives"
    assert all(life.tags.get("boa:intent") and life.tags.get("boa:job") for life in lives)
    for life in lives:
        together = [each for each in lives if each.launched_at <= life.launched_at < (each.ended_at or 0.0)]
        assert len(together) <= 2, f"killed at {kill_at}: {len(together)} at once"
    spent = sum(
        round(max(life.ended_at - life.launched_at, 60.0) / 3600.0 * usd * 1e6)  # type: ignore[operator]
        for life in lives
        for usd in (USD_PER_HOUR, *EXTRA_USD_PER_HOUR)
    )
    assert (report["settled"], report["unsettled"]) == (spent, 0), f"killed at {kill_at}"
    (drawn,) = [row["usd"] - row["boot_usd"] for row in report["of_jobs"] if row["name"] == "red"]
    # A purse rounds each hour of each generation up by less than a micro-dollar.
    assert 0 <= report["purse"] - round(drawn * 1e6) <= 2 * len(report["started"]), f"killed at {kill_at}"
    assert 0.01 <= drawn <= min(TEAM_CAP_USD, spent / 1e6), f"killed at {kill_at}"
    return int(report["points"])


@pytest.mark.parametrize(("first", "step"), shares(8, parts=3))
def test_no_death_of_the_daemon_loses_a_job_or_an_instance(site: Site, first: int, step: int) -> None:
    """Jobs finish once, instances are ended, and the ledger equals EC2's own history at each point of death.

    The team's purse pays for each generation once, and for nothing else.
    """
    points = one_run(site, None)
    assert points > 40, points
    for kill_at in range(first, points, step):
        one_run(site, kill_at)
    assert site.fake.forbidden == []
