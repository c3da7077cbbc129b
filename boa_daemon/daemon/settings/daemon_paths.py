"""Paths of the daemon's state and socket, in a small module because clients need nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import platformdirs

from boa_daemon.errors import InputError
from boa_daemon.inputs.os_troubles import trouble_of_os

if TYPE_CHECKING:
    from boa_daemon.daemon.settings.config import Settings

SYSTEM_SOCKET = Path("/run/boa/boa.sock")
LONGEST_SOCKET = 107
"""Longest path of a unix socket that the kernel accepts, in bytes."""


StateKind: TypeAlias = Literal["socket", "database", "backups", "jobs", "state"]


class StateFile(StrEnum):
    """The names that BOA uses in a state folder, each with its kind.

    This is the one list: whoever makes a file there takes its name from here, and `boa uninstall` removes
    these names, with what is written beside them, and no others.
    """

    kind: StateKind

    def __new__(cls, name: str, kind: StateKind) -> StateFile:
        """Return the member whose value is the name."""
        member = str.__new__(cls, name)
        member._value_, member.kind = name, kind
        return member

    socket = "boa.sock", "socket"
    gate_socket = "gate.sock", "socket"
    gate_secret = "gate.secret", "state"
    database = "boa.sqlite", "database"
    recovering = "boa.recovering", "database"
    unreadable = "boa.unreadable", "database"
    lost = "boa.lost", "database"
    simulated_cloud = "cloud.sqlite", "database"
    backups = "backups", "backups"
    jobs = "jobs", "jobs"
    last_state = "last_state", "state"
    local_cloud = "local.json", "state"
    slurm_cloud = "slurm.json", "state"
    ssm_jobs = "ssm.json", "state"
    lock = "daemon.lock", "state"
    next_job = "next_job", "state"
    log_of_run = "run.log", "state"
    applied_settings = "applied_settings.json", "state"
    cost_files = "cost_files", "state"

    def found_in(self, state: Path) -> Iterator[Path]:
        """Yield the file or folder of this name if it is there, and what is written beside it.

        Beside a database are its log and its lock (``-wal``, ``.leader``) and, of one that was set aside, the
        time. Beside a small file is its next version, which a killed process leaves behind: ``NAME.new``, or
        ``.NAME.`` and a number (`write_whole`, `write_json`).
        """
        if self.kind == "database":
            yield from sorted(state.glob(f"{self}*"))
            return
        if (state / self).exists() or (state / self).is_symlink():
            yield state / self
        if self.kind == "state":
            yield from sorted((*state.glob(f"{self}.new"), *state.glob(f".{self}.*")))


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonPaths:
    """The daemon's state folder and socket."""

    state: Path
    socket: Path

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.state / StateFile.database

    @property
    def backups(self) -> Path:
        """The folder of database backups."""
        return self.state / StateFile.backups

    @property
    def next_job(self) -> Path:
        """The file with the number of the next job, kept apart because it must outlive a lost database."""
        return self.state / StateFile.next_job

    @property
    def last_state(self) -> Path:
        """The file with the state of the last tick, for a start without a database."""
        return self.state / StateFile.last_state


def daemon_paths(settings: Settings, environment: Mapping[str, str] | None = None) -> DaemonPaths:
    """Return the paths from the settings, else from systemd, else in the user's state folder.

    Raises:
        InputError: when the socket's path is too long for the kernel.
    """
    return paths_from(settings.daemon.state_dir, settings.daemon.socket, environment)


def paths_from(
    state_dir: str | None, socket_path: str | None, environment: Mapping[str, str] | None = None
) -> DaemonPaths:
    """Return the paths from the two settings of [daemon] that name them; raises as `daemon_paths`."""
    environment = os.environ if environment is None else environment
    given = state_dir or environment.get("STATE_DIRECTORY", "").partition(":")[0]
    state = Path(given) if given else Path(platformdirs.user_state_dir("boa"))
    runtime = environment.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    default = (Path(runtime) if runtime else state) / StateFile.socket
    socket = Path(socket_path) if socket_path else default
    if len(os.fsencode(socket.absolute())) > LONGEST_SOCKET:
        raise InputError(
            f"the path of the socket has more than {LONGEST_SOCKET} bytes: {socket}",
            hint="Set [daemon] socket to a shorter one",
        )
    return DaemonPaths(state=state, socket=socket.absolute())


def make_folder(folder: Path) -> None:
    """Create the state folder if needed, accessible to its owner only.

    Raises:
        InputError: when the folder cannot be created or written to.
        OSError: when its disk is full or does not answer, for instance; that may pass.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        may_write = os.access(folder, os.W_OK | os.X_OK)
        # A disk that is mounted read-only after an error is no mistake in the settings.
        why = "" if may_write or _is_read_only(folder) else "you may not write there"
    except (OSError, ValueError) as error:
        kind = trouble_of_os(error) if isinstance(error, OSError) else None
        if kind not in (None, "place", "rights", "read-only"):
            raise
        why = getattr(error, "strerror", None) or str(error)
    if why:
        raise InputError(
            f"the state folder {folder} cannot be used: {why}",
            hint="Set [daemon] state_dir or --state-dir to a folder that you can write to",
        )


def _is_read_only(folder: Path) -> bool:
    """Whether the folder's file system is mounted read-only."""
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def let_jobs_through(state: Path) -> None:
    """Let jobs of other users reach their own folders in the state folder of a daemon that runs as root.

    Everything else in the state folder, files created later included, is for its owner only.
    """
    os.umask(0o077)
    for path in state.iterdir() if state.is_dir() else ():
        if path.name != StateFile.jobs and (path.is_file() or path.is_dir()) and not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o077)
    jobs = state / StateFile.jobs
    jobs.mkdir(parents=True, exist_ok=True)
    for folder in (state, jobs):
        folder.chmod(0o711)


def socket_of(settings: Settings) -> Path:
    """Return the socket to talk to: the one of these settings if it exists, else the system service's."""
    return or_system(daemon_paths(settings).socket)


def or_system(own: Path) -> Path:
    """Return a socket, or the system service's if only that one exists."""
    return SYSTEM_SOCKET if not own.exists() and SYSTEM_SOCKET.exists() else own
