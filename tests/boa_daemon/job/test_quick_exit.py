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
