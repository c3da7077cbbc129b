"""Orders about one job: another width, and a rehearsal of an interruption."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_time import pass_time

from boa_daemon.daemon.orders import CannotRehearse
from boa_daemon.daemon.service_base import NotAllowed
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

START = 1_800_057_600.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 50.0, "usd_per_day_cap": 3000.0},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
}


class Stage:
    """A daemon on a clock of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, ManualClock(START)
        self.play = DaemonInAFolder(folder, self.clock, SETTINGS)

    def run(self, seconds: float) -> None:
        pass_time(self.play, seconds, every=10.0)

    def submit(self, **changes: Any) -> str:
        job: str = self.play.service.submit([job_content(**changes)], user="ann")["jobs"][0]
        return job

    def row(self, job: str) -> dict[str, Any]:
        return self.play.service.job(job)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    found = Stage(tmp_path)
    yield found
    found.play.close()


def ordered(stage: Stage, job: str, gpus: int | None, **who: Any) -> dict[str, Any]:
    return stage.play.service.resize(job, gpus=gpus, **({"user": "ann", "is_admin": False} | who))


@pytest.mark.parametrize("widths", [(1, 4, 2), (4, 1, 8), (2, 2, 1)])
def test_an_ordered_width_is_taken_at_once(stage: Stage, widths: tuple[int, ...]) -> None:
    """Whatever the rules against flapping say, wider and narrower; the job finishes with no step lost."""
    job = stage.submit(hours=0.75, max_gpus=8)
    stage.run(120.0)
    for gpus in widths:
        ordered(stage, job, gpus)
        stage.run(120.0)
        assert stage.row(job)["gpus"] == gpus
    stage.run(2700.0)
    assert (stage.row(job)["status"], stage.row(job)["lost_steps"]) == ("finished", 0)


def test_an_ordered_width_outlives_a_restart_and_can_be_taken_back(stage: Stage) -> None:
    """The limits of the file are kept beside the order."""
    job = stage.submit(hours=8.0, max_gpus=2, min_gpus=1)
    ordered(stage, job, 4)
    stage.play.close()
    stage.play = DaemonInAFolder(stage.folder, stage.clock, SETTINGS)
    stage.run(180.0)
    assert stage.row(job)["gpus"] == 4
    ordered(stage, job, None)
    stage.run(600.0)
    file = stage.row(job)["file"]
    assert (file["min_gpus"], file["max_gpus"]) == (1, 2)
    assert stage.row(job)["gpus"] <= 2


def test_a_width_that_the_class_lacks_is_refused(stage: Stage) -> None:
    """The default class is known up to 64 GPUs, and 16 nodes hold 16; nothing is changed."""
    job = stage.submit(hours=1.0)
    with pytest.raises(InputError, match="no width from 1000 to"):
        ordered(stage, job, 1000)
    assert stage.row(job)["file"]["max_gpus"] == 1


def test_a_rigid_job_that_runs_would_begin_anew(stage: Stage) -> None:
    """It is refused with what to do; one that waits may still be given a width."""
    job = stage.submit(hours=1.0, max_gpus=4, elastic=False)
    ordered(stage, job, 2)
    stage.run(120.0)
    assert stage.row(job)["gpus"] == 2
    with pytest.raises(InputError, match="start over on 4 GPUs"):
        ordered(stage, job, 4)


def test_who_may_order(stage: Stage) -> None:
    """The owner and administrators; an order about a job that is over changes nothing."""
    job = stage.submit(hours=0.1)
    with pytest.raises(NotAllowed, match="of user ann; you are bob"):
        ordered(stage, job, 2, user="bob")
    assert ordered(stage, job, 2, user="bob", is_admin=True)["changed"]
    stage.run(3600.0)
    assert stage.row(job)["status"] == "finished"
    assert not ordered(stage, job, 1)["changed"]


def interrupted(stage: Stage, job: str, **who: Any) -> dict[str, Any]:
    return stage.play.service.interrupt(job, **({"user": "ann", "is_admin": False} | who))


def test_a_rehearsed_interruption_is_one(stage: Stage) -> None:
    """The job leaves in time and goes on elsewhere; the cloud ends the node after two minutes, unasked."""
    job = stage.submit(hours=1.0)
    stage.run(120.0)
    told = interrupted(stage, job)
    assert told["ends_by"] == stage.clock.instant + 120.0
    stage.run(110.0)
    row = stage.row(job)
    assert row["generation"] == 2
    assert told["node"] not in row["nodes"]
    assert row["lost_steps"] == 0
    stage.run(60.0)
    [gone] = [node for node in stage.play.cloud.everything() if node.id == told["node"]]
    assert gone.ended_at is not None
    assert gone.ended_at <= told["ends_by"]


def test_a_node_that_nobody_leaves_is_taken_all_the_same(stage: Stage) -> None:
    """Without a tick the cloud ends it on time, and bills it until then."""
    job = stage.submit(hours=1.0)
    stage.run(120.0)
    told = interrupted(stage, job)
    stage.clock.instant += 500.0
    [gone] = [node for node in stage.play.cloud.nodes() if node.id == told["node"]]
    assert gone.ended_at == told["ends_by"]


def test_what_cannot_be_rehearsed(stage: Stage) -> None:
    """A job that waits is on no node; a node with a job of another user is for administrators."""
    job = stage.submit(hours=1.0)
    with pytest.raises(CannotRehearse, match="on no node"):
        interrupted(stage, job)
