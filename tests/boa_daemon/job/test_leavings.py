"""What an ended unit leaves in memory is freed; what others use, own or had before stays."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

import pytest

from boa_daemon.job import leavings
from boa_daemon.job.leavings import remove_leavings

UNIT = "j1.g1.n0"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Return folders that stand for /dev/shm and /tmp."""
    shared, temporary = tmp_path / "shm", tmp_path / "tmp"
    shared.mkdir()
    temporary.mkdir()
    return shared, temporary


def processes(folder: Path, *pids: int) -> Path:
    """Return a folder that stands for /proc on a machine with these processes alone."""
    proc = folder / f"proc-{time.monotonic_ns()}"
    proc.mkdir()
    for pid in pids:
        (proc / str(pid)).symlink_to(f"/proc/{pid}")
    return proc


def removed(folders: tuple[Path, Path], *pids: int, since: float = 0.0, uid: int | None = None) -> set[str]:
    shared, temporary = folders
    proc = processes(shared.parent, os.getpid(), *pids)
    user = os.getuid() if uid is None else uid
    left = remove_leavings(user, UNIT, since=since, shared=shared, temporary=temporary, proc=proc)
    return {Path(name).name for name in left if not name.startswith("System V")}


@pytest.mark.parametrize("name", ["psm_1234", "sem.lock", "torch_12_34", "nccl-abc", "cache", "deep/er"])
def test_unused_shared_memory_of_the_user_is_removed(folders: tuple[Path, Path], name: str) -> None:
    """Of any name, also in a folder."""
    file = folders[0] / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"x")

    assert removed(folders) == {file.name}
    assert not file.exists()


@pytest.mark.parametrize("name", ["pymp-abc", "tmpabcdefgh", "torchelastic_x"])
def test_temporary_folders_are_removed(folders: tuple[Path, Path], name: str) -> None:
    """Those that programs mean to remove themselves; a cache that the next start needs stays."""
    for one in (name, "torchinductor_root", "data"):
        (folders[1] / one).mkdir()
        (folders[1] / one / "file").write_text("x")

    assert removed(folders) == {name}


def test_what_came_before_the_unit_or_belongs_to_others_stays(folders: tuple[Path, Path]) -> None:
    """By the time of the last change, and by the owner."""
    (folders[0] / "old").write_bytes(b"x")

    assert removed(folders, since=time.time() + 1.0) == set()
    assert removed(folders, uid=os.getuid() + 1) == set()


def test_what_a_process_has_open_or_mapped_stays(folders: tuple[Path, Path]) -> None:
    """A file that is open, one that is only mapped, and a folder in which a process works."""
    for name in ("open", "mapped"):
        (folders[0] / name).write_bytes(b"x" * 4096)
    (folders[1] / "tmpabcdefgh").mkdir()
    program = (
        "import mmap, os, sys, time; kept = open('open'); f = open('mapped', 'r+b')\n"
        "m = mmap.mmap(f.fileno(), 4096); f.close(); os.chdir(sys.argv[1])\n"
        "print(1, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folders[1] / "tmpabcdefgh")],
        cwd=folders[0],
        stdout=subprocess.PIPE,
    ) as user:
        assert user.stdout is not None
        user.stdout.readline()
        kept = removed(folders, user.pid)
        user.kill()

    assert kept == set()
    assert removed(folders) == {"open", "mapped", "tmpabcdefgh"}


def test_nothing_is_removed_while_another_unit_of_the_user_runs(folders: tuple[Path, Path]) -> None:
    """It may keep files there that it has closed."""
    (folders[0] / "data").write_bytes(b"x")
    environment = {**os.environ, "BOA_UNIT": "j2.g1.n0"}
    with subprocess.Popen(["sleep", "60"], env=environment) as other:
        while b"BOA_UNIT" not in Path(f"/proc/{other.pid}/environ").read_bytes():
            time.sleep(0.01)
        assert removed(folders, other.pid) == set()
        other.kill()

    assert removed(folders) == {"data"}


def test_a_segment_that_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """A real one of Python in the real /dev/shm; the next job can take its name."""
    name = f"boa_test_{os.getpid()}"
    program = (
        "import os, sys; from multiprocessing import resource_tracker, shared_memory\n"
        "resource_tracker.register = lambda *_: None\n"
        f"shared_memory.SharedMemory({name!r}, create=True, size=4096); os._exit(9)"
    )
    began = time.time()
    subprocess.run([sys.executable, "-c", program], check=False)
    file = leavings.SHARED_MEMORY / name

    assert file.exists()
    remove_leavings(os.getuid(), "none", since=began - 0.1, proc=processes(tmp_path, os.getpid()))
    assert not file.exists()
    again = shared_memory.SharedMemory(name, create=True, size=4096)
    again.close()
    again.unlink()


def test_a_system_v_segment_that_nobody_uses_is_removed(tmp_path: Path) -> None:
    """It has no file, and outlives its process as well."""
    libc = ctypes.CDLL(None, use_errno=True)
    began = time.time()
    number = libc.shmget(0, 4096, 0o1600)
    proc = processes(tmp_path, os.getpid())
    (proc / "sysvipc").symlink_to("/proc/sysvipc")
    before = Path("/proc/sysvipc/shm").read_text()

    assert number >= 0
    assert "System V shm" in remove_leavings(
        os.getuid(), UNIT, since=began, shared=tmp_path, temporary=tmp_path, proc=proc
    )
    assert len(Path("/proc/sysvipc/shm").read_text().splitlines()) < len(before.splitlines())
