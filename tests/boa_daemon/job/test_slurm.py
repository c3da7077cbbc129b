"""`job/slurm.py` without a Slurm: a task keeps its unit when those that keep it are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.job.seal import KEY_FILE
from boa_daemon.job.slurm import NODE_NAME
from boa_daemon.job.unit import Unit, read_json

COMMAND = "trap 'echo saved > saved; exit 0' TERM; echo begun >> begun; while true; do sleep 0.1; done"


def until(found: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return what is found, once it is."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return value


@pytest.mark.first_set(4)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "suspended"])
@pytest.mark.parametrize("whom", [("pid",), ("guard",), ("guard", "pid")], ids=["keeper", "guard", "both"])
def test_a_command_goes_on_and_an_order_reaches_it(
    tmp_path: Path, whom: tuple[str, ...], number: signal.Signals
) -> None:
    """It is not begun again, and what it saves counts as a stop."""
    folder = tmp_path / "g1" / "n0"
    folder.mkdir(parents=True)
    (tmp_path / "g1" / KEY_FILE).write_text("ab" * 32 + "\n")
    (tmp_path / "g1" / KEY_FILE).chmod(0o600)
    Unit(
        name=f"u-{os.getpid()}-{tmp_path.name}",
        job="a",
        generation=1,
        rank=0,
        run=COMMAND,
        folder=folder,
        workdir=str(tmp_path),
        progress_file="",
        checkpoint_dir=str(tmp_path),
        environment={NODE_NAME: "n1"},
        grace_seconds=30.0,
    ).write()
    task = subprocess.Popen(
        [sys.executable, "-m", "boa_daemon.job.slurm", "unit", str(tmp_path / "g1")],
        env={**os.environ, "SLURMD_NODENAME": "n1"},
        stdin=subprocess.PIPE,
    )
    try:
        until((tmp_path / "begun").exists)
        file = folder / "keeper.json"
        kept = until(lambda: read_json(file))
        for name in whom:
            os.kill(kept[name], number)
        if "pid" in whom and number == signal.SIGKILL:
            until(lambda: (read_json(file) or kept)["pid"] != kept["pid"])
        assert task.poll() is None
        assert task.stdin is not None
        task.stdin.write(b"stop\n")
        task.stdin.close()
        assert task.wait(timeout=60) == 0
        end = read_json(folder / "exit.json")
        assert end is not None
        assert end["stop_asked"]
        assert not end.get("agent_lost")
        assert ((tmp_path / "saved").exists(), (tmp_path / "begun").read_text()) == (True, "begun\n")
    finally:
        task.kill()
        task.wait()
