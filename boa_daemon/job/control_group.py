"""A unit's control group: the kernel's own list of a command's processes, and limits for all of them.

A process can leave its parents, its session and its variables behind, but not its control group. So the
keeper makes a group below its own for the command where it may: root on most machines, also in a container
that may write its groups, and whoever has a delegated group of systemd (`Delegate=yes`). Nothing else is
needed: no systemd, no service. Where no group can be made, a command's processes are those that descend from
its keeper.

Both versions of control groups are known. The list and the end of all come from the one hierarchy of version
2, also where version 1 has the limits beside it; without it from the memory of version 1. Standard library
only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from boa_daemon.job.processes import PROC, send

PERIOD_MICROSECONDS = 100_000
"""The period in which the kernel counts a group's time on cores; 100 ms is its default."""
_HELD, _FREEZE_SECONDS = "held", 0.2
"""The group below a command's in which processes are frozen, and how long that may take."""
_LEAVE_SECONDS = 0.3
"""How long the removal of a group is tried."""
_EVENTS = ("memory.events", "memory.oom_control")
_NO_LIMIT_BYTES = 2**60


@dataclass(frozen=True)
class ControlGroup:
    """The folders of one group in each hierarchy that is used; the first lists its processes."""

    folders: tuple[Path, ...] = ()

    @classmethod
    def make(cls, name: str, *, cpus: float = 0.0, memory_bytes: int = 0) -> ControlGroup:
        """Make a group below our own.

        Limits are 0 for none. There is a limit of memory for all processes together and what they keep in
        shared memory; the kernel ends all of them when one meets it, where it can (version 2).

        Raises:
            OSError: when no group can be made here, or none with these limits; nothing is left then.
        """
        own = _own_groups()
        kinds = [""] if "" in own else ["memory"]
        kinds += [one for one, limit in (("memory", memory_bytes), ("cpu", cpus)) if limit and one in own]
        made: list[Path] = []
        try:
            for kind in dict.fromkeys(kinds):
                if kind not in own:
                    raise FileNotFoundError("this machine has no control groups")
                folder = own[kind] / name
                folder.mkdir(exist_ok=True)
                made.append(folder)
            if memory_bytes:
                _limit_memory(made, memory_bytes)
            if cpus:
                _limit_cores(made, cpus)
        except OSError:
            cls(tuple(made)).remove()
            raise
        return cls(tuple(made))

    @classmethod
    def find(cls, name: str) -> ControlGroup:
        """Return the group of this name below our own; one without folders if there is none."""
        own = _own_groups()
        folders = (own[kind] / name for kind in ("", "memory", "cpu") if kind in own)
        return cls(tuple(dict.fromkeys(folder for folder in folders if folder.is_dir())))

    def enter(self) -> None:
        """Put this process into the group, and with it all that it starts.

        Raises:
            OSError: when the kernel refuses it.
        """
        for folder in self.folders:
            (folder / "cgroup.procs").write_text("0")

    def pids(self) -> list[int]:
        """Return the living processes of the group and of groups that these have made below it."""
        found: dict[int, None] = {}
        for folder in self.folders[:1]:
            for here, _, files in os.walk(folder):
                if "cgroup.procs" in files:
                    with suppress(OSError, ValueError):
                        words = Path(here, "cgroup.procs").read_text().split()
                        # 0 is a process that our namespace of processes lacks.
                        found |= dict.fromkeys(pid for pid in map(int, words) if pid > 0)
        return list(found)

    def kill(self) -> int:
        """Kill all processes of the group; return how many there were."""
        pids = self.pids()
        if not pids:
            return 0
        try:
            with (self.folders[0] / "cgroup.kill").open("r+") as file:
                file.write("1")
        except OSError:  # Version 1, or a kernel before 5.14: not all at one moment.
            send(pids, signal.SIGKILL)
        return len(pids)

    def freeze(self, pids: Iterable[int]) -> None:
        """Let processes of the group run no further until `thaw`; does nothing where the kernel cannot.

        Unlike SIGSTOP nobody notices, neither their parents nor they themselves.
        """
        for folder in self.folders[:1]:
            held = folder / _HELD
            with suppress(OSError):
                if not (folder / "cgroup.freeze").exists():
                    return
                held.mkdir(exist_ok=True)
                for pid in pids:
                    with suppress(ProcessLookupError):
                        (held / "cgroup.procs").write_text(str(pid))
                (held / "cgroup.freeze").write_text("1")
                until = time.monotonic() + _FREEZE_SECONDS
                while "frozen 1" not in (held / "cgroup.events").read_text() and time.monotonic() < until:
                    time.sleep(0.002)

    def release(self, pids: Iterable[int]) -> None:
        """Let single frozen processes go on."""
        for folder in self.folders[:1]:
            for pid in pids:
                with suppress(OSError):
                    (folder / "cgroup.procs").write_text(str(pid))

    def thaw(self) -> None:
        """Let frozen processes go on; signals that they got meanwhile come first."""
        for folder in self.folders[:1]:
            _try_to_write(folder / _HELD / "cgroup.freeze", "0")

    @property
    def counts_memory(self) -> bool:
        """Whether the kernel counts here what it ends for memory."""
        return any((folder / name).exists() for folder in self.folders for name in _EVENTS)

    @property
    def limits_memory(self) -> bool:
        """Whether the group has a limit of memory of its own."""
        for folder in self.folders:
            for name in ("memory.max", "memory.limit_in_bytes"):
                with suppress(OSError, ValueError):  # "max", and a number of 63 bits, are no limit.
                    if int((folder / name).read_text()) < _NO_LIMIT_BYTES:
                        return True
        return False

    def memory_kills(self) -> int:
        """Return how many processes of the group the kernel has ended for memory."""
        return max((_memory_kills(folder) for folder in self.folders), default=0)

    def remove(self) -> None:
        """Remove the group, which must have no living process; what cannot be removed stays empty."""
        for folder in self.folders:
            for here, below, _ in os.walk(folder, topdown=False):
                for each in below:
                    with suppress(OSError):
                        Path(here, each).rmdir()
            until = time.monotonic() + _LEAVE_SECONDS
            while folder.exists():
                with suppress(OSError):
                    folder.rmdir()
                    break
                if time.monotonic() > until:
                    break
                time.sleep(0.01)  # The last process is not listed any more, and not gone yet.


def memory_kills() -> int:
    """Return how many processes of our own group the kernel has ended for memory; 0 if that is not known."""
    own = _own_groups()
    return max((_memory_kills(own[kind]) for kind in ("", "memory") if kind in own), default=0)


def _memory_kills(folder: Path) -> int:
    for name in _EVENTS:
        with suppress(OSError, ValueError, KeyError):
            counts = dict(row.split() for row in (folder / name).read_text().splitlines())
            return int(counts["oom_kill"])
    return 0


def _own_groups() -> Mapping[str, Path]:
    """Return the folders of our own group: by controller in version 1, "" for version 2."""
    found = {}
    with suppress(OSError, ValueError):
        mounts = _mounts()
        for line in (PROC / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for one in controllers.split(","):
                top, mounted = mounts.get(one, ("", Path()))
                if not mounted.parts:
                    continue
                below = os.path.relpath(path, top)
                folder = mounted if below == "." else mounted / below
                if not below.startswith("..") and folder.is_dir():
                    found[one] = folder
    return found


def _mounts() -> Mapping[str, tuple[str, Path]]:
    """Return where control groups are mounted, by controller: (the group that is mounted, folder)."""
    found: dict[str, tuple[str, Path]] = {}
    for line in (PROC / "self" / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        _, _, _, top, folder, *_ = before.split()
        names: Sequence[str] = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        for name in names:
            found.setdefault(name, (top, Path(folder)))
    return found


def _limit_memory(folders: Sequence[Path], memory_bytes: int) -> None:
    for folder in folders:
        if (folder / "memory.limit_in_bytes").exists():
            (folder / "memory.limit_in_bytes").write_text(f"{memory_bytes}")
            _try_to_write(folder / "memory.memsw.limit_in_bytes", f"{memory_bytes}")
            return
    file = _file_of_version_2(folders, "memory", "memory.max")
    file.write_text(f"{memory_bytes}")
    _try_to_write(file.with_name("memory.swap.max"), "0")
    _try_to_write(file.with_name("memory.oom.group"), "1")


def _limit_cores(folders: Sequence[Path], cpus: float) -> None:
    quota = max(round(cpus * PERIOD_MICROSECONDS), 1000)
    for folder in folders:
        if (folder / "cpu.cfs_quota_us").exists():
            (folder / "cpu.cfs_quota_us").write_text(f"{quota}")
            return
    _file_of_version_2(folders, "cpu", "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")


def _file_of_version_2(folders: Sequence[Path], controller: str, name: str) -> Path:
    """Return the file of a limit in version 2, once the group above passes its controller on.

    Raises:
        OSError: when it does not: a group that has processes itself, ours, may not.
    """
    file = folders[0] / name
    if not file.exists():
        _try_to_write(folders[0].parent / "cgroup.subtree_control", f"+{controller}")
    if not file.exists():
        raise FileNotFoundError(f"the control group of this process passes no limit of {controller} on")
    return file


def _try_to_write(file: Path, text: str) -> None:
    """Write what some kernels lack, or refuse."""
    with suppress(OSError):
        if file.exists():
            file.write_text(text)
