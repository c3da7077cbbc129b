"""The settings that were applied last are found again: by the state folder, or by the settings file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boa_daemon.daemon.settings.applied_settings import (
    FILE_NAME,
    AppliedSettings,
    is_descriptor,
    pointed_state,
    pointers_to,
    read_applied,
    unmounted_disk,
    write_applied,
)
from boa_daemon.daemon.settings.cost_copies import CostFiles
from boa_daemon.errors import InputError

APPLIED = AppliedSettings(
    given={"budget": {"usd_per_hour": 4.0}},
    complete={"budget": {"usd_per_hour": 4.0, "max_instances": 2}},
    files=("/etc/boa/boa.toml",),
    costs=CostFiles(costs={("prices", "g5.xlarge"): 1.5}, texts={"/etc/prices.toml": b"p"}),
)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pointers are written below the test's folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def write(folder: Path, explicit: Path | None = None, *, points: bool = True) -> None:
    """Write applied settings to a state folder."""
    write_applied(folder, APPLIED, explicit, points=points)


def test_applied_settings_are_read_back_and_private(tmp_path: Path) -> None:
    """None were applied in a new folder, nor where the folder is a file."""
    assert read_applied(tmp_path / "state") is None
    write(tmp_path / "state")
    assert read_applied(tmp_path / "state") == APPLIED
    assert (tmp_path / "state" / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert read_applied(tmp_path / "state" / FILE_NAME) is None
    assert read_applied(Path("nul\0")) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"given": {}, "complete": {}}', '{"given": 1}'])
def test_limits_that_cannot_be_read_are_no_missing_limits(tmp_path: Path, text: str) -> None:
    """A daemon that took them for none would begin without caps; the error says how to go on."""
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(InputError, match=r"the limits that were in force cannot be read.*boa config apply"):
        read_applied(tmp_path)


def test_an_earlier_version_noted_no_costs(tmp_path: Path) -> None:
    """That is not the same as files that say nothing."""
    (tmp_path / FILE_NAME).write_text('{"given": {}, "complete": {}, "files": []}')
    found = read_applied(tmp_path)
    assert found == AppliedSettings(given={}, complete={})
    assert found.costs is None


def test_a_settings_file_points_to_the_state_folder_of_its_daemon(tmp_path: Path) -> None:
    """Without a named file, the working folder does, and the files that settings came from."""
    mine, other = tmp_path / "mine.toml", tmp_path / "other.toml"
    write(tmp_path / "a", mine)
    write(tmp_path / "b")
    assert pointed_state(mine) == tmp_path / "a"
    assert pointed_state(None) == tmp_path / "b"
    assert pointed_state(Path("/etc/boa/boa.toml")) == tmp_path / "b"
    assert pointed_state(other) is None
    assert len(list(pointers_to(tmp_path / "a"))) == 1
    assert len(list(pointers_to(tmp_path / "b"))) == 2


def test_a_daemon_for_one_run_takes_the_pointer_away(tmp_path: Path) -> None:
    """Its settings are not remembered for the next daemon."""
    write(tmp_path / "a")
    write(tmp_path / "b", points=False)
    assert pointed_state(None) is None
    assert list(pointers_to(tmp_path / "b")) == []


def test_pointers_to_a_folder_without_settings_are_forgotten(tmp_path: Path) -> None:
    """Those to a folder that cannot be looked at now are kept."""
    mine, away = tmp_path / "mine.toml", tmp_path / "away.toml"
    write(tmp_path / "a", mine)
    write(tmp_path / "disk" / "b", away)
    (tmp_path / "a" / FILE_NAME).unlink()
    (tmp_path / "disk").rename(tmp_path / "unplugged")
    write(tmp_path / "c")
    assert pointed_state(mine) is None
    assert pointed_state(away) == tmp_path / "disk" / "b"


def test_a_state_folder_on_a_disk_that_is_not_mounted_is_away(tmp_path: Path) -> None:
    """A daemon that began anew in the empty folder below would know no limits."""
    mine, state = tmp_path / "mine.toml", tmp_path / "mnt" / "state"
    write(state, mine)
    (pointer,) = [file for file in pointers_to(state) if "mine" in file.read_text()]
    assert unmounted_disk(mine, state) == ""
    pointer.write_text(json.dumps({**json.loads(pointer.read_text()), "mount": str(tmp_path / "mnt")}))
    assert unmounted_disk(mine, state) == ""
    (state / FILE_NAME).unlink()
    assert unmounted_disk(mine, state) == str(tmp_path / "mnt")
    assert unmounted_disk(mine, tmp_path / "elsewhere") == ""


@pytest.mark.parametrize(
    ("name", "is_one"), [("/dev/fd/63", True), ("/proc/self/fd/3", True), ("boa.toml", False)]
)
def test_a_pipe_stands_for_no_file(tmp_path: Path, name: str, is_one: bool) -> None:
    """It stands for another file in each process, so nothing points from it."""
    assert is_descriptor(name) is is_one
    write(tmp_path / "a", Path(name))
    assert (pointed_state(Path(name)) is None) is is_one
