"""The controller is killed at every call and every commit; no instance is lost, doubled or billed twice.

A first run counts the points. Then each point has its own run, which dies there and is started again with
nothing but its journal. The cloud is a moto server with the fake cloud's rules: tokens, boot and shutdown
times, and listings that lag.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aws_rigs import START
from integration.crash_child import ONE_OF_SEVERAL, QUESTIONS_OF_STORE, WRITES

from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_terms import Lifetime, Terms
from boa_daemon.testing.fronts import FAKE_CREDENTIALS, FakeServer
from boa_daemon.tick.facts.node_lives import life_named, life_of
from boa_daemon.tick.facts.ports import Store

ROOT = Path(__file__).resolve().parents[2]
UP = [(0, 2, 0), (20, 2, 0), (400, 2, 0), (480, 2, 0)]
DOWN = [(700, 1, 0), (720, 1, 0), (800, 0, 0), (830, 0, 0)]
"""Instants, nodes wanted, and room in the warm pool."""
POOLED_UP = [
    (0, 2, 2),
    (20, 2, 2),
    (100, 1, 2),
    (130, 1, 2),
    (200, 2, 2),
    (230, 2, 2),
    (520, 2, 2),
    (600, 2, 2),
]
POOLED_DOWN = [(700, 1, 1), (720, 1, 1), (800, 0, 1), (830, 0, 1), (900, 0, 0), (930, 0, 0)]
"""One is stopped and started again; then one is stopped, one ends as it runs, and at last the stopped one."""
USD_PER_HOUR = 1.006
EXTRA_USD_PER_HOUR = (0.021918, 0.005)
"""Disk and public address of a node."""


@dataclass(slots=True)
class Site:
    """The server, the child process that forks, and the clock file of the current run."""

    fake: FakeCloud
    url: str
    child: subprocess.Popen[str]
    folder: Path
    runs: int = 0

    def now(self) -> float:
        """Return the instant of the current run."""
        return float((self.folder / f"run{self.runs}" / "now").read_text())

    def order(self, plan: list[tuple[float, int, int]], kill_at: int | None) -> int:
        """Run a plan in a fork; return the fork's exit status."""
        folder = self.folder / f"run{self.runs}"
        (folder / "done").unlink(missing_ok=True)
        cluster = f"run{self.runs}"
        order = {
            "folder": str(folder),
            "cluster": cluster,
            "endpoint": self.url,
            "plan": plan,
            "kill_at": kill_at,
        }
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(json.dumps(order) + "\n")
        self.child.stdin.flush()
        return int(json.loads(self.child.stdout.readline()))

    def begin(self) -> float:
        """Begin a new run: its own cluster, its own journal, and a later start than all runs before."""
        self.runs += 1
        began = START + 10_000.0 * self.runs
        (self.folder / f"run{self.runs}").mkdir()
        (self.folder / f"run{self.runs}" / "now").write_text(str(began))
        return began

    def report(self) -> dict[str, Any]:
        """Return the report of the last fork."""
        found: dict[str, Any] = json.loads((self.folder / f"run{self.runs}" / "done").read_text())
        return found

    def mine(self) -> list[Lifetime]:
        """Return the instances of the current run."""
        return [life for life in self.fake.history() if life.tags.get("boa:cluster") == f"run{self.runs}"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server and one child process for all runs."""
    folder = tmp_path_factory.mktemp("crash")
    terms = Terms(boot_seconds=15.0, shutdown_seconds=10.0, invisible_seconds=5.0)
    made: list[Site] = []
    fake = FakeCloud(lambda: made[0].now() if made and made[0].runs else START, terms)
    environment = {
        **os.environ,
        **FAKE_CREDENTIALS,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    command = [sys.executable, str(Path(__file__).with_name("crash_child.py"))]
    with FakeServer(fake) as url:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        try:
            made.append(Site(fake, url, child, folder))
            yield made[0]
        finally:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.close()
            child.stdout.close()
            child.wait(timeout=120)


def one_run(site: Site, kill_at: int | None, *, is_pooled: bool = False) -> int:
    """Run up to a point of death, start again, check everything; return how many points the run passed."""
    began = site.begin()
    up = [(began + at, wanted, pool) for at, wanted, pool in (POOLED_UP if is_pooled else UP)]
    down = [(began + at, wanted, pool) for at, wanted, pool in (POOLED_DOWN if is_pooled else DOWN)]
    ended = site.order(up, kill_at)
    is_killed, passed = ended == -signal.SIGKILL, 0
    if is_killed:
        ended = site.order(up, None)
    else:
        passed = site.report()["points"]
    assert ended == 0
    living = [life for life in site.mine() if life.is_running]
    assert len(living) == 2, f"killed at {kill_at}: {len(living)} live, 2 are wanted"
    ended = site.order(down, None if is_killed or kill_at is None else kill_at - passed)
    if ended == -signal.SIGKILL:
        ended = site.order(down, None)
    assert ended == 0
    check_the_books(site, kill_at)
    return passed + int(site.report()["points"])


def check_the_books(site: Site, kill_at: int | None) -> None:
    """Check that no instance lives or lacks tags, at most two ran at once, and each second is billed once."""
    lives = site.mine()
    assert all(life.ended_at is not None for life in lives), f"killed at {kill_at}: one still lives"
    assert all(life.tags.get("boa:intent") and life.tags.get("boa:cluster") for life in site.fake.history())
    parts = [part for life in lives for part in parts_of(life)]
    runs = [(start, end) for name, start, end in parts if life_of(name) % 2]
    for at, _ in runs:
        together = [start for start, end in runs if start <= at < end]
        assert len(together) <= 2, f"killed at {kill_at}: {len(together)} at once"
    billed = sorted((node, start, end) for node, start, end, _ in site.report()["charges"])
    assert billed == sorted(parts), f"killed at {kill_at}"
    for name, start, end, micro_dollars in site.report()["charges"]:
        hours = max(end - start, 60.0) / 3600.0
        prices = (USD_PER_HOUR, *EXTRA_USD_PER_HOUR) if life_of(name) % 2 else EXTRA_USD_PER_HOUR[:1]
        assert micro_dollars == sum(round(hours * usd * 1e6) for usd in prices)


def parts_of(life: Lifetime) -> list[tuple[str, float, float]]:
    """Return the runs of an instance and its stops between them from the fake's history, with their names."""
    assert life.ended_at is not None
    runs = [*life.runs, (life.launched_at, life.ended_at if life.stopped_at is None else life.stopped_at)]
    borders = [at for run in runs for at in run]
    if life.stopped_at is not None:
        borders.append(life.ended_at)
    return [(life_named(life.id, n + 1), *part) for n, part in enumerate(pairwise(borders))]


def test_the_crash_child_lists_every_method_of_the_store() -> None:
    """An unlisted write would be lost at a death, and the failure blamed on the controller."""
    known = (*WRITES, *QUESTIONS_OF_STORE, *ONE_OF_SEVERAL)

    assert sorted(known) == sorted(name for name in vars(Store) if not name.startswith("_"))


def test_no_death_loses_or_doubles_an_instance(site: Site) -> None:
    """Every eighth point of death has its own run; the exhaustive test with a warm pool covers all points."""
    points = one_run(site, None)
    assert points > 20, points
    for kill_at in range(0, points, 8):
        one_run(site, kill_at)
    assert site.fake.forbidden == []


def test_lives_of_the_warm_pool_are_billed_once(site: Site) -> None:
    """A node that is stopped and started again has three lives; the second costs only a disk."""
    one_run(site, None, is_pooled=True)

    assert any(life.runs for life in site.mine()), "nothing was started again"
    assert site.fake.forbidden == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(3))
def test_no_death_loses_or_doubles_a_life_of_the_warm_pool(site: Site, first: int) -> None:
    """Each point of death has its own run: about 70 runs of a second each."""
    points = one_run(site, None, is_pooled=True)
    for kill_at in range(first, points, 3):
        one_run(site, kill_at, is_pooled=True)
    assert site.fake.forbidden == []
