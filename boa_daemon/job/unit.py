"""A unit (one generation of one job on one node), and the files that its keeper and its engine share."""

from __future__ import annotations

import ctypes
import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from boa_daemon.job.checkpoint import Checkpoint, newest_checkpoint
from boa_daemon.job.failures import read_failure
from boa_daemon.job.logs import last_lines, quiet_seconds
from boa_daemon.job.processes import boot_id, is_alive
from boa_daemon.job.regular_files import MOST_BYTES, UNREADABLE, read_regular
from boa_daemon.job.run_options import RunOptions
from boa_daemon.job.seal import SEAL, TOLD, is_sealed, key_of, sealed
from boa_daemon.job.whole_files import write_whole

KEPT = "kept.json"
"""File in which a unit notes its checkpoints that were uploaded completely."""
SCRATCH = "scratch"
"""A unit's folder for temporary files of its command; it is removed at the end."""


@dataclass(frozen=True)
class _UnitBasis:
    """The fields that every unit has; a base, since fields without a default come first."""

    name: str
    job: str
    generation: int
    rank: int
    run: str
    folder: Path
    workdir: str
    progress_file: str
    checkpoint_dir: str


@dataclass(frozen=True)
class Unit(RunOptions, _UnitBasis):
    """What a keeper runs: the command `run`, its environment, its limits, and errands (shell scripts).

    Errands, in order: `bring` fetches code and data, as the keeper's user. `before` fetches the checkpoint.
    If one of these fails, the command is not started. `beat` sends reports every `beat_seconds` while the
    command runs. `look` writes faults of the node into `health.json`, at each fourth beat and after a
    failure. `keep` uploads checkpoints, without a time limit and beside the other errands. `after` sends the
    last report. `beat`, `before`, `keep` and `after` get the unit's status as JSON in `BOA_STATUS`.

    `note` is the first line of the log. `mounts` is the folder around `workdir` that a container sees. Files
    below `workdir` that match `artifacts` are copied to `artifacts_dir` at the end. With `uid`, a keeper that
    is root runs the command, and the errands that move checkpoints, as that user, in the groups `gid` and
    `groups`; the outer folders let the group `door_gid` pass. The sources of `data` are linked in the unit's
    folder `data` from `data_cache`.

    A unit that `waits` is prepared before its turn, which comes with the file `go`. With "bring", its command
    starts at its turn. With "start", the command starts earlier and waits in `boa_daemon.job`, if the machine
    has memory for `wait_bytes` to spare. `region` is the AWS region of bucket, queue and secrets; empty: that
    of the machine.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: float = 60.0
    log_bytes: int = 64 * 2**20
    bring: str = ""
    before: str = ""
    beat: str = ""
    after: str = ""
    beat_seconds: float = 15.0
    note: str = ""
    keep: str = ""
    mounts: str = ""
    artifacts_dir: str = ""
    look: str = ""
    uid: int | None = None
    gid: int = 0
    door_gid: int = 0
    groups: Sequence[int] = ()
    secrets_file: str = ""
    data_cache: str = ""
    waits: str = ""
    wait_bytes: float = 0.0
    region: str = ""

    @property
    def own(self) -> Path:
        """The folder in which the unit's command writes, apart from the job's checkpoints."""
        return Path(self.progress_file).parent / self.folder.name if self.progress_file else self.folder

    def as_user(self) -> AbstractContextManager[None]:
        """Access files as the unit's user, in this thread."""
        return acting_as(self.uid, self.door_gid, (self.gid, *self.groups))

    def write(self) -> None:
        """Write `unit.json`.

        Raises:
            OSError: when it cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / "unit.json", {**asdict(self), "folder": str(self.folder)})

    @classmethod
    def read(cls, folder: Path) -> Unit:
        """Return the unit of a folder.

        Raises:
            OSError: when `unit.json` cannot be read.
            ValueError: when `unit.json` is not valid JSON.
        """
        document = json.loads((folder / "unit.json").read_text())
        return cls(**{**document, "folder": folder})


_SETGROUPS = {"x86_64": 116, "aarch64": 159}
"""Number of the system call `setgroups`, which changes one thread only; the C library changes all threads."""


@contextmanager
def acting_as(uid: int | None, gid: int, groups: Sequence[int] = ()) -> Iterator[None]:
    """Access files with the rights of a user, in this thread only; does nothing if we are not root.

    The user's groups are `gid` and `groups`: our own groups, such as those of root, give no access meanwhile.

    Raises:
        PermissionError: when the kernel refuses the change of user.
    """
    if uid is None or os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.getgroups()
    try:
        _set_groups_here(libc, [gid, *groups])
        libc.setfsgid(ctypes.c_uint(gid))
        libc.setfsuid(ctypes.c_uint(uid))
        if ctypes.c_uint(libc.setfsuid(ctypes.c_uint(0xFFFFFFFF))).value != uid:
            raise PermissionError(f"cannot touch files as user {uid}")
        yield
    finally:
        libc.setfsuid(ctypes.c_uint(0))
        libc.setfsgid(ctypes.c_uint(0))
        _set_groups_here(libc, before)


def _set_groups_here(libc: ctypes.CDLL, groups: Sequence[int]) -> None:
    """Set the groups of this thread; on a processor that we do not know, leave them."""
    number = _SETGROUPS.get(platform.machine())
    if number is not None:
        libc.syscall(number, ctypes.c_size_t(len(groups)), (ctypes.c_uint * len(groups))(*groups))


def keepers_of(kept: Mapping[str, Any] | None) -> list[tuple[int, int]]:
    """Return the processes that keep a unit, by its `keeper.json`: id and start time of guard and keeper.

    None are valid after a boot of the machine. A unit of an earlier version has no guard.
    """
    if kept is None or kept.get("boot", "") not in ("", boot_id()):
        return []
    pairs = [(kept.get("guard"), kept.get("guard_ticks")), (kept.get("pid"), kept.get("ticks"))]
    return [
        (pid, ticks) for pid, ticks in pairs if type(pid) is int and type(ticks) is int and 1 < pid < 2**31
    ]


def is_kept(kept: Mapping[str, Any] | None) -> bool:
    """Return whether a unit's keeper lives, or its guard, which starts another one."""
    return any(is_alive(*one) for one in keepers_of(kept))


def lost_end(*, stop_asked: bool = False, **facts: Any) -> dict[str, Any]:
    """Return the end of a unit whose keeper is lost; `facts` are the fields that are known."""
    return {
        "code": None,
        "stop_asked": stop_asked,
        "killed": False,
        "agent_lost": True,
        "out_of_memory": False,
        "lingering": 0,
        "is_done": False,
        "lacks_result": False,
        **facts,
    }


def write_json(file: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document atomically.

    Raises:
        OSError: when it cannot be written.
    """
    write_whole(file, json.dumps(document), durable=False)


def sealed_document(folder: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document of a unit's keeper with the unit's name and the seal of its generation."""
    key = key_of(folder)
    return sealed({**document, "unit": folder.name}, key) if key else dict(document)


def read_own(folder: Path, name: str) -> dict[str, Any] | None:
    """Return a document that a unit's keeper wrote; None if there is none, or if somebody else wrote it.

    Raises:
        OSError: when it cannot be read now, which is no sign that it is not there.
    """
    document, key = read_json(folder / name, must_be_read=True), key_of(folder)
    if document is None or not key:
        return document
    if document.get("unit") != folder.name or not is_sealed(document, key):
        return None
    return {field: value for field, value in document.items() if field not in (SEAL, TOLD, "unit")}


ROOM_BYTES = 4096
"""Disk space reserved for a document that must be written even on a full disk; more than any needs."""


def keep_room(file: Path) -> None:
    """Reserve disk space for a document that is written later, if the disk still has space.

    Space that an earlier keeper has reserved stays.
    """
    with suppress(OSError), _room(file).open("ab") as room:
        os.posix_fallocate(room.fileno(), 0, ROOM_BYTES)


def write_in_room(file: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document atomically, into the space that was reserved for it if possible.

    Raises:
        OSError: when it can be written neither into the reserved space nor elsewhere.
    """
    text = json.dumps(document).encode()
    try:
        with _room(file).open("r+b") as room:
            room.write(text)
            room.truncate()
        _room(file).replace(file)
    except OSError:
        write_json(file, document)


def _room(file: Path) -> Path:
    return file.with_name(f".{file.name}.room")


MOST_PROGRESS_BYTES = 65_536
"""Size limit of a job's progress file, which holds a few numbers; a larger file is not read."""


def read_json(
    file: str | Path, *, most_bytes: int = MOST_BYTES, must_be_read: bool = False
) -> dict[str, Any] | None:
    """Return a JSON object; None if it is missing, incomplete, not a regular file, or too large.

    Raises:
        OSError: when it `must_be_read` and cannot be now, for want of descriptors or because of its disk.
    """
    try:
        document = json.loads(read_regular(file, most_bytes=most_bytes))
    except (ValueError, RecursionError):
        return None
    except OSError as error:
        if must_be_read and error.errno in UNREADABLE:
            raise
        return None
    return document if isinstance(document, dict) else None


def told_status(folder: Path, *, verify: bool) -> dict[str, Any]:
    """Return the status of a unit with the seal of its generation, for readers on other machines."""
    return sealed(status_of(folder, verify=verify), key_of(folder))


def status_of(folder: Path, *, verify: bool) -> dict[str, Any]:
    """Return the status of a unit from its files; with `verify`, verify its checkpoint too.

    After its end, its checkpoint is the one that its keeper has verified.

    `is_kept` is whether its keeper lives. It is checked before `exit` is read, so a unit without keeper and
    without `exit` has really lost its keeper.
    """
    unit = Unit.read(folder)
    kept = read_own(folder, "keeper.json")
    lives = is_kept(kept)
    ended = read_own(folder, "exit.json") or read_own(folder, "ending.json")
    status: dict[str, Any] = {
        "job": unit.job,
        "generation": unit.generation,
        "rank": unit.rank,
        "is_kept": lives,
        "was_kept": kept is not None,
        "progress": None,
        "exit": ended,
        "manifest": None,
        "wrong_manifest": "",
        "last_lines": [],
        "quiet_seconds": quiet_seconds(folder),
        "failure": None,
        "node_faults": node_faults(folder),
        "kept": [],
    }
    with unit.as_user():
        status["progress"] = read_json(unit.progress_file, most_bytes=MOST_PROGRESS_BYTES)
        status["kept"] = kept_checkpoints(unit)[:4]
        # If the unit uploads its checkpoints, only uploaded ones count; the local copy may be a part.
        if ended is not None and "manifest" in ended:
            status |= {name: ended.pop(name) for name in ("manifest", "wrong_manifest")}
        elif not unit.keep and (verify or ended is not None):
            status |= verified_checkpoint(unit)
        if ended is not None or not lives:
            status["failure"] = read_failure(unit.own)
    if ended is not None or not lives:
        # The note at the start of the log is not output of the command.
        begun_with = f"boa: {unit.note}"
        status["last_lines"] = [line for line in last_lines(folder) if line != begun_with[:500]]
    return status


def verified_checkpoint(unit: Unit) -> dict[str, Any]:
    """Return the manifest of a unit's newest complete checkpoint, and what is wrong with a newer one.

    Its digest is computed, which takes about a second per gigabyte.
    """
    folder = Path(unit.checkpoint_dir)
    found, wrong = newest_checkpoint(folder)
    return {"manifest": None if found is None else _manifest(found, folder), "wrong_manifest": wrong[:500]}


def node_faults(folder: Path) -> list[str]:
    """Return the faults of the unit's node that the last check found."""
    found = (read_json(folder / "health.json", most_bytes=MOST_PROGRESS_BYTES) or {}).get("faults", [])
    return [str(fault)[:200] for fault in found[:8]] if isinstance(found, list) else []


MOST_ROW = 4096
"""Size limit of a note of one checkpoint; the notes of the newest travel in a variable of an errand."""


def kept_checkpoints(unit: Unit) -> list[dict[str, Any]]:
    """Return the unit's uploaded checkpoints from its note, the newest first.

    The job can write to that note, so malformed and oversized rows are left out.
    """
    found = (read_json(unit.own / KEPT) or {}).get("kept")
    rows = found if isinstance(found, list) else []
    return [
        row
        for row in rows
        if isinstance(row, dict)
        and row.keys() >= {"generation", "step", "sha256", "path"}
        and len(str(row)) <= MOST_ROW
    ]


def _manifest(found: Checkpoint, folder: Path) -> dict[str, Any]:
    """Return a checkpoint in the form of its manifest."""
    return {
        "generation": found.generation,
        "step": found.step,
        "sha256": found.sha256,
        "path": os.path.relpath(found.path, folder.resolve()),
    }
