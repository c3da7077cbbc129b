"""The user that a job runs as when its keeper is root, and the ownership of the job's folders.

The outer folders belong to root; a group that only this job has lets the job pass through them. Inside, the
folders `own`, `home` and `checkpoint` belong to the job. The job may put a link to anywhere into them, so BOA
reads and writes there with the rights of the job's user.
"""

from __future__ import annotations

import os
from contextlib import suppress
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


def hand_over(unit: Unit) -> None:
    """Give a unit's folders to the unit's user, and let only that user reach them.

    Raises:
        OSError: when an owner or a mode cannot be changed.
    """
    if unit.uid is None or not drops(unit):
        return
    os.setgroups([])
    checkpoints, generation = Path(unit.checkpoint_dir), unit.folder.parent
    for folder in (checkpoints.parent, generation, unit.folder):
        os.chown(folder, 0, unit.door_gid)
        folder.chmod(0o710)
    work = (checkpoints.parent / "work",) if unit.bring else ()
    for folder in (checkpoints, checkpoints.parent / "home", unit.own.parent, unit.own, *work):
        folder.mkdir(parents=True, exist_ok=True)
        if folder.stat().st_uid != unit.uid:
            _give(folder, unit.uid, unit.gid)
        folder.chmod(0o700)
    with suppress(FileNotFoundError):
        os.chown(generation / TOKEN_FILE, unit.uid, unit.gid)


def _give(folder: Path, uid: int, gid: int) -> None:
    """Give a folder and everything in it to a user, without following links."""
    os.lchown(folder, uid, gid)
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(Path(path, name), uid, gid)
