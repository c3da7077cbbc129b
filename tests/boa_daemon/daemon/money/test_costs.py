"""Costs: the rows of every breakdown add up to the bill, and boot time is charged to the job it was for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daemon_time import pass_time
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boa_daemon.daemon.money.cost_groupings import GROUPINGS
from boa_daemon.daemon.money.cost_labels import STANDING_ROW, UNUSED_ROW
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.offers import Extras
from boa_daemon.tick.facts.state import NodeState

START = 1_800_057_600.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 20.0, "standing_usd_per_hour": 0.045},
    "cloud": {"boot_seconds": 60.0, "tags": {"CostCentre": "4711"}},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
}
EXTRAS = (("disk", 0.2), ("address", 0.05), ("requests", 0.003), ("transfer", 0.01))


class WithExtras:
    """A cloud that bills disks and addresses of nodes, and images independently of nodes."""

    def __init__(self, cloud: Any) -> None:
        self._cloud = cloud

    def nodes(self) -> Sequence[NodeState]:
        return [replace(node, extras=EXTRAS) for node in self._cloud.nodes()]

    def standing(self) -> Extras:
        return (("images", 0.0274),)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cloud, name)


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    jobs=st.lists(
        st.tuples(st.sampled_from([0.05, 0.3, 1.0]), st.sampled_from([1, 2]), st.integers(0, 20)),
        min_size=1,
        max_size=4,
    )
)
def test_every_cost_breakdown_adds_up_to_the_bill(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple[float, int, int]]
) -> None:
    """Costs in every grouping sum to the amount billed, for any job arrivals."""
    clock = ManualClock(START)
    play = DaemonInAFolder(tmp_path_factory.mktemp("site"), clock, SETTINGS, wrap_cloud=WithExtras)
    try:
        for number, (hours, gpus, ticks) in enumerate(jobs):
            play.service.submit(
                [job_content(f"j{number}", hours=hours, max_gpus=gpus)], user=f"u{number % 2}"
            )
            pass_time(play, 30.0 * ticks)
        for _ in range(2):
            pass_time(play, 1800.0)
            spent = play.storage.store.settled_micro_dollars() + sum(
                round(row["usd"] * 1e6) for row in play.service.instances()["instances"]
            )
            for by in (*GROUPINGS, "tag:CostCentre"):
                found = play.service.cost(by=by)["usd"]
                assert found == pytest.approx(spent / 1e6, abs=2e-5)
            last = play.daemon.standing.decision
            assert last is not None
            hours = 1 + int(last.state.now // 3600.0) - int(START // 3600.0)
            kinds = {row["name"]: row["usd"] for row in play.service.cost(by="kind")["rows"]}
            assert kinds["gateway"] == pytest.approx(0.045 * hours)
            assert kinds["images"] == pytest.approx(0.0274 * hours)
    finally:
        play.close()


def test_boot_time_is_charged_to_the_first_job_of_the_node(tmp_path: Path) -> None:
    """The job pays from the launch to its start; idle time at the end is charged to the unused row."""
    clock = ManualClock(START)
    play = DaemonInAFolder(tmp_path, clock, SETTINGS)
    try:
        (job,) = play.service.submit([job_content(hours=0.5)], user="ann")["jobs"]
        pass_time(play, 3600.0)
        [mine, unused, stands] = play.service.cost(by="job")["rows"]
    finally:
        play.close()

    assert (mine["name"], unused["name"], stands["name"]) == (job, UNUSED_ROW, STANDING_ROW)
    assert mine["boot_usd"] == pytest.approx(60.0 / 3600.0 * 1.006, rel=0.01)
    assert mine["usd"] > mine["boot_usd"] + 0.5 * 1.006 - 1e-6
    assert unused["usd"] <= 120.0 / 3600.0 * 1.006


def test_the_kinds_of_a_day_add_up_to_its_cost(tmp_path: Path) -> None:
    """Each day's costs by kind sum to the cost of the day, and disks cost four times as much as addresses."""
    clock = ManualClock(START + 23 * 3600.0)
    play = DaemonInAFolder(tmp_path, clock, SETTINGS, wrap_cloud=WithExtras)
    try:
        play.service.submit([job_content(hours=2.0)], user="ann")
        pass_time(play, 2 * 3600.0)
        rows = play.service.cost(by="day")["rows"]
    finally:
        play.close()

    assert len(rows) >= 2
    for row in rows:
        assert sum(row["kinds"].values()) == pytest.approx(row["usd"], abs=2e-6)
        assert row["kinds"]["disk"] == pytest.approx(row["kinds"]["address"] * 4, rel=1e-3)
