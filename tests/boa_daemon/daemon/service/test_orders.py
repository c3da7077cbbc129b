"""Orders for one job: another width, and a rehearsed interruption."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_time import pass_time

from boa_daemon.daemon.service.orders import CannotRehearse
from boa_daemon.daemon.service.service_base import NotAllowed
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
    """A daemon with a clock that the test sets."""

    def __init__(self, folder: Path, **cloud: Any) -> None:
        self.folder, self.clock = folder, ManualClock(START)
        settings = {**SETTINGS, "cloud": {**SETTINGS["cloud"], **cloud}}
        self.play = DaemonInAFolder(folder, self.clock, settings)

    def run(self, seconds: float) -> None:
        pass_time(self.play, seconds, every=10.0)

    def submit(self, user: str = "ann", **changes: Any) -> str:
        job: str = self.play.service.submit([job_content(**changes)], user=user)["jobs"][0]
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
def test_an_ordered_width_takes_effect_at_once(stage: Stage, widths: tuple[int, ...]) -> None:
    """The job gets each ordered width within two minutes and finishes without losing a step."""
    job = stage.submit(hours=0.75, max_gpus=8)
    stage.run(120.0)
    for gpus in widths:
        ordered(stage, job, gpus)
        stage.run(120.0)
        assert stage.row(job)["gpus"] == gpus
    stage.run(2700.0)
    assert (stage.row(job)["status"], stage.row(job)["lost_steps"]) == ("finished", 0)


def test_an_ordered_width_survives_a_restart_and_can_be_withdrawn(stage: Stage) -> None:
    """The limits of the job file are kept and apply again after the withdrawal."""
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
    """A width of 1000 GPUs is an error, and the job is unchanged."""
    job = stage.submit(hours=1.0)
    with pytest.raises(InputError, match="no width from 1000 to"):
        ordered(stage, job, 1000)
    assert stage.row(job)["file"]["max_gpus"] == 1


def test_another_width_for_a_running_rigid_job_is_refused(stage: Stage) -> None:
    """The job would start over; a waiting rigid job gets the ordered width."""
    job = stage.submit(hours=1.0, max_gpus=4, elastic=False)
    ordered(stage, job, 2)
    stage.run(120.0)
    assert stage.row(job)["gpus"] == 2
    with pytest.raises(InputError, match="start over on 4 GPUs"):
        ordered(stage, job, 4)


def test_only_the_owner_or_an_administrator_orders_a_width(stage: Stage) -> None:
    """An order for an ended job changes nothing."""
    job = stage.submit(hours=0.1)
    with pytest.raises(NotAllowed, match="of user ann; you are bob"):
        ordered(stage, job, 2, user="bob")
    assert ordered(stage, job, 2, user="bob", is_admin=True)["changed"]
    stage.run(3600.0)
    assert stage.row(job)["status"] == "finished"
    assert not ordered(stage, job, 1)["changed"]


def interrupted(stage: Stage, job: str, **who: Any) -> dict[str, Any]:
    return stage.play.service.interrupt(job, **({"user": "ann", "is_admin": False} | who))


def test_a_rehearsed_interruption_behaves_like_a_real_one(stage: Stage) -> None:
    """The job moves in time without losing a step, and the cloud ends its old node within 2 minutes."""
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


def test_a_rehearsed_interruption_ends_the_node_without_any_tick(stage: Stage) -> None:
    """The cloud ends the node at the announced time, and bills it until then."""
    job = stage.submit(hours=1.0)
    stage.run(120.0)
    told = interrupted(stage, job)
    stage.clock.instant += 500.0
    [gone] = [node for node in stage.play.cloud.nodes() if node.id == told["node"]]
    assert gone.ended_at == told["ends_by"]
    stage.run(60.0)
    [row] = [
        row for row in stage.play.service.instances(ended=True)["instances"] if row["id"] == told["node"]
    ]
    hours = (told["ends_by"] - row["launched_at"]) / 3600.0
    assert row["usd"] == pytest.approx(hours * row["usd_per_hour"], abs=1e-4)


def test_an_interruption_of_a_waiting_job_cannot_be_rehearsed(stage: Stage) -> None:
    """The job is on no node."""
    job = stage.submit(hours=1.0)
    with pytest.raises(CannotRehearse, match="on no node"):
        interrupted(stage, job)


def test_only_an_administrator_interrupts_a_node_with_a_job_of_another_user(tmp_path: Path) -> None:
    """The owner of one of its jobs is refused, and the node runs on."""
    stage = Stage(tmp_path, instance_types=["g5.12xlarge"])
    try:
        mine, others = stage.submit(hours=1.0), stage.submit(user="bob", hours=1.0)
        stage.run(120.0)
        [node] = stage.row(mine)["nodes"]
        assert stage.row(others)["nodes"] == [node]
        with pytest.raises(NotAllowed, match=f"{others} of bob"):
            interrupted(stage, mine)
        [listed] = stage.play.cloud.nodes()
        assert listed.ends_by is None
        assert interrupted(stage, mine, is_admin=True)["node"] == node
    finally:
        stage.play.close()
