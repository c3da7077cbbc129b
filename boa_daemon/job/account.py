"""The user that a job runs as when its keeper is root, and the ownership of the job's folders.

The outer folders belong to root; a group that only this job has lets the job pass through them. Inside, the
folders `own`, `home` and `checkpoint` belong to the job. The job may put a link to anywhere into them, so BOA
reads and writes there with the rights of the job's user.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from boa_daemon.job.unit import Unit

TOKEN_FILE = "gate.token"


def drops(unit: Unit) -> bool:
    """Return whether a unit's command runs as another user than its keeper."""
    return unit.uid is not None and os.geteuid() == 0


def popen_as(unit: Unit) -> dict[str, Any]:
    """Return the `Popen` options that start a process as the unit's user; empty if that is our own user."""
    if not drops(unit):
        return {}
    groups = [unit.door_gid, *unit.groups]
    return {"user": unit.uid, "group": unit.gid, "extra_groups": groups, "umask": 0o022}


def become(unit: Unit) -> None:
    """Make this process one of the unit's user, for good; does nothing where `drops` says so.

    Raises:
        OSError: when the kernel refuses it.
    """
    if drops(unit):
        assert unit.uid is not None
        os.setgroups([unit.door_gid, *unit.groups])
        os.setgid(unit.gid)
        os.setuid(unit.uid)
        os.umask(0o022)


def working_folder(unit: Unit) -> int:
    """Return a descriptor of the folder in which a unit's command starts, opened with its user's rights.

    Entering or mounting the folder by its path would be done with the keeper's rights: a user could name a
    folder behind one that only root may pass, or put a link there in between.

    Raises:
        OSError: when the user cannot reach it.
    """
    with unit.as_user():
        folder = os.open(unit.workdir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.close(os.open(".", os.O_PATH, dir_fd=folder))  # Fails if the user may not enter it.
        except OSError:
            os.close(folder)
            raise
        return folder


def mount_point(unit: Unit, workdir: int) -> str:
    """Return the folder that root mounts into a unit's container, so that it sees the working folder.

    This is the working folder itself, if only root can put something else in its place or in the place of a
    folder above it. Otherwise it is the first folder above in which somebody else can: a link in there is
    then followed inside the container, with the user's rights, and not by root when it mounts. `workdir` is
    a descriptor of `working_folder`.
    """
    folder = Path(os.readlink(f"/proc/self/fd/{workdir}"))
    if not drops(unit):
        return unit.workdir
    way = [*reversed(folder.parents), folder]
    for above, below in ((way[at], way[at + 1]) for at in range(len(way) - 1)):
        found = above.lstat()
        # In a folder such as /tmp nobody can replace what belongs to root.
        is_kept = found.st_mode & stat.S_ISVTX and found.st_uid == below.lstat().st_uid == 0
        if stat.S_ISLNK(found.st_mode) or found.st_uid != 0 or (found.st_mode & 0o022 and not is_kept):
            return str(above)
    return str(folder)


def hand_over(unit: Unit) -> None:
    """Give a unit's folders to the unit's user, and let only that user reach them.

    All is done by descriptor and follows no link: the user may have put one in a folder's place. What is
    below a folder of the user is made with the user's rights.

    Raises:
        OSError: when an owner or a mode cannot be changed, or a folder is a link or a file.
    """
    if unit.uid is None or not drops(unit):
        return
    os.setgroups([])
    checkpoints, generation = Path(unit.checkpoint_dir), unit.folder.parent
    for folder in (checkpoints.parent, generation, unit.folder):
        with _opened(folder) as handle:
            os.fchown(handle, 0, unit.door_gid)
            os.fchmod(handle, 0o710)
    work = (checkpoints.parent / "work",) if unit.bring else ()
    for folder in (checkpoints, checkpoints.parent / "home", unit.own.parent, *work):
        with _opened(folder.parent) as parent:
            try:
                _give(folder.name, parent, unit.uid, unit.gid)
            except RecursionError:
                raise OSError(errno.ELOOP, "it has too many folders within each other", str(folder)) from None
    with unit.as_user(), _opened(unit.own.parent) as parent:
        _made(unit.own.name, parent, 0o700)
    try:
        token = os.open(generation / TOKEN_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    os.fchown(token, unit.uid, unit.gid)
    os.close(token)


def give_units(units: Sequence[Unit], *, key_file: Path) -> None:
    """Give the folders of a generation's units to their user, as whom their keepers run.

    Unlike after `hand_over`, the units' own folders are the user's, too. The folders of the job and of the
    generation stay ours, and its group may pass; so nothing is written through a link of the user's.

    Raises:
        OSError: when an owner or a mode cannot be changed.
    """
    unit = units[0]
    if unit.uid is None or not drops(unit):
        return
    job, generation = Path(unit.checkpoint_dir).parent, unit.folder.parent
    # The tasks on the nodes list the units of their generation.
    for folder, mode in ((job, 0o710), (generation, 0o750)):
        with _opened(folder) as handle:
            os.fchown(handle, 0, unit.gid)
            os.fchmod(handle, mode)
    with _opened(job) as parent:
        names = ["checkpoint", "home", "artifacts", *(["work"] if (job / "work").is_dir() else [])]
        for name in names:
            _give(name, parent, unit.uid, unit.gid)
    with _opened(generation) as parent:
        for name in (unit.own.parent.name, *(each.folder.name for each in units)):
            _give(name, parent, unit.uid, unit.gid)
    for file in (key_file, generation / TOKEN_FILE, generation / "gate.json"):
        with suppress(FileNotFoundError):
            os.chown(file, unit.uid, unit.gid, follow_symlinks=False)


def is_ours_alone(folder: Path) -> bool:
    """Return whether a folder is a real one, of our user, in which nobody else may write."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


@contextmanager
def _opened(folder: Path | str, parent: int | None = None) -> Iterator[int]:
    """Open a folder that is no link itself."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        yield handle
    finally:
        os.close(handle)


def _made(name: str, parent: int, mode: int) -> None:
    """Make a folder in another one unless it is there; raise `OSError` if something else is there."""
    with suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=parent)
    with _opened(name, parent) as handle:
        os.fchmod(handle, mode)


def _give(name: str, parent: int, uid: int, gid: int) -> None:
    """Give a folder to a user, with all in it that is its present owner's; make it if it is missing."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    with _opened(name, parent) as top:
        owner = os.fstat(top).st_uid
        if owner != uid:
            for _, folders, files, here in os.fwalk(".", dir_fd=top):
                for each in (*folders, *files):
                    found = os.stat(each, dir_fd=here, follow_symlinks=False)
                    # A second name of a file elsewhere is not the owner's to give.
                    is_elsewhere = stat.S_ISREG(found.st_mode) and found.st_nlink > 1
                    if found.st_uid == owner and not (owner == 0 and is_elsewhere):
                        os.chown(each, uid, gid, dir_fd=here, follow_symlinks=False)
            os.fchown(top, uid, gid)
        os.fchmod(top, 0o700)
