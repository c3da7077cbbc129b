"""The daemon is killed by SIGKILL before each SQL statement, each commit and each call to cloud or engine.

A boundary is skipped if no byte on disk changed since the boundary before, because a death there would leave
the same state. Each case copies the files from before one tick, forks a child that runs the tick and kills
itself at the n-th boundary, opens the files again, and plays on to the end. The cloud and the engine keep
their state in their own files, as real ones would.
"""

from __future__ import annotations

import os
import shutil
import signal
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kill_points import shares, what_is_left
from sqlalchemy import event

from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

START = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0
STEP = 30.0
CAP_USD = 6.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 4.0, "usd_per_day_cap": CAP_USD, "max_instances": 3},
    "cloud": {"boot_seconds": 45.0},
    "daemon": {"tick_seconds": STEP, "idle_hold_seconds": 30.0},
}
TICKS = 60
"""At the most: a story ends when nothing is left to be done."""


class Boundaries:
    """Counts boundaries; kills the process at one of them, or notes those at which the files have changed."""

    def __init__(self, at: int | None = None, *, noted: Path | None = None) -> None:
        self.count, self.at = 0, at
        self.noted, self.before = noted, ""
        self.deaths: list[int] = []

    def cross(self, *_: Any) -> None:
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.noted is not None and (left := what_is_left(self.noted)) != self.before:
            self.before = left
            self.deaths.append(self.count)

    def around(self, inner: Any) -> Any:
        crosser = self

        class Watched:
            def __getattr__(self, name: str) -> Any:
                found = getattr(inner, name)
                if not callable(found):
                    return found

                def call(*args: Any, **values: Any) -> Any:
                    crosser.cross()
                    return found(*args, **values)

                return call

        return Watched()

    def watch(self, play: DaemonInAFolder) -> None:
        engine = play.storage.store.database.engine
        for name in ("before_cursor_execute", "commit"):
            event.listen(engine, name, self.cross)


def play_at(
    folder: Path, tick: int, boundaries: Boundaries | None = None
) -> tuple[DaemonInAFolder, ManualClock]:
    """Open the folder with the clock at the instant of a tick."""
    clock = ManualClock(START + tick * STEP)
    around: Callable[[Any], Any] | None = None if boundaries is None else boundaries.around
    play = DaemonInAFolder(folder, clock, SETTINGS, wrap_cloud=around, wrap_runner=around)
    if boundaries is not None:
        boundaries.watch(play)
    return play, clock


def submit(play: DaemonInAFolder) -> None:
    """Submit three jobs of different lengths; one needs two GPUs."""
    play.service.submit(
        [
            job_content("short", hours=0.05),
            job_content("long", hours=0.12),
            job_content("wide", hours=0.1, min_gpus=2, max_gpus=2),
        ],
        user="ann",
    )


def play_on(folder: Path, tick: int) -> None:
    """Play from a tick to the end, and check jobs, nodes and ledger."""
    play, clock = play_at(folder, tick)
    try:
        for number in range(tick, TICKS):
            clock.instant = START + number * STEP
            decision = play.daemon.tick()
            assert not play.daemon.standing.fault
            if play.is_over(decision):
                break
        statuses = Counter(row["status"] for row in play.service.jobs()["jobs"])
        assert statuses == {"finished": 3}, "no job lost"
        assert len(set(play.runner.started)) == len(play.runner.started), "no generation started twice"
        assert all(node.ended_at is not None for node in play.cloud.nodes()), "no node leaked"
        settled = play.storage.store.settled_micro_dollars()
        assert settled == play.cloud.bill_micro_dollars(), "the ledger is exact"
        assert settled <= CAP_USD * 1e6, "the cap holds"
        assert play.storage.store.unsettled() == [], "nothing is left open"
    finally:
        play.close()


def killed_child(folder: Path, tick: int, at: int) -> bool:
    """Run one tick in a child that dies at a boundary; return whether the child reached it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            play, _ = play_at(folder, tick, Boundaries(at))
            play.daemon.tick()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, Path, int]]:
    """Play to the end; return (tick, files before the tick, boundary) for each death to try.

    Deaths are taken from each tick that acts, and from two ticks that do not.
    """
    folder = tmp_path_factory.mktemp("story")
    live = folder / "live"
    deaths: list[tuple[int, Path, int]] = []
    live.mkdir()
    play, _ = play_at(live, 0)
    submit(play)
    play.close()
    quiet = 0
    for tick in range(TICKS):
        copy = folder / f"before-{tick}"
        shutil.copytree(live, copy)
        boundaries = Boundaries(noted=live)
        play, _ = play_at(live, tick, boundaries)
        decision, dying = play.daemon.tick(), list(boundaries.deaths)
        has_ended = play.is_over(decision)
        play.close()
        assert decision is not None
        if decision.actions or (decision.state.jobs and quiet < 2):
            quiet += not decision.actions
            deaths += [(tick, copy, at) for at in dying]
        else:
            shutil.rmtree(copy)
        if has_ended:
            break
    return deaths


@pytest.mark.parametrize(("first", "step"), shares(8, parts=2))
def test_a_daemon_killed_at_any_boundary_goes_on_from_its_files(
    story: list[tuple[int, Path, int]], tmp_path: Path, first: int, step: int
) -> None:
    """After each death all jobs finish once, no node leaks, and the ledger is exact and under the cap."""
    assert len(story) > 40, "every tick that acts commits, and calls the cloud or the engine"
    for tick, before, at in story[first::step]:
        folder = tmp_path / f"{tick}-{at}"
        shutil.copytree(before, folder)
        assert killed_child(folder, tick, at), "the same files take the same way"
        play_on(folder, tick + 1)
        shutil.rmtree(folder)
