"""A unit: one generation of one job on one node, as files that its keeper and its engine share."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from boa_daemon.job.checkpoint import Checkpoint, newest_checkpoint
from boa_daemon.job.failures import read_failure
from boa_daemon.job.logs import last_lines, quiet_seconds
from boa_daemon.job.processes import is_alive
from boa_daemon.job.regular_files import MOST_BYTES, read_regular
from boa_daemon.job.seal import SEAL, TOLD, is_sealed, key_of, sealed

KEPT = "kept.json"
"""The note of a unit of its checkpoints that stand where they are brought."""
SCRATCH = "scratch"
"""The folder of a unit for what its command needs while it runs; it goes with the unit."""


@dataclass(frozen=True)
class Unit:
    """What a keeper runs: the command, where, with what, and the errands around it.

    `before`, `beat` and `after` are shell scripts: before the command starts, every `beat_seconds`, and
    after its end. They find the unit's status as JSON in `BOA_STATUS`. `note` is the first line of the log.
    `bring` comes before all, as the keeper's user: it has the code in its folder. `keep` brings checkpoints
    to where they outlive the node; it takes the time it takes, beside the others. Where `bring` or `before`
    fails the command is not started. The newest `keep_checkpoints` are kept. `image` is what the command
    runs in, `mounts` the folder around its `workdir` that the container sees; it may use so many `cpus` and
    `memory_gb` (10^9 bytes), 0 being all. Files below `workdir` that match `artifacts` are copied to
    `artifacts_dir` at the end. `look` writes what is wrong with the node into `health.json`: with each fourth
    beat, and where the command fails.
    With `uid` a keeper that is root runs the command, and what moves its checkpoints, as that user, in the
    group `gid` and in `groups`; the folders above let the group `door_gid` through. `secrets` are references.
    `data` are sources by name, linked in `data` of its folder from `data_cache`. A unit that `waits` was made
    ready before its turn, which comes with the file `go`: for "bring" its command is started then, for
    "start" it is started before, where `wait_bytes` of memory can be spared, and waits in `boa_daemon.job`.
    """

    name: str
    job: str
    generation: int
    rank: int
    run: str
    folder: Path
    workdir: str
    progress_file: str
    checkpoint_dir: str
    environment: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: float = 60.0
    log_bytes: int = 64 * 2**20
    result: str = ""
    bring: str = ""
    before: str = ""
    beat: str = ""
    after: str = ""
    beat_seconds: float = 15.0
    note: str = ""
    keep: str = ""
    keep_checkpoints: int = 2
    image: str = ""
    mounts: str = ""
    cpus: float = 0.0
    memory_gb: float = 0.0
    artifacts: Sequence[str] = ()
    artifacts_dir: str = ""
    look: str = ""
    uid: int | None = None
    gid: int = 0
    door_gid: int = 0
    groups: Sequence[int] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    secrets_file: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    data_cache: str = ""
    waits: str = ""
    wait_bytes: float = 0.0

    @property
    def own(self) -> Path:
        """The folder in which the unit's command writes, beside the job's checkpoints."""
        return Path(self.progress_file).parent / self.folder.name if self.progress_file else self.folder

    def as_user(self) -> AbstractContextManager[None]:
        """Touch files as the unit's user, in this thread."""
        return acting_as(self.uid, self.door_gid)

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
            OSError: when it is not there.
            ValueError: when it is not a unit.
        """
        document = json.loads((folder / "unit.json").read_text())
        return cls(**{**document, "folder": folder})


@contextmanager
def acting_as(uid: int | None, gid: int) -> Iterator[None]:
    """Touch files with the rights of a user, in this thread alone; nothing changes where we are not root.

    Raises:
        PermissionError: when the kernel does not let us.
    """
    if uid is None or os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        libc.setfsgid(ctypes.c_uint(gid))
        libc.setfsuid(ctypes.c_uint(uid))
        if ctypes.c_uint(libc.setfsuid(ctypes.c_uint(0xFFFFFFFF))).value != uid:
            raise PermissionError(f"cannot touch files as user {uid}")
        yield
    finally:
        libc.setfsuid(ctypes.c_uint(0))
        libc.setfsgid(ctypes.c_uint(0))


def lost_end(*, stop_asked: bool = False, **facts: Any) -> dict[str, Any]:
    """Return how a unit ended whose keeper is lost, as far as anybody knows; `facts` are what is known."""
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
    """Write a document whole or not at all.

    Raises:
        OSError: when it cannot be written.
    """
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        aside.write_text(json.dumps(document))
        aside.replace(file)
    except OSError:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def sealed_document(folder: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the keeper of a unit's folder writes there, with its place and its generation's seal."""
    key = key_of(folder)
    return sealed({**document, "unit": folder.name}, key) if key else dict(document)


def read_own(folder: Path, name: str) -> dict[str, Any] | None:
    """Return what the keeper of a unit's folder wrote there; None where nobody did, or somebody else."""
    document, key = read_json(folder / name), key_of(folder)
    if document is None or not key:
        return document
    if document.get("unit") != folder.name or not is_sealed(document, key):
        return None
    return {field: value for field, value in document.items() if field not in (SEAL, TOLD, "unit")}


ROOM_BYTES = 4096
"""More than any document needs that must be written though the disk is full by then."""


def keep_room(file: Path) -> None:
    """Have room set aside for a document that is written later, where the disk still has any."""
    with suppress(OSError), _room(file).open("wb") as room:
        os.posix_fallocate(room.fileno(), 0, ROOM_BYTES)


def write_in_room(file: Path, document: Mapping[str, Any]) -> None:
    """Write a document whole or not at all, into the room that was kept for it.

    Raises:
        OSError: when it cannot be written, there or elsewhere.
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
    """Return where the room for a document is."""
    return file.with_name(f".{file.name}.room")


MOST_PROGRESS_BYTES = 65_536
"""A job's own file of progress holds a few numbers; one that is larger is not read."""


def read_json(file: str | Path, *, most_bytes: int = MOST_BYTES) -> dict[str, Any] | None:
    """Return a document; None where it is missing, not whole, no regular file, or larger than it may be."""
    try:
        document = json.loads(read_regular(file, most_bytes=most_bytes))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def told_status(folder: Path, *, verify: bool) -> dict[str, Any]:
    """Return what a unit's files say, with the seal of its generation: for who is not on this machine."""
    return sealed(status_of(folder, verify=verify), key_of(folder))


def status_of(folder: Path, *, verify: bool) -> dict[str, Any]:
    """Return what a unit's files say; with `verify`, or at its end, its checkpoint is looked at as well.

    `is_kept` says whether its keeper lives: it is looked at before `exit`, so a unit without keeper and
    without `exit` has really lost its keeper.
    """
    unit = Unit.read(folder)
    kept = read_own(folder, "keeper.json")
    lives = kept is not None and is_alive(int(kept["pid"]), int(kept["ticks"]))
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
        # Where a unit brings its checkpoints away, what counts is what stands there; its copy may be a part.
        if not unit.keep and (verify or ended is not None):
            found, status["wrong_manifest"] = newest_checkpoint(Path(unit.checkpoint_dir))
            status["manifest"] = None if found is None else _manifest(found, Path(unit.checkpoint_dir))
        if ended is not None or not lives:
            status["failure"] = read_failure(unit.own)
    if ended is not None or not lives:
        # What was said of the command before it began is not what it said last.
        begun_with = f"boa: {unit.note}"
        status["last_lines"] = [line for line in last_lines(folder) if line != begun_with[:500]]
    return status


def node_faults(folder: Path) -> list[str]:
    """Return what the last look found wrong with the node that the unit is on."""
    found = (read_json(folder / "health.json", most_bytes=MOST_PROGRESS_BYTES) or {}).get("faults", [])
    return [str(fault)[:200] for fault in found[:8]] if isinstance(found, list) else []


def kept_checkpoints(unit: Unit) -> list[dict[str, Any]]:
    """Return the unit's checkpoints that stand where they are brought, the newest first, as it noted them.

    The note is the job's own file: what is no such row is left out.
    """
    found = (read_json(unit.own / KEPT) or {}).get("kept")
    rows = found if isinstance(found, list) else []
    return [
        row
        for row in rows
        if isinstance(row, dict) and row.keys() >= {"generation", "step", "sha256", "path"}
    ]


def _manifest(found: Checkpoint, folder: Path) -> dict[str, Any]:
    """Return a checkpoint as its manifest says it."""
    return {
        "generation": found.generation,
        "step": found.step,
        "sha256": found.sha256,
        "path": os.path.relpath(found.path, folder.resolve()),
    }
