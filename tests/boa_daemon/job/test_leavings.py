"""What an ended unit leaves in memory is freed; what others use, own or had before stays."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import shared_memory
from pathlib import Path

import pytest

from boa_daemon.job import leavings
from boa_daemon.job.leavings import make_temporary_folder, remove_leavings, remove_trees, temporary_folder

UNIT = "j1.g1.n0"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return a folder that stands for /dev/shm."""
    folder = tmp_path / "shm"
    folder.mkdir()
    return folder


def processes(folder: Path, *pids: int) -> Path:
    """Return a folder that stands for /proc on a machine with these processes alone."""
    proc = folder / f"proc-{time.monotonic_ns()}"
    proc.mkdir()
    for pid in pids:
        (proc / str(pid)).symlink_to(f"/proc/{pid}")
    return proc


def removed(
    shared: Path, *pids: int, since: float = 0.0, uid: int | None = None, is_shared: bool = False
) -> set[str]:
    proc = processes(shared.parent, os.getpid(), *pids)
    user = os.getuid() if uid is None else uid
    left = remove_leavings(user, UNIT, since=since, is_shared=is_shared, shared=shared, proc=proc)
    return {Path(name).name for name in left if not name.startswith("System V")}


@pytest.mark.parametrize("name", ["psm_1234", "sem.lock", "torch_12_34", "nccl-abc", "cache", "deep/er"])
def test_unused_shared_memory_of_the_user_is_removed(shared: Path, name: str) -> None:
    """Of any name, also in a folder."""
    file = shared / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"x")

    assert removed(shared) == {file.name}
    assert not file.exists()


def test_beside_other_programs_of_the_user_only_what_shm_open_makes_is_removed(shared: Path) -> None:
    """Data that a person copies into memory, while a job runs, is the person's."""
    for name in ("data", "deep/er"):
        (shared / name).parent.mkdir(exist_ok=True)
        (shared / name).write_bytes(b"x")
        (shared / name).chmod(0o644)
    (shared / "psm_1").touch(0o600)
    (shared / "link").symlink_to("psm_1")

    assert removed(shared, is_shared=True) == {"psm_1"}


def test_a_unit_has_a_folder_for_its_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is short, found again after a restart, and never taken from somebody else."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    folder = make_temporary_folder(tmp_path / "n0", os.getuid())
    assert folder is not None
    assert folder == make_temporary_folder(tmp_path / "n0", os.getuid())
    assert folder.parent == tmp_path / "tmp"
    assert len(folder.name) < 20

    (folder / "tmpabcdefgh").mkdir()
    remove_trees(temporary_folder(tmp_path / "n0"))
    assert not folder.exists()
    remove_trees(temporary_folder(tmp_path / "n0"))

    folder.symlink_to(tmp_path)
    assert make_temporary_folder(tmp_path / "n0", os.getuid()) is None
    remove_trees(temporary_folder(tmp_path / "n0"))
    assert tmp_path.is_dir()
    folder.unlink(missing_ok=True)
    folder.mkdir(0o777)
    folder.chmod(0o777)
    assert make_temporary_folder(tmp_path / "n0", os.getuid()) is None
    folder.chmod(0o700)
    assert make_temporary_folder(tmp_path / "n0", os.getuid() + 1) is None


def test_what_came_before_the_unit_or_belongs_to_others_stays(shared: Path) -> None:
    """By the time of the last change, and by the owner."""
    (shared / "old").write_bytes(b"x")

    assert removed(shared, since=time.time() + 1.0) == set()
    assert removed(shared, uid=os.getuid() + 1) == set()


def test_what_a_process_has_open_or_mapped_stays(shared: Path) -> None:
    """A file that is open, and one that is only mapped."""
    for name in ("open", "mapped"):
        (shared / name).write_bytes(b"x" * 4096)
    program = (
        "import mmap, os, sys, time; kept = open('open'); f = open('mapped', 'r+b')\n"
        "m = mmap.mmap(f.fileno(), 4096); f.close(); os.chdir(sys.argv[1])\n"
        "print(1, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(shared.parent)],
        cwd=shared,
        stdout=subprocess.PIPE,
    ) as user:
        assert user.stdout is not None
        user.stdout.readline()
        kept = removed(shared, user.pid)
        user.kill()

    assert kept == set()
    assert removed(shared) == {"open", "mapped"}


def test_nothing_is_removed_while_another_unit_of_the_user_runs(shared: Path) -> None:
    """It may keep files there that it has closed."""
    (shared / "data").write_bytes(b"x")
    environment = {**os.environ, "BOA_UNIT": "j2.g1.n0"}
    with subprocess.Popen(["sleep", "60"], env=environment) as other:
        while b"BOA_UNIT" not in Path(f"/proc/{other.pid}/environ").read_bytes():
            time.sleep(0.01)
        assert removed(shared, other.pid) == set()
        other.kill()

    assert removed(shared) == {"data"}


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
    (shared := tmp_path / "shared").mkdir()
    before = Path("/proc/sysvipc/shm").read_text()

    assert number >= 0
    assert "System V shm" in remove_leavings(os.getuid(), UNIT, since=began, shared=shared, proc=proc)
    assert len(Path("/proc/sysvipc/shm").read_text().splitlines()) < len(before.splitlines())
