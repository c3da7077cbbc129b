"""Shared memory of a unit's own: its /dev/shm, System V segments, semaphores and queues.

The kernel does not say which job made a file in /dev/shm. So a command gets namespaces of its own in which
/dev/shm is empty: jobs take no names from each other, and all is gone with its last process. That needs a
keeper that is root and may mount; otherwise what is left is looked for at the end (`leavings`). Containers
have their own by options of their tools. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from string import Template

from boa_daemon.job.unit import Unit

SHARED_MEMORY = Path("/dev/shm")
MPS = Path("/tmp/nvidia-mps")
"""Where NVIDIA's Multi-Process Service listens by default: its clients meet it in /dev/shm."""
MPS_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
_CLONE_NEWNS, _CLONE_NEWIPC = 0x00020000, 0x08000000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_SLAVE = 2, 4, 0x4000, 0x80000
_NAMED = re.compile(r"/dev/shm/[^\s'\";:,()]+")
_WORD = re.compile(r"[^\s'\";:,()=]+")
_SPACES = {"mnt": _CLONE_NEWNS, "ipc": _CLONE_NEWIPC}


def why_shared(unit: Unit, environment: Mapping[str, str]) -> str:
    """Return why a unit's command has to use the machine's shared memory; empty if it can have its own.

    `environment` are its variables, but secrets.
    """
    if not SHARED_MEMORY.is_dir() or SHARED_MEMORY.is_symlink():
        return f"there is no folder {SHARED_MEMORY}"
    with unit.as_user():
        named = next(iter(_below(SHARED_MEMORY, _paths_of(unit, environment))), "")
    if named:
        return f"{named}, which it names, is in the machine's"
    if environment.get(MPS_VARIABLE) or MPS.exists():
        return "its GPUs may be shared by NVIDIA's MPS, whose clients meet there"
    return ""


def _paths_of(unit: Unit, environment: Mapping[str, str]) -> Iterable[str]:
    """Yield the paths that a unit's command uses, as far as anybody can know them.

    A word of the command may be a link in its working folder to data in shared memory.
    """
    yield from (unit.workdir, unit.checkpoint_dir, unit.progress_file, str(unit.folder), str(unit.own))
    data = unit.folder / "data"
    for link in (data, *(data / name for name in unit.data)):
        with suppress(OSError):
            yield os.readlink(link)
    run = Template(unit.run).safe_substitute(environment)
    variables = [word for text in environment.values() for word in _WORD.findall(text) if word[0] == os.sep]
    named = [path for text in (run, *environment.values()) for path in _NAMED.findall(text)]
    for word in (*_WORD.findall(run), *variables, *named):
        yield _existing(os.path.join(unit.workdir, word))


def _existing(path: str) -> str:
    """Return a path up to its last part that exists: the folder in `/folder/shard-{000..099}.tar`."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def _below(top: Path, paths: Iterable[str]) -> Iterable[str]:
    """Yield those paths that are in the folder `top`, links followed."""
    for path in filter(None, paths):
        if os.path.realpath(path).startswith(f"{top}{os.sep}"):
            yield path


def enter_own_memory() -> None:
    """Give this process shared memory of its own; all that it starts has the same.

    /dev/shm is as large as that of the machine. Mounts that come later on the machine are seen here too, and
    none of ours there.

    Raises:
        OSError: when the kernel refuses it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    total = os.statvfs(SHARED_MEMORY)
    options = f"mode=1777,size={total.f_blocks * total.f_frsize}".encode()
    folder = os.fsencode(SHARED_MEMORY)
    _done(libc.unshare(_CLONE_NEWNS | _CLONE_NEWIPC))
    _done(libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))
    _done(libc.mount(b"boa", folder, b"tmpfs", ctypes.c_ulong(_MS_NOSUID | _MS_NODEV), options))


def enter_memory_of(pid: int) -> None:
    """Give this process the shared memory of another one, and its view of mounts.

    Its folder is then that view's root.

    Raises:
        OSError: when the other process is gone, or the kernel refuses it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    handles = [
        (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), kind)
        for name, kind in _SPACES.items()
    ]
    try:
        for handle, kind in handles:
            _done(libc.setns(handle, kind))
    finally:
        for handle, _ in handles:
            os.close(handle)


def has_own_memory(pid: int) -> bool:
    """Return whether a process has shared memory apart from ours, as far as we may know it."""
    with suppress(OSError):
        return os.stat(f"/proc/{pid}/ns/ipc").st_ino != os.stat("/proc/self/ns/ipc").st_ino
    return False


def _done(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
