"""A daemon is put together from its settings, and keeps what it has where new settings are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from boa_daemon.daemon.loop.components import BOOTS_SECONDS
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError
from boa_daemon.store.records import InstanceRecord
from boa_daemon.testing import ManualClock, a_node
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

NOW = 1_800_000_000.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 10.0},
    "users": {"ann": {"usd_per_day_cap": 5.0}, "bob": {"max_jobs": 3}},
    "teams": {"vision": {"members": ["ann"], "usd_per_month_cap": 90.0, "share": 2.0}},
    "daemon": {"stall_seconds": 77.0},
}


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonInAFolder]:
    """A daemon that does not tick."""
    found = DaemonInAFolder(tmp_path_factory.mktemp("play"), ManualClock(NOW), SETTINGS)
    yield found
    found.close()


def changed(**sections: Any) -> Settings:
    """Return other settings."""
    return Settings.model_validate({**SETTINGS, **sections})


def test_wrong_settings_leave_the_present_ones_in_force(play: DaemonInAFolder) -> None:
    """Nothing of them is used, though a part of them is right."""
    daemon = play.daemon
    before, planner = daemon.settings, daemon.planner
    wrong = changed(cloud={"instance_types": ["x9.huge"]}, daemon={"stall_seconds": 5.0})
    with pytest.raises(InputError, match=r"x9\.huge"):
        daemon.use(wrong)
    assert daemon.settings is before
    assert daemon.planner is planner
    assert daemon.liveness.floor_seconds == 77.0


def test_new_settings_are_used_by_every_part(play: DaemonInAFolder) -> None:
    """The planner, the watch over silence, the tries of widths, and the caps of users."""
    daemon = play.daemon
    daemon.use(changed(daemon={"stall_seconds": 55.0}, workload={"explore_fraction": 0.07}))
    assert daemon.liveness.floor_seconds == 55.0
    assert daemon.learning.tries.fraction == 0.07
    assert set(daemon.work.users()) == {"ann"}
    daemon.use(changed())
    assert daemon.liveness.floor_seconds == 77.0


def test_the_money_of_teams_is_that_of_the_settings(play: DaemonInAFolder) -> None:
    """Caps by name, and shares of the budget."""
    team = play.daemon.work.teams()["vision"]
    assert (team.day_cap_usd, team.month_cap_usd) == (None, 90.0)
    assert team.ahead_usd is not None


def test_an_ordered_cap_outlives_the_database(play: DaemonInAFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it cannot be read, the last known cap holds."""
    play.service.lower_cap("day", 20.0, user="ann")
    daemon = play.daemon

    def cap() -> float | None:
        caps = daemon.planner.rules().caps
        return None if caps is None else caps.usd_per_day

    assert cap() == 20.0
    monkeypatch.setattr(daemon, "storage", None)
    assert cap() == 20.0
    assert daemon.database_busy_seconds == 0.0


def test_classes_in_use_are_those_of_active_jobs_and_those_besides(play: DaemonInAFolder) -> None:
    """Jobs that Slurm schedules are not in the queue."""
    play.service.submit([job_content()], user="ann")
    (job,) = play.storage.queue.active.values()
    play.daemon.classes_besides = frozenset({"slurm-cloud"})
    assert play.daemon.classes_in_use(play.storage) == {job.class_name, "slurm-cloud"}


def test_refused_settings_are_said_once_an_hour_for_each_reason(play: DaemonInAFolder) -> None:
    """Another reason is said at once."""
    clock = play.clock
    assert isinstance(clock, ManualClock)
    for instant, note in ((NOW, "one"), (NOW + 60.0, "one"), (NOW + 60.0, "two"), (NOW + 3600.0, "one")):
        clock.instant = instant
        play.daemon.say_settings_refused(note)
    clock.instant = NOW
    said = [row["sentence"] for row in play.daemon.alerts.latest(9) if row["sentence"] in ("one", "two")]
    assert sorted(said) == ["one", "one", "two"]


def test_a_start_reads_the_boot_times_of_two_weeks(tmp_path: Any) -> None:
    """Older ones say little about the cloud of today."""
    play = DaemonInAFolder(tmp_path, ManualClock(NOW), SETTINGS)
    for name, age in (("new", 3600.0), ("old", BOOTS_SECONDS + 3600.0)):
        launched = NOW - age
        node = replace(a_node(name, launched_at=launched), phase="terminated", ended_at=launched + 900.0)
        play.storage.queue.save_instance(InstanceRecord(node=node, ready_at=launched + 80.0))
    play.close()
    again = DaemonInAFolder(tmp_path, ManualClock(NOW), SETTINGS)
    assert again.daemon.boots.document() == {"gpu-x4": {"boots": 1, "p50_seconds": 80.0, "p90_seconds": 80.0}}
    again.close()
