"""What holds a command together: it is all gone at its end, has memory of its own and a limit of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_shapes import kill_keepers
from enclosing import can_have_own_memory, can_make_groups
from engine_bench import Bench, script, until

from boa_daemon.engines.local import LocalEngine
from boa_daemon.job import enclosure
from boa_daemon.job.control_group import ControlGroup
from boa_daemon.job.course import read_course
from boa_daemon.job.enclosure import Enclosure
from boa_daemon.job.processes import PROC
from boa_daemon.job.unit import Unit
from boa_daemon.tick.facts.ports import Accepted

enclosed_only = pytest.mark.skipif(
    not can_have_own_memory(), reason="a job gets no shared memory of its own here"
)
ESCAPES = {
    "double fork, new session, no variables": (
        "import os\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0: os.execve('/bin/sleep', ['sleep', MARK], {})\n"
        "    os._exit(0)\n"
    ),
    "setsid -f env -i": "import os; os.system('setsid -f env -i sleep ' + MARK)\n",
    "a daemon in a new group": "import os; os.system('(trap \"\" TERM HUP; env -i sleep ' + MARK + ' &)')\n",
    "a fork that ignores TERM": (
        "import os, signal\n"
        "if os.fork() == 0:\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid()\n"
        "    os.execve('/bin/sleep', ['sleep', MARK], {})\n"
    ),
}
"""How a process leaves the one that started it; MARK is by what it is found."""


def a_bench(folder: Path) -> Bench:
    (folder / "work").mkdir()
    return Bench(engine=LocalEngine(folder / "root"), workdir=folder / "work")


def sleeping(mark: str) -> list[int]:
    """Return the processes `sleep MARK`."""
    found = []
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", mark.encode()]:
                found.append(int(folder.name))
    return found


def mark_of(folder: Path) -> str:
    """Return a time to sleep that no other test sleeps."""
    return f"{1000 + abs(hash(str(folder))) % 10**6}.{os.getpid()}"


@pytest.mark.first_set(5)
@pytest.mark.parametrize("way", ESCAPES)
@pytest.mark.parametrize("without_keepers", [False, True], ids=["kept", "its keepers killed"])
def test_nothing_of_a_command_outlives_its_job(tmp_path: Path, way: str, *, without_keepers: bool) -> None:
    """Also if keeper and guard were killed, after which it descends from nobody of the unit."""
    if without_keepers and not can_make_groups():
        pytest.skip("only a control group tells")
    bench, mark = a_bench(tmp_path), mark_of(tmp_path)
    text = f"import time; MARK = {mark!r}\n{ESCAPES[way]}\nprint('left', flush=True); time.sleep(600)"
    assert bench.admit(script(text)) == Accepted()
    bench.start()
    until(lambda: bool(sleeping(mark)) and "left" in bench.printed())
    if without_keepers:
        kill_keepers(bench, ("guard", "pid"))
        time.sleep(0.2)
    bench.engine.kill(bench.job, bench.generation)
    bench.wait_end()
    until(lambda: not sleeping(mark), seconds=10)
    assert not _groups(tmp_path)


def _groups(folder: Path) -> list[str]:
    """Return the control groups that are left of the units in a folder."""
    courses = [read_course(file.parent) for file in folder.rglob("course.json")]
    return [each for course in courses if course for each in course.group if os.path.exists(each)]


@enclosed_only
def test_jobs_have_shared_memory_apart_and_leave_none(tmp_path: Path) -> None:
    """Two jobs make one name at the same time; a command beside one sees its own; then all is gone."""
    name = f"boa_apart_{os.getpid()}"
    benches = []
    for job in ("a", "b"):
        (tmp_path / job).mkdir()
        bench = a_bench(tmp_path / job)
        benches.append(bench)
        run = f"set -C; echo {job} > /dev/shm/{name}; echo made; while [ ! -e go ]; do sleep 0.05; done"
        assert bench.admit(run) == Accepted()
        bench.start()
    for bench, job in zip(benches, ("a", "b"), strict=True):
        until(lambda bench=bench: "made" in bench.printed())
        (folder,) = (file.parent for file in (tmp_path / job).rglob("unit.json"))
        words = [sys.executable, "-m", "boa_daemon.job.unit_access", str(folder), "--seconds", "20"]
        said = subprocess.run([*words, f"cat /dev/shm/{name}; pwd"], capture_output=True, check=True).stdout
        assert json.loads(said)["output"].split() == [job, str(bench.workdir)]
    assert not os.path.exists(f"/dev/shm/{name}")
    for bench in benches:
        (bench.workdir / "go").touch()
        assert bench.wait_end().phase == "finished"
        assert "boa:" not in bench.printed()
    assert not os.path.exists(f"/dev/shm/{name}")


@enclosed_only
@pytest.mark.parametrize("run", ["cat DATA/rows", "cat DATA/*", "tool"])
def test_data_that_a_person_has_put_into_shared_memory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    """The log says that the job shares it. Programs may be there, too, by the daemon's search path."""
    data = Path(f"/dev/shm/boa_data_{os.getpid()}")
    data.mkdir()
    (data / "rows").write_text("rows")
    (data / "tool").write_text("#!/bin/sh\necho rows\n")
    (data / "tool").chmod(0o755)
    if run == "tool":
        monkeypatch.setenv("PATH", f"{data}:{os.environ['PATH']}")
    try:
        bench = a_bench(tmp_path)
        assert bench.run_to_end(run.replace("DATA", str(data))).exit_code == 0
    finally:
        shutil.rmtree(data)
    assert "rows" in bench.printed()
    assert f"boa: it shares /dev/shm with everybody on this machine: {data}" in bench.printed()


def test_what_cannot_be_given_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command starts without it."""

    def refused() -> None:
        raise PermissionError(1, "Operation not permitted")

    def no_group(*_: object, **__: object) -> ControlGroup:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(enclosure, "enter_own_memory", refused)
    monkeypatch.setattr(enclosure, "why_shared", lambda *_: "")
    monkeypatch.setattr(ControlGroup, "make", no_group)
    unit = Unit(
        name="u", job="a", generation=1, rank=0, run="", folder=tmp_path, workdir=str(tmp_path),
        progress_file="", checkpoint_dir=str(tmp_path),
    )  # fmt: skip
    made = Enclosure(unit, {})
    assert not made.group.folders
    assert made.notes == (["it has no control group: Permission denied"] if os.geteuid() == 0 else [])
    has_memory = made.has_own_memory
    pid = os.fork()
    if pid == 0:
        made.enter(os.open(tmp_path, os.O_PATH))
        os._exit(0)
    os.waitpid(pid, 0)
    told = ["it has the /dev/shm of everybody on this machine: Operation not permitted"]
    assert made.is_closed() == (told if has_memory else [])
    assert not made.has_own_memory


limited_only = pytest.mark.skipif(
    not can_make_groups(memory_bytes=10**9), reason="no limit of memory can be set here"
)


@limited_only
@pytest.mark.parametrize(
    "needs",
    {
        "itself": "x = bytearray(400 * 10**6)",
        "a program": "import subprocess; subprocess.run([sys.executable, '-c', 'bytearray(4 * 10**8)'])",
        "a worker": "import multiprocessing as m; m.Process(target=bytearray, args=(4 * 10**8,)).start()",
        "shared memory": "open('/dev/shm/x', 'wb').write(bytes(10**6) * 400)",
    }.values(),
)
def test_a_job_over_its_memory_is_ended_with_a_sentence(tmp_path: Path, needs: Any) -> None:
    """Also if only a helper was killed, and its parent would wait for ever."""
    bench = a_bench(tmp_path)
    text = f"import sys, time\nif __name__ == '__main__':\n    {needs}\n    time.sleep(600)"
    (bench.workdir / "t.py").write_text(text)
    began = time.monotonic()
    end = bench.run_to_end(f"{sys.executable} t.py", memory_gb=0.15)
    assert time.monotonic() < began + 60.0
    assert (end.phase, end.cause) == ("failed", "out-of-memory")
    assert end.evidence.endswith("it used more than its memory_gb of 0.15")


_BESIDE = """
import sys
import time
from pathlib import Path
from enclosing import can_have_own_memory, can_make_groups
from engine_bench import Bench, until
from boa_daemon.engines.local import LocalEngine
top = Path(sys.argv[1])
benches = []
for job in ("big", "calm"):
    (top / job / "work").mkdir(parents=True)
    benches.append(Bench(engine=LocalEngine(top / job / "root"), workdir=top / job / "work", job=job))
big, calm = benches
calm.admit("echo begun; while [ ! -e go ]; do sleep 0.05; done; echo whole", memory_gb=5.0)
calm.start()
until(lambda: "begun" in calm.printed())
print(big.run_to_end(f"{sys.executable} -c 'bytearray(900 * 10**6)'").cause)
time.sleep(2.0)  # A keeper looks twice a second.
(calm.workdir / "go").touch()
print(calm.wait_end().phase)
"""


@limited_only
def test_a_job_whose_limit_is_not_enforced_is_not_ended_for_the_memory_of_another(tmp_path: Path) -> None:
    """As in a container that may make no groups: the kernel's count is that of all in it."""
    outer = ControlGroup.make(f"boa-try-{os.getpid()}", memory_bytes=500 * 10**6)
    assert outer.limits_memory
    for folder in outer.folders:
        if (folder / "memory.oom.group").exists():
            (folder / "memory.oom.group").write_text("0")
    (tmp_path / "t.py").write_text(_BESIDE)
    closed = "for each in $(findmnt -nro TARGET -t cgroup,cgroup2); do mount -o remount,bind,ro $each; done"
    words = f"{closed}; exec {sys.executable} {tmp_path}/t.py {tmp_path}"
    try:
        done = subprocess.run(
            ["unshare", "-m", "/bin/bash", "-c", words],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            preexec_fn=outer.enter,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        outer.kill()
        outer.remove()
    assert done.stdout.split() == ["out-of-memory", "finished"], done.stdout + done.stderr
