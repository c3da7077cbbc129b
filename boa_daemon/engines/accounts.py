"""The user that a job runs as: the submitter's account on this machine, or else a user only for the job.

The number of a job's own user is derived from the job's id, so it is the same on all nodes, and files on
shared storage stay the job's own. Such a user has no entry in the user database; the variables `HOME`, `USER`
and `LOGNAME` describe it. The numbers are from a range that systemd and useradd do not use.
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
"""First user id for jobs' own users, and the number of ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixAccount:
    """A user with its groups and its home; `door_gid` is the group that only this job has."""

    uid: int
    gid: int
    door_gid: int
    name: str
    home: Path
    groups: tuple[int, ...] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables HOME, USER and LOGNAME."""
        return {"HOME": str(self.home), "USER": self.name, "LOGNAME": self.name}

    @property
    def of_unit(self) -> dict[str, Any]:
        """The fields of a `Unit` for this user."""
        return {"uid": self.uid, "gid": self.gid, "door_gid": self.door_gid, "groups": self.groups}


def fs_rights(account: UnixAccount | None) -> tuple[int | None, int, tuple[int, ...]]:
    """Return the arguments of `acting_as` for an account; None is the daemon's own user."""
    return (
        (None, 0, ()) if account is None else (account.uid, account.door_gid, (account.gid, *account.groups))
    )


def own_account(job: JobId, home: Path) -> UnixAccount:
    """Return the user that only this job has; the same on every machine."""
    digest = hashlib.sha256(job.encode()).digest()
    number = FIRST + int.from_bytes(digest[:8], "big") % COUNT
    return UnixAccount(uid=number, gid=number, door_gid=number, name=f"boa-{digest[:4].hex()}", home=home)


def account_here(user: str, job: JobId, home: Path) -> UnixAccount | None:
    """Return the Unix user for a job of `user` on this machine; None for the daemon's own user.

    The result is None if the daemon is not root, and for jobs of root. If `user` has no account on this
    machine, the job gets a Unix user that only it has.
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
