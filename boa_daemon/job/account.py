"""The user that a job runs as, where its keeper is root: what it gets, and how we touch what is its own.

A job's folders belong to root and let the job through, by a group that only it has; inside, `own`, `home` and
`checkpoint` are the job's. What it may write there may be a link to anywhere, so whatever we read or write in
them is read and written as the job's user.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from boa_daemon.job.unit import Unit

TOKEN_FILE = "gate.token"


def drops(unit: Unit) -> bool:
    """Whether a unit's command runs as another user than its keeper."""
    return unit.uid is not None and os.geteuid() == 0


def popen_as(unit: Unit) -> dict[str, Any]:
    """Return what `Popen` needs to start something of a unit as its user; nothing where that is ours."""
    if not drops(unit):
        return {}
    groups = [unit.door_gid, *unit.groups]
    return {"user": unit.uid, "group": unit.gid, "extra_groups": groups, "umask": 0o022}


def hand_over(unit: Unit) -> None:
    """Give a unit's user what is its own, and a way to it; nobody else has one.

    Raises:
        OSError: when that cannot be done.
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
    """Give a folder to a user, with what another one left in it; links are not followed."""
    os.lchown(folder, uid, gid)
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(Path(path, name), uid, gid)
