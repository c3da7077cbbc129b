"""Groups in a daemon: one name, one budget, one cancel; and what ten thousand of them cost a submission."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.service_base import NotAllowed, UnknownJob
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

TICK = 30.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 50.0, "usd_per_day_cap": None, "max_instances": 2},
    "cloud": {"boot_seconds": 30.0, "instance_types": ["g4dn.12xlarge"]},
    "daemon": {"tick_seconds": TICK},
}


class Stage:
    """A daemon on a clock of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, ManualClock(1_800_000_000.0)
        self.play = DaemonInAFolder(folder, self.clock, SETTINGS)

    def submit(self, **changes: Any) -> str:
        (group,) = self.play.service.submit([job_content("sweep", **changes)], user="ann")["groups"]
        return str(group)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.play.daemon.tick()
            self.clock.instant += TICK

    def group(self, name: str) -> dict[str, Any]:
        return self.play.service.group(name)

    def reopen(self) -> None:
        self.play.close()
        self.play = DaemonInAFolder(self.folder, self.clock, SETTINGS)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    found = Stage(tmp_path)
    yield found
    found.play.close()


def test_members_know_their_place(stage: Stage) -> None:
    """Rows name group, index and values, and the command finds them in its environment."""
    stage.play.service.submit([job_content("before")], user="ann")
    group = stage.submit(matrix={"LR": [0.1, 0.2]}, count=2)
    assert group == "sweep-g2"

    rows = stage.play.service.jobs(group=group)["jobs"]
    assert [(row["id"], row["group"], row["index"], row["matrix"]["LR"]) for row in reversed(rows)] == [
        ("sweep-2", group, 0, 0.1),
        ("sweep-3", group, 1, 0.1),
        ("sweep-4", group, 2, 0.2),
        ("sweep-5", group, 3, 0.2),
    ]
    environment = stage.play.storage.queue.active["sweep-4"].spec.environment
    assert {name: environment[name] for name in ("LR", "BOA_GROUP", "BOA_INDEX", "BOA_GROUP_SIZE")} == {
        "LR": "0.2", "BOA_GROUP": group, "BOA_INDEX": "2", "BOA_GROUP_SIZE": "4",
    }  # fmt: skip
    stage.reopen()
    assert stage.group(group)["counts"] == {"queued": 4}


def test_the_jobs_of_a_group_share_one_budget(stage: Stage) -> None:
    """Twenty jobs on eight GPUs, and money for half: what runs is stopped, what waits is not started.

    Also where the daemon is started again in between.
    """
    group = stage.submit(hours=1.0, count=20, max_usd=10.0)
    most_usd_per_hour = 0.0
    for at in range(3000):
        stage.tick()
        most_usd_per_hour = max(most_usd_per_hour, stage.play.service.status()["usd_per_hour"])
        if at == 40:
            stage.reopen()
        if not stage.play.storage.queue.active:
            break
    found = stage.group(group)
    rows = stage.play.service.jobs(group=group)["jobs"]

    assert set(found["counts"]) == {"finished", "failed"}
    assert sum(found["counts"].values()) == 20
    assert found["counts"]["finished"] >= 5
    # It ends near what was allowed, and within two looks of the most that ran at once.
    assert 9.0 < found["usd"] < 10.0 + 2 * TICK / 3600.0 * most_usd_per_hour
    assert found["usd"] == pytest.approx(sum(row["usd"] for row in rows), abs=1e-6)
    causes = {row["cause"] for row in rows if row["status"] == "failed"}
    assert causes <= {f"the max_usd of its group {group} is spent", "max_usd of its group reached"}
    assert any(cause.startswith("the max_usd") for cause in causes)
    said = [alert["sentence"] for alert in stage.play.service.alerts()["alerts"]]
    assert sum(group in sentence for sentence in said) == 1


def test_two_groups_have_two_budgets(stage: Stage) -> None:
    """The money of one is not the other's."""
    poor, rich = (
        stage.submit(hours=0.5, count=8, max_usd=0.5),
        stage.submit(hours=0.5, count=4, max_usd=500.0),
    )
    for _ in range(400):
        stage.tick()
        if not stage.play.storage.queue.active:
            break
    assert stage.group(rich)["counts"] == {"finished": 4}
    assert stage.group(poor)["counts"]["failed"] > 0


def test_one_cancel_ends_all(stage: Stage) -> None:
    """Those that run may write their checkpoints, those that wait are over at once; others are untouched."""
    group, other = stage.submit(hours=5.0, count=30), stage.submit(hours=5.0, count=2)
    stage.tick(6)
    assert stage.group(group)["counts"].get("running", 0) > 0
    with pytest.raises(NotAllowed, match="is of user ann; you are bob"):
        stage.play.service.cancel_group(group, user="bob", is_admin=False)

    answer = stage.play.service.cancel_group(group, user="ann", is_admin=False)
    assert (answer["status"], answer["jobs"]) == ("cancelling", 30)
    stage.tick(10)
    assert stage.group(group)["counts"] == {"cancelled": 30}
    assert "cancelled" not in stage.group(other)["counts"]
    assert not stage.play.service.cancel_group(group, user="ann", is_admin=False)["changed"]


def test_a_job_may_come_after_a_whole_group(stage: Stage) -> None:
    """It starts when the last has finished; it fails if one has not, unless any end will do."""
    good, bad = stage.submit(hours=0.01, count=5), stage.submit(hours=5.0, count=2)
    names = stage.play.service.submit(
        [
            job_content("gather", hours=0.01, after=[good]),
            job_content("never", after=[bad]),
            job_content("anyhow", hours=0.01, after=[f"{bad}:end"]),
        ],
        user="ann",
    )["jobs"]
    stage.tick()
    waits = {row["id"]: row["waits_for"] for row in stage.play.service.jobs()["jobs"]}
    assert [waits[name] for name in names] == ["after"] * 3
    stage.play.service.cancel_group(bad, user="ann", is_admin=False)
    stage.tick(40)
    ends = {row["id"]: (row["status"], row["cause"]) for row in stage.play.service.jobs()["jobs"]}
    assert ends[names[0]][0] == ends[names[2]][0] == "finished"
    assert ends[names[1]] == ("failed", f"it was to run after {bad}, which is cancelled")


@pytest.mark.parametrize("name", ["sweep-g1", "other-g2", "sweep-2", "sweep-g0", "sweep-g", "g2"])
def test_what_is_no_group_is_said(stage: Stage, name: str) -> None:
    """Also a number that is no first one's, and the name of another."""
    stage.play.service.submit([job_content("sweep")], user="ann")
    group = stage.submit(count=2)
    assert group == "sweep-g2"
    with pytest.raises(UnknownJob, match="no group"):
        stage.play.service.group(name)
    with pytest.raises(InputError):
        stage.play.service.submit([job_content(after=["sweep-g1"])], user="ann")


@pytest.mark.exhaustive  # Ten thousand rows go in and out.
def test_ten_thousand_jobs_are_taken_and_cancelled_in_seconds(stage: Stage) -> None:
    """One file; the limits leave room for a busy machine, `benchmarks/submissions.py` measures."""
    began = time.perf_counter()
    group = stage.submit(matrix={"LR": [0.1, 0.2], "SEED": list(range(50))}, count=100, max_usd=1000.0)
    taken = time.perf_counter() - began
    assert taken < 60.0
    stage.tick()
    began = time.perf_counter()
    assert stage.play.service.cancel_group(group, user="ann", is_admin=False)["jobs"] == 10_000
    assert time.perf_counter() - began < 60.0
    with pytest.raises(InputError, match="10000 jobs at the most, groups included"):
        stage.play.service.submit([job_content(count=9_999), job_content(count=2)], user="ann")
