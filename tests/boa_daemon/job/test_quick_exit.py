"""A stopped process skips the destruction of its objects at exit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import atexit, os, signal, sys
from boa_daemon import job
class Huge:
    def __del__(self): print("taken apart", flush=True)
huge = Huge()
log = open("log", "w")
atexit.register(lambda: print("registered before"))
for step in job.steps(1000, load=print, save=lambda file: file.write(b"x")):
    log.write(f"step {step}\\n")
    os.kill(os.getpid(), signal.SIGTERM) if step == 3 and "stop" in sys.argv else None
    if step == 5: break
atexit.register(lambda: print("registered after"))
print("after the loop", job.should_stop())
if "fault" in sys.argv: raise ValueError("after the stop")
"""


@pytest.mark.parametrize(
    ("words", "code", "ends"),
    [(["stop"], 0, []), (["stop", "fault"], 1, []), ([], 0, ["taken apart"])],
)
def test_a_stopped_process_runs_exit_handlers_but_no_destructors(
    tmp_path: Path, words: list[str], code: int, ends: list[str]
) -> None:
    """Open files and the exit code are as usual; a process that was not stopped ends normally."""
    environment = {"BOA_CHECKPOINT_DIR": "c", "BOA_PROGRESS_FILE": "p", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", SCRIPT, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    steps = 4 if words else 6
    assert (tmp_path / "log").read_text().splitlines() == [f"step {step}" for step in range(steps)]
    said = ["after the loop True" if words else "after the loop False"]
    handlers = ["registered after", "registered before"]
    assert [line for line in done.stdout.splitlines() if line in {*said, *handlers, "taken apart"}] in (
        [*said, *handlers, *ends],
        [*said, *ends, *handlers],
    ), done
    assert done.returncode == code, done
    assert ("after the stop" in done.stderr) is ("fault" in words)


CRASHING = """
import ctypes, os, signal, sys, threading, time
from boa_daemon import job
from boa_daemon.job import quick_exit
quick_exit.C_EXIT_SECONDS = 2.0
libc = ctypes.CDLL(None)
for step in job.steps(1000, load=print, save=lambda file: file.write(b"x")):
    os.kill(os.getpid(), signal.SIGTERM) if step == 3 else None
libc.__cxa_atexit.argtypes = (ctypes.c_void_p,) * 3
def at_the_end_of_c(name, *words):
    libc.__cxa_atexit(ctypes.cast(getattr(libc, name), ctypes.c_void_p), *words)
how = sys.argv[1]
if how == "abort": at_the_end_of_c("abort", None, None)
if how == "fault": at_the_end_of_c("strlen", 1, None)
if how == "pause": at_the_end_of_c("pause", None, None)
if how == "thread":
    at_the_end_of_c("sleep", 1, None)
    threading.Thread(target=lambda: (time.sleep(0.3), libc.abort()), daemon=True).start()
print("written")
"""


@pytest.mark.first_set(3)
@pytest.mark.parametrize("how", ["abort", "fault", "pause", "thread", ""])
def test_a_library_that_crashes_or_hangs_at_exit_changes_no_exit_code(tmp_path: Path, how: str) -> None:
    """The work is saved by then; torchrun would end the other ranks for a crash of one."""
    environment = {"BOA_CHECKPOINT_DIR": "c", "BOA_PROGRESS_FILE": "p", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", CRASHING, how],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "written\n"), done
