"""The course of a unit: what its keeper notes on the way, so that another keeper can go on from there.

A keeper that is killed takes nothing with it. Its command writes into a named pipe that the command itself
holds open, orphans go to the unit's guard (`guard`), and the file `course.json` says how far the unit has
come: the command's first process, how that ended, and the steps of a stop. Standard library only.

Process ids and times of the monotonic clock are valid for one boot of the machine, which the course names.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from boa_daemon.job.control_group import ControlGroup
from boa_daemon.job.processes import PROC, boot_id, carrying, started_ticks
from boa_daemon.job.unit import Unit, read_own, sealed_document, write_json

COURSE, OUTPUT = "course.json", "output"


@dataclass
class Course:
    """How far a unit has come. Times are of this boot's monotonic clock, but `first_started_at` is wall time.

    `child` is the first process of the command, 0 while it is being started; `ticks` its start time. `guard`
    is the guard of the keeper that started it. `status` is how it ended, as of `waitpid`, once `has_ended`;
    None if nobody saw it. `stop` is the state of an ordered stop that was asked for at `stop_asked_at`.
    `group` are the folders of the command's control group, empty if it has none.
    """

    child: int = 0
    ticks: int = 0
    boot: str = ""
    guard: int = 0
    started_at: float = 0.0
    first_started_at: float = 0.0
    kills_before: int = 0
    has_ended: bool = False
    status: int | None = None
    ended_at: float = 0.0
    has_registered: bool = False
    stop_asked_at: float | None = None
    stop: Mapping[str, Any] | None = None
    is_hard: bool = False
    is_late: bool = False
    left_over: int = 0
    group: list[str] = field(default_factory=list)
    has_own_memory: bool = False

    def write(self, folder: Path) -> None:
        """Note the course in a unit's folder.

        Raises:
            OSError: when it cannot be written.
        """
        write_json(folder / COURSE, sealed_document(folder, asdict(self)))

    @property
    def control_group(self) -> ControlGroup:
        """The command's control group, without folders if it has none."""
        return ControlGroup(tuple(map(Path, self.group)))

    @property
    def child_lives(self) -> bool:
        """Whether the command's first process has not ended."""
        return self.child > 0 and self.boot == boot_id() and started_ticks(self.child) == self.ticks


def read_course(folder: Path) -> Course | None:
    """Return the course of a unit; None if its keeper noted none, or noted it before the machine booted."""
    try:
        found = read_own(folder, COURSE)
        course = None if found is None else Course(**found)
    except (OSError, TypeError, ValueError):
        return None
    return course if course is not None and course.boot == boot_id() else None


def strays(unit: Unit, course: Course) -> list[int]:
    """Return the living processes of a unit's command of which nobody knows by descent.

    These are processes with the variable `BOA_UNIT` of the unit, and those in the command's session.
    """
    found = set(carrying(f"BOA_UNIT={unit.name}"))
    if course.child:
        for process in PROC.iterdir():
            if process.name.isdigit() and int(process.name) != os.getpid():
                with suppress(OSError):
                    if os.getsid(int(process.name)) == course.child:
                        found.add(int(process.name))
    return [pid for pid in found if started_ticks(pid) is not None]


def make_output(unit: Unit, uid: int | None, gid: int) -> tuple[int, int]:
    """Return (reader, writer) of the pipe for the output of a unit's command.

    The writer is open for reading, too: a process that holds it gets no SIGPIPE while the unit has no keeper.
    The pipe belongs to the command's user, who may open it as `/dev/stdout`. Where a file system has no
    named pipes, it has no name, and another keeper cannot find it.
    """
    path = unit.folder / OUTPUT
    try:
        with suppress(FileNotFoundError):
            path.unlink()
        os.mkfifo(path, 0o600)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if uid is not None:
            os.fchown(reader, uid, gid)
        writer = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        reader, writer = os.pipe()
        return reader, writer
    os.set_blocking(reader, True)
    return reader, writer


def reopen_output(folder: Path) -> int | None:
    """Return a reading end of the pipe for the output of a unit's command; None if there is none by name."""
    with suppress(OSError):
        reader = os.open(folder / OUTPUT, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        if stat.S_ISFIFO(os.fstat(reader).st_mode):
            os.set_blocking(reader, True)
            return reader
        os.close(reader)
    return None
