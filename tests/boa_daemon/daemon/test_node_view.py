"""Nodes that the cloud calls ready and the engine cannot use."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.ports import Accepted, Refused, Unknown

START = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 10.0},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
}


class Deaf:
    """A runner that prepares no node of a first few."""

    def __init__(self, inner: Any, deaf: int) -> None:
        self.inner, self.deaf, self.met = inner, deaf, list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def prepare(self, nodes: Any) -> dict[str, Accepted | Refused | Unknown]:
        """Accept all but the first that were met."""
        self.met += [node.id for node in nodes if node.id not in self.met]
        lost = Unknown(reason="its agent does not answer")
        return {node.id: lost if node.id in self.met[: self.deaf] else Accepted() for node in nodes}


def test_a_node_that_can_never_be_prepared_goes_back_and_another_one_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For half an hour it counts as booting, so nobody rents a second one; then it is replaced, once."""
    clock = ManualClock(START)
    play = DaemonInAFolder(tmp_path, clock, SETTINGS, wrap_runner=lambda inner: Deaf(inner, 1))
    try:
        (job,) = play.service.submit([job_content(hours=1.0)], user="ann")["jobs"]
        with caplog.at_level(logging.WARNING, logger="boa.daemon"):
            while clock.instant < START + 4 * 3600.0:
                play.daemon.tick()
                assert not play.daemon.standing.fault
                clock.instant += 30.0
        assert play.service.job(job)["status"] == "finished"
        nodes = sorted(
            (row["launched_at"], row["ended_at"]) for row in play.service.instances(ended=True)["instances"]
        )
    finally:
        play.close()
    said = [record.message for record in caplog.records if "goes back" in record.message]
    assert len(said) == 1
    assert "its agent does not answer" in said[0]
    (first_from, first_until), (second_from, second_until) = nodes
    assert 1800.0 < first_until - first_from < 1900.0
    assert first_until - 60.0 <= second_from <= first_until + 60.0
    assert second_until < second_from + 2 * 3600.0


def test_a_node_that_runs_and_cannot_be_used_has_its_reason_within_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In status, explain, the list of instances and the log; once in the log, however long it lasts."""
    clock = ManualClock(START)
    play = DaemonInAFolder(tmp_path, clock, SETTINGS, wrap_runner=lambda inner: Deaf(inner, 1))
    try:
        (job,) = play.service.submit([job_content(hours=1.0)], user="ann")["jobs"]
        with caplog.at_level(logging.WARNING, logger="boa.daemon"):
            while clock.instant < START + 600.0:
                play.daemon.tick()
                clock.instant += 15.0
        [row] = play.service.instances()["instances"]
        said = [*play.service.status()["notes"], play.service.explain(job)["text"], row["note"]]
    finally:
        play.close()
    logged = [record.message for record in caplog.records if "cannot be used yet" in record.message]
    assert all("its agent does not answer" in each for each in said)
    assert len(said) == 3
    assert len(logged) == 1
    assert "has run for 30 s" in logged[0]


class Unfit(Deaf):
    """A runner that refuses the first nodes, as one whose GPUs are not fit."""

    def prepare(self, nodes: Any) -> dict[str, Accepted | Refused | Unknown]:
        """Refuse the first."""
        found = super().prepare(nodes)
        refused = Refused(reason="GPU 1 has fallen off the bus", kind="bad-request")
        return {name: each if isinstance(each, Accepted) else refused for name, each in found.items()}


def test_a_node_whose_gpus_are_not_fit_goes_back_at_once(tmp_path: Path) -> None:
    """The node pays for the minute that the look took; the job is not blamed, and runs on the next one."""
    clock = ManualClock(START)
    play = DaemonInAFolder(tmp_path, clock, SETTINGS, wrap_runner=lambda inner: Unfit(inner, 1))
    try:
        (job,) = play.service.submit([job_content(hours=0.5)], user="ann")["jobs"]
        while clock.instant < START + 2 * 3600.0:
            play.daemon.tick()
            clock.instant += 30.0
        row = play.service.job(job)
        first, *_ = sorted(
            play.service.instances(ended=True)["instances"], key=lambda each: each["launched_at"]
        )
    finally:
        play.close()
    assert (row["status"], row["failures"]) == ("finished", 0)
    assert first["ended_at"] - first["launched_at"] <= 120.0
