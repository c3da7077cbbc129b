"""What of BOA is on a machine is found by its names, and taken away without what belongs to others."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.daemon.loop.systemd import UNIT
from boa_daemon.daemon.service.installation import InstalledPart, installed_parts, take_away
from boa_daemon.daemon.settings.daemon_paths import DaemonPaths


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own folders are below the test's folder."""
    for name in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "user" / name.lower()))


def a_state(folder: Path, *names: str) -> DaemonPaths:
    """Return the paths of a daemon, with these files in its state folder."""
    state = folder / "state"
    state.mkdir()
    for name in names:
        (state / name).write_text("1234")
    return DaemonPaths(state=state, socket=state / "boa.sock")


def kinds(parts: list[InstalledPart], folder: Path) -> list[tuple[str, str]]:
    """Return the kind and the path of each part."""
    return [(part.kind, part.path.relative_to(folder).as_posix()) for part in parts]


def test_folders_come_last_the_deepest_first_and_each_part_once(tmp_path: Path) -> None:
    """The system's daemon has units and folders of its own; the caches are those of a user."""
    there = a_state(tmp_path, "boa.sqlite", "boa.sqlite-wal", "boa.sock", "next_job", "notes.txt")
    units, root = tmp_path / "units", tmp_path / "root"
    for folder in (units, units / f"{UNIT}.d", root / "etc/boa", tmp_path / "user" / "cache" / "boa"):
        folder.mkdir(parents=True)
    (units / UNIT).write_text("unit")
    (tmp_path / "boa.toml").write_text("")
    found = installed_parts(there, unit_folder=units, settings=[tmp_path / "boa.toml"], root=root)
    assert kinds(found, tmp_path) == [
        ("unit", f"units/{UNIT}"),
        ("unit", f"units/{UNIT}.d"),
        ("socket", "state/boa.sock"),
        ("database", "state/boa.sqlite"),
        ("database", "state/boa.sqlite-wal"),
        ("state", "state/next_job"),
        ("settings", "boa.toml"),
        ("folder", "root/etc/boa"),
        ("folder", "state"),
    ]
    own = installed_parts(there, unit_folder=None, settings=[])
    assert ("cache", "user/cache/boa") in kinds(own, tmp_path)
    assert not [part for part in own if part.kind == "unit"]


def test_what_is_taken_away_is_gone_and_a_folder_with_other_things_stays(tmp_path: Path) -> None:
    """Each part is reported with why it is still there."""
    there = a_state(tmp_path, "next_job", "notes.txt")
    parts = installed_parts(there, unit_folder=None, settings=[])
    found = {part.path.name: why for part, why in take_away(parts)}
    assert found["next_job"] == ""
    assert "not empty" in found["state"]
    assert [file.name for file in there.state.iterdir()] == ["notes.txt"]


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    """What it leads to may be anybody's."""
    target, link = tmp_path / "target", tmp_path / "jobs"
    target.mkdir()
    (target / "precious").write_text("x")
    link.symlink_to(target)
    part = InstalledPart(kind="jobs", path=link)
    assert part.size_bytes < 4096
    assert list(take_away([part, InstalledPart(kind="jobs", path=tmp_path / "never")])) == [
        (part, ""),
        (InstalledPart(kind="jobs", path=tmp_path / "never"), ""),
    ]
    assert not link.is_symlink()
    assert (target / "precious").exists()


def test_the_size_of_a_part_is_that_of_all_its_files(tmp_path: Path) -> None:
    """A folder that is removed only if it is empty counts nothing."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_text("12")
    (tmp_path / "a" / "b" / "two").write_text("345")
    sizes = [InstalledPart(kind=kind, path=tmp_path / "a").size_bytes for kind in ("jobs", "folder")]  # type: ignore[arg-type]
    assert sizes == [5, 0]
    assert InstalledPart(kind="state", path=tmp_path / "a" / "one").size_bytes == 2
    assert InstalledPart(kind="state", path=tmp_path / "gone").size_bytes == 0
