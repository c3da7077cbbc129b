"""Control groups: found in both versions, their limits, and the end of all that is in one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from enclosing import can_make_groups
from engine_bench import until

from boa_daemon.job import control_group
from boa_daemon.job.control_group import ControlGroup, memory_kills
from boa_daemon.job.processes import started_ticks

NAME = f"boa-test-{os.getpid()}"
LEAVES = (
    "import os, subprocess, sys, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "os.execve('/bin/sleep', ['sleep', '600'], {})\n"
)
"""A program that leaves its parent, its session and its variables behind."""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for control groups; its process is in the groups of the file `proc/self/cgroup`."""
    monkeypatch.setattr(control_group, "PROC", tmp_path / "proc")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "cgroup").mkdir()
    return tmp_path / "cgroup"


def stand(machine: Path, cgroup: str, **mounts: str) -> None:
    """Write what the kernel says: our groups, and where hierarchies are mounted ("" is version 2)."""
    own = machine.parent / "proc" / "self"
    (own / "cgroup").write_text(f"{cgroup}\n")
    lines = []
    for name, mounted in mounts.items():
        top, _, folder = mounted.rpartition(":")
        kind = "cgroup2 cgroup2 rw" if name == "v2" else f"cgroup cgroup rw,{name}"
        lines.append(f"40 31 0:37 {top or '/'} {machine / folder} rw,relatime shared:9 - {kind}\n")
    (own / "mountinfo").write_text("".join(lines))


@pytest.mark.parametrize(
    ("cgroup", "mounts", "file"),
    [
        ("0::/a/b.scope", {"v2": "."}, "a/b.scope/memory.events"),
        ("4:memory:/a/b\n0::/", {"memory": "memory", "v2": "unified"}, "memory/a/b/memory.oom_control"),
        ("9:name=systemd:/x\n4:memory:/a", {"memory": "memory"}, "memory/a/memory.oom_control"),
        ("4:cpu,memory:/a", {"cpu,memory": "both"}, "both/a/memory.oom_control"),
        # A container may see a part of the machine's groups: what is mounted is not their top.
        ("0::/pod/one/a", {"v2": "/pod/one:."}, "a/memory.events"),
    ],
)
def test_memory_kills_are_read_from_the_processs_control_group(
    machine: Path, cgroup: str, mounts: dict[str, str], file: str
) -> None:
    """Both versions of control groups work; without a counter the number is 0."""
    assert memory_kills() == 0
    (machine / file).parent.mkdir(parents=True)
    stand(machine, cgroup, **mounts)
    assert memory_kills() == 0
    (machine / file).write_text("oom 5\noom_kill 3\n")
    assert memory_kills() == 3
    (machine / file).write_text("max 1\n")
    assert memory_kills() == 0


def test_a_group_whose_limit_the_group_above_does_not_pass_on_is_refused(machine: Path) -> None:
    """A folder without `memory.max` would be a limit in name alone. Nothing is left of the try."""
    (machine / "us").mkdir()
    stand(machine, "0::/us", v2=".")
    with pytest.raises(OSError, match="passes no limit of memory on"):
        ControlGroup.make(NAME, memory_bytes=10**9)
    assert not (machine / "us" / NAME).exists()
    assert ControlGroup.make(NAME).folders == (machine / "us" / NAME,)


def test_a_process_in_a_group_that_is_not_mounted_makes_none(machine: Path) -> None:
    """As in a container that sees the groups of somebody else; the fault says so."""
    stand(machine, "0::/elsewhere", v2="/pod/one:.")
    with pytest.raises(OSError, match="no control groups"):
        ControlGroup.make(NAME)


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    """A real group of this machine."""
    if not can_make_groups():
        pytest.skip("no control group can be made here")
    made = ControlGroup.make(NAME)
    yield made
    made.kill()
    until(lambda: not made.pids())
    made.remove()


def test_a_process_that_leaves_all_behind_is_in_its_group(group: ControlGroup) -> None:
    """It has another parent, session and environment; the group is empty after its end, and goes."""
    subprocess.run([sys.executable, "-c", LEAVES], preexec_fn=group.enter, check=True)
    until(lambda: len(group.pids()) == 1)
    until(lambda: all(Path(f"/proc/{one}/comm").read_text() == "sleep\n" for one in group.pids()))
    (pid,) = group.pids()
    assert os.getsid(pid) != os.getsid(0)
    assert Path(f"/proc/{pid}/environ").read_bytes() == b""

    assert group.kill() == 1
    until(lambda: not group.pids())
    assert started_ticks(pid) is None
    group.remove()
    assert not any(folder.exists() for folder in group.folders)


def test_a_group_below_it_belongs_to_it(group: ControlGroup) -> None:
    """A job of root may make one of its own."""
    below = group.folders[0] / "below"
    below.mkdir()
    with subprocess.Popen(["sleep", "600"]) as process:
        (below / "cgroup.procs").write_text(str(process.pid))
        assert group.pids() == [process.pid]
        group.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL
    group.remove()
    assert not below.exists()


def test_frozen_processes_stand_still_unnoticed_and_hear_signals_first(group: ControlGroup) -> None:
    """The parent is not told as of a stop; a signal comes before anything else that happened meanwhile."""
    if not (group.folders[0] / "cgroup.freeze").exists():
        pytest.skip("nothing can be frozen here")
    words = "sleep 600 & echo $!; wait $!; echo next"
    with subprocess.Popen(
        ["/bin/bash", "-c", words],
        preexec_fn=group.enter,  # noqa: PLW1509
        stdout=subprocess.PIPE,
        text=True,
    ) as shell:
        assert shell.stdout is not None
        child = int(shell.stdout.readline())
        group.freeze([shell.pid])
        os.kill(child, signal.SIGKILL)
        assert os.waitid(os.P_PID, shell.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG) is None
        os.kill(shell.pid, signal.SIGTERM)
        group.thaw()
        assert shell.wait(timeout=60) == -signal.SIGTERM
        assert shell.stdout.read() == ""


def test_who_needs_too_much_memory_is_counted() -> None:
    """Shared memory counts, too."""
    try:
        group = ControlGroup.make(f"{NAME}-small", memory_bytes=50 * 10**6)
    except OSError:
        pytest.skip("no limit of memory can be set here")
    done = subprocess.run(
        [sys.executable, "-c", "bytearray(200 * 10**6)"],
        preexec_fn=group.enter,
        check=False,
    )
    kills = group.memory_kills()
    group.remove()
    assert (done.returncode, kills) == (-signal.SIGKILL, 1)
