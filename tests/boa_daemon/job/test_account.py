"""Folders of a job: what root does with them, it does to them and not to what a link in them names."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from boa_daemon.job.account import hand_over, is_ours_alone, mount_point, working_folder
from boa_daemon.job.unit import Unit, acting_as

UID = 0x7100_0000
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can pass, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="boa-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def unit(place: Path) -> Unit:
    """A unit of a user, whose folders are made and handed over."""
    job = place / "jobs" / "a-1"
    found = Unit(
        name="u", job="a-1", generation=1, rank=0, run="true",
        folder=job / "g1" / "n0",
        workdir=str(place),
        progress_file=str(job / "g1" / "own" / "progress.json"),
        checkpoint_dir=str(job / "checkpoint"),
        uid=UID, gid=UID, door_gid=UID,
        bring="true",
    )  # fmt: skip
    found.write()
    (job / "checkpoint").mkdir()
    (job / "work").mkdir()
    (job / "work" / "train.py").write_text("code")
    hand_over(found)
    return found


def test_a_user_gets_its_folders_and_no_more(unit: Unit) -> None:
    """The outer folders stay root's, closed to all but the job's group; code that root brought is given."""
    job = unit.folder.parent.parent
    mine = [job / name for name in ("checkpoint", "home", "work", "work/train.py", "g1/own", "g1/own/n0")]
    assert {path: path.stat().st_uid for path in mine} == dict.fromkeys(mine, UID)
    for path in (job, job / "g1", job / "g1" / "n0"):
        assert (path.stat().st_uid, path.stat().st_gid, path.stat().st_mode & 0o777) == (0, UID, 0o710)


@pytest.mark.parametrize("name", ["g1/own/n0", "checkpoint", "home", "work", "g1/own", "g1/n0"])
def test_a_link_in_the_place_of_a_folder_is_not_followed(unit: Unit, place: Path, name: str) -> None:
    """The hand-over before a waiting unit's turn meets a job that has run meanwhile."""
    target = place / "precious"
    (target / "below").mkdir(parents=True, mode=0o755)
    (target / "below" / "file").write_text("x")
    folder = unit.folder.parent.parent / name
    folder.rename(folder.with_name("aside"))
    folder.symlink_to(target)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        hand_over(unit)

    for path in (target, target / "below", target / "below" / "file"):
        assert (path.stat().st_uid, path.stat().st_gid) == (0, 0)
    assert target.stat().st_mode & 0o777 == 0o755


def test_links_and_second_names_inside_are_not_given_away(unit: Unit, place: Path) -> None:
    """When a job's user changes, targets of links keep their owners, and root's files stay root's."""
    (place / "precious").write_text("x")
    checkpoint = Path(unit.checkpoint_dir)
    (checkpoint / "mine").write_text("x")
    os.chown(checkpoint / "mine", UID, UID)
    (checkpoint / "link").symlink_to(place / "precious")
    os.link(place / "precious", checkpoint / "second")
    hand_over(replace(unit, uid=UID + 1, gid=UID + 1))

    assert (checkpoint / "mine").stat().st_uid == UID + 1
    assert (place / "precious").stat().st_uid == 0


def test_a_working_folder_is_entered_with_the_users_rights(unit: Unit, place: Path) -> None:
    """A folder behind a closed one is refused, though its own mode lets everybody read it."""
    inner = place / "closed" / "open"
    inner.mkdir(parents=True)
    inner.chmod(0o755)
    inner.parent.chmod(0o700)
    (place / "link").symlink_to(inner)
    (place / "no-way-in").mkdir(mode=0o744)
    for path in (inner, place / "link", place / "no-way-in"):
        with pytest.raises(PermissionError):
            working_folder(replace(unit, workdir=str(path)))
    os.close(working_folder(replace(unit, workdir=str(place))))


def test_the_groups_of_a_user_count_and_those_of_root_do_not(place: Path) -> None:
    """A folder for a group of root stays closed, and one for the user's group is open."""
    for name, gid in (("roots", 0), ("theirs", UID + 7)):
        (place / name).mkdir(mode=0o750)
        os.chown(place / name, 0, gid)
    before = os.getgroups()
    with acting_as(UID, UID, (UID + 7,)):
        os.listdir(place / "theirs")
        with pytest.raises(PermissionError):
            os.listdir(place / "roots")
    assert os.getgroups() == before
    os.listdir(place / "roots")


def test_root_mounts_only_what_nobody_else_can_replace(unit: Unit, place: Path) -> None:
    """A folder in a user's own one could become a link: then the upper folder is mounted."""
    mine = place / "mine"
    (mine / "project").mkdir(parents=True)
    (place / "shared").mkdir()
    for path in (mine, mine / "project", place / "shared"):
        os.chown(path, UID, UID)

    def mounted(path: Path) -> str:
        here = replace(unit, workdir=str(path))
        handle = working_folder(here)
        try:
            return mount_point(here, handle)
        finally:
            os.close(handle)

    assert mounted(mine / "project") == str(mine)
    assert mounted(place / "shared") == str(place / "shared"), "/tmp keeps what belongs to root"
    assert mounted(Path("/usr/lib")) == "/usr/lib"
    place.chmod(0o777)
    assert mounted(place / "shared") == str(place)


def test_a_shared_store_holds_no_folder_of_root_that_a_job_made(place: Path) -> None:
    """A cache is used only if it is root's own folder, in which nobody else may write."""
    (place / "real").mkdir(mode=0o755)
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    (place / "link").symlink_to(place / "real")
    (place / "theirs").mkdir()
    os.chown(place / "theirs", UID, UID)
    assert [is_ours_alone(place / n) for n in ("real", "open", "link", "theirs", "none")] == [True] + [
        False
    ] * 4
