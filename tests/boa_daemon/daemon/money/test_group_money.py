"""Groups of jobs: one name, one budget, one cancel, and the time that a group of 10,000 jobs takes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.service.service_base import NotAllowed, UnknownJob
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
    """A daemon with a clock that the test sets."""

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


def test_each_job_of_a_group_knows_its_group_index_and_values(stage: Stage) -> None:
    """Rows and environment variables give group, index and values, and a restart keeps the group."""
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
    """A group whose `max_usd` is spent gets its running jobs stopped and its waiting jobs failed.

    The budget also holds across a restart of the daemon.
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
    # The group costs at most its budget plus two ticks at the highest spend rate.
    assert 9.0 < found["usd"] < 10.0 + 2 * TICK / 3600.0 * most_usd_per_hour
    assert found["usd"] == pytest.approx(sum(row["usd"] for row in rows), abs=1e-6)
    causes = {row["cause"] for row in rows if row["status"] == "failed"}
    assert causes <= {f"the max_usd of its group {group} is spent", "max_usd of its group reached"}
    assert any(cause.startswith("the max_usd") for cause in causes)
    said = [alert["sentence"] for alert in stage.play.service.alerts()["alerts"]]
    said = [sentence for sentence in said if group in sentence]
    assert len({sentence.partition(" spent")[0] for sentence in said}) == len(said), "each is said once"
    assert [part in " ".join(said) for part in ("50%", "80%", "100%")] == [True] * 3


def test_two_groups_have_two_budgets(stage: Stage) -> None:
    """A group that has spent its budget takes no money from another group."""
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


def test_cancelling_a_group_ends_all_its_jobs(stage: Stage) -> None:
    """Running and waiting jobs of the group are cancelled, jobs of other groups are not.

    Running jobs are stopped and not killed, so they may write their checkpoints.
    """
    group, other = stage.submit(hours=5.0, count=30), stage.submit(hours=5.0, count=2)
    stage.tick(6)
    assert stage.group(group)["counts"].get("running", 0) > 0
    with pytest.raises(NotAllowed, match="is of user ann; you are bob"):
        stage.play.service.cancel_group(group, user="bob", is_admin=False)
    assert not any(job.is_cancelled for job in stage.play.storage.queue.active.values())

    answer = stage.play.service.cancel_group(group, user="ann", is_admin=False)
    assert (answer["status"], answer["jobs"]) == ("cancelling", 30)
    stage.tick(10)
    assert stage.group(group)["counts"] == {"cancelled": 30}
    first: dict[str, list[str]] = {}
    for line in (stage.folder / "runner.jsonl").read_text().splitlines():
        event = json.loads(line)
        first.setdefault(event["job"], []).append(event["what"])
    cancelled = {row["id"] for row in stage.play.service.jobs(group=group)["jobs"]}
    ended = [orders for job, orders in first.items() if job in cancelled]
    assert ended
    assert all(orders[:2] == ["start", "stop"] for orders in ended)
    assert "cancelled" not in stage.group(other)["counts"]
    assert not stage.play.service.cancel_group(group, user="ann", is_admin=False)["changed"]


def test_a_job_can_wait_for_a_whole_group(stage: Stage) -> None:
    """The job starts once all jobs of the group finished and fails if one did not; `:end` accepts any end."""
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
def test_an_unknown_group_is_refused(stage: Stage, name: str) -> None:
    """A name with a wrong number or the name of a job is not a group, and a job cannot wait for it."""
    stage.play.service.submit([job_content("sweep")], user="ann")
    group = stage.submit(count=2)
    assert group == "sweep-g2"
    with pytest.raises(UnknownJob, match="no group"):
        stage.play.service.group(name)
    with pytest.raises(InputError):
        stage.play.service.submit([job_content(after=["sweep-g1"])], user="ann")


@pytest.mark.exhaustive  # 10,000 rows are written and read.
def test_ten_thousand_jobs_are_submitted_and_cancelled_within_a_minute_each(stage: Stage) -> None:
    """The limits allow for a busy machine; `benchmarks/submissions.py` measures the real time."""
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
