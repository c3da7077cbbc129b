"""Which user a job runs as: the account of who submitted it on this machine, else a user of the job's own.

A job's own user is a number that follows from its id, the same on all its nodes, so that files on a storage
that nodes share stay its own. It has no entry in the list of users: `HOME`, `USER` and `LOGNAME` say who it
is. The numbers lie where systemd and useradd give none.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies.model import JobId

FIRST, COUNT = 0x7000_0000, 0x0FFF_FF00
"""The first number of a job's own user, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixAccount:
    """A user: who it is, its groups, its home; `door_gid` is the group that only this job has."""

    uid: int
    gid: int
    door_gid: int
    name: str
    home: Path
    groups: tuple[int, ...] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells a command who it is."""
        return {"HOME": str(self.home), "USER": self.name, "LOGNAME": self.name}

    @property
    def of_unit(self) -> dict[str, Any]:
        """The fields of a `Unit`."""
        return {"uid": self.uid, "gid": self.gid, "door_gid": self.door_gid, "groups": self.groups}


def own_account(job: JobId, home: Path) -> UnixAccount:
    """Return the user that is a job's own, on any machine."""
    digest = hashlib.sha256(job.encode()).digest()
    number = FIRST + int.from_bytes(digest[:8], "big") % COUNT
    return UnixAccount(uid=number, gid=number, door_gid=number, name=f"boa-{digest[:4].hex()}", home=home)


def account_here(user: str, job: JobId, home: Path) -> UnixAccount | None:
    """Return the user that a job of somebody runs as on this machine; None for our own.

    That is all there is where we are not root, and it is who root's own jobs run as.
    """
    if os.geteuid() != 0:
        return None
    own = own_account(job, home)
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        return own
    if entry.pw_uid == 0:
        return None
    return UnixAccount(
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        door_gid=own.door_gid,
        name=entry.pw_name,
        home=Path(entry.pw_dir),
        groups=tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)),
    )
