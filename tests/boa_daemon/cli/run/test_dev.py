"""`boa dev`: its node ends when it is idle, when its hours are over, and with its shell."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_site import PATIENCE_SECONDS, SETTINGS, Site, a_site, wait_for

from boa_daemon.cli.run.dev import LATE_SECONDS, READY, dev_job
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.job_file import check_job

CLOUD = '[cloud]\nprovider = "simulated"\ninstance_types = ["g5.xlarge"]\n'


def waited(folder: Path, *, seconds: float, idle: float) -> tuple[int, str]:
    """Run the job's command and return its exit code and output."""
    hours = (seconds - LATE_SECONDS) / 3600.0
    run = str(dev_job(name="dev", class_name="c", gpus=1, hours=hours, max_usd=1.0, idle_seconds=idle)["run"])
    environment = {"PATH": os.environ["PATH"], "BOA_PROGRESS_FILE": f"{folder}/p", "BOA_JOB_ID": "dev-1"}
    done = subprocess.run(
        ["/bin/bash", "-c", run],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert not done.stderr
    return done.returncode, done.stdout


def test_the_command_of_boa_dev_ends_when_idle_or_out_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends if no session was opened, if the last session ended, and if its hours are over."""
    monkeypatch.setattr("boa_daemon.cli.run.dev.as_submitted", lambda document, beside: [document.content])
    code, said = waited(tmp_path, seconds=60.0, idle=0.0)
    assert (code, said.splitlines()[0], "nobody was inside" in said) == (0, f"{READY} dev-1", True)
    inside = tmp_path / "inside"
    inside.touch()
    os.utime(inside, (time.time() - 100, time.time() - 100))
    assert re.search(r"for 1\d\d s", waited(tmp_path, seconds=60.0, idle=60.0)[1])
    inside.touch()
    assert "its hours are over" in waited(tmp_path, seconds=0.0, idle=60.0)[1]


def test_the_job_of_boa_dev_has_limited_width_hours_dollars_and_no_retries() -> None:
    """The job file passes the usual check."""
    content = dev_job(name="dev", class_name="c", gpus=2, hours=4.0, max_usd=20.0, idle_seconds=60.0)
    checked = check_job(Document(name="it", content=content))

    assert (checked["min_gpus"], checked["max_gpus"], checked["max_hours"]) == (2, 2, 4.0)
    assert (checked["max_usd"], checked["retries"], checked["elastic"]) == (20.0, 0, None)


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["idle", "shell", "terminal gone"])
def test_a_dev_node_ends_when_idle_with_its_shell_or_its_terminal(how: str) -> None:
    """After that `boa gc --check` finds nothing left running.

    Each case starts a daemon of its own and a simulated node.
    """
    with a_site(SETTINGS.format(usd=10.0).replace("[cloud]\n", CLOUD)) as site:
        words = ["dev", "--hours", "1", "--max-usd", "2"]
        if how == "idle":
            done = start(site, *words, "--idle-minutes", "0.05", "--json")
            out, error = done.communicate(timeout=PATIENCE_SECONDS)
            receipt = json.loads(out)
            assert (done.returncode, receipt["status"], receipt["is_clean"]) == (0, "finished", True), error
            assert receipt["usd"] > 0.0
            return
        ours, theirs = os.openpty()
        done = start(site, *words, terminal=theirs)
        os.close(theirs)
        said = read(ours, lambda said: b"-- running" in said and said.rstrip().endswith((b"$", b"#")))
        if how == "shell":
            os.write(ours, b"exit\n")
            said += read(ours, lambda _said: False)
            assert done.wait(timeout=PATIENCE_SECONDS) == 0, said
            assert b"Nothing is left running." in said, said
            os.close(ours)
        else:
            os.close(ours)
            done.send_signal(signal.SIGHUP)
            assert done.wait(timeout=PATIENCE_SECONDS) == 130
        wait_for(lambda: not site.get("/status"), site)
        left = start(site, "gc", "--check", "--json")
        assert left.communicate(timeout=PATIENCE_SECONDS)[0]
        assert left.returncode == 0


def read(terminal: int, is_enough: Callable[[bytes], bool]) -> bytes:
    """Return a terminal's output until it is enough or its other end is closed."""
    said, until = b"", time.monotonic() + PATIENCE_SECONDS
    while not is_enough(said) and time.monotonic() < until:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                said += os.read(terminal, 4096)
            except OSError:
                break
    assert time.monotonic() < until, said
    return said


def start(site: Site, *words: str, terminal: int | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ends = subprocess.PIPE if terminal is None else terminal
    return subprocess.Popen(
        [sys.executable, "-m", "boa_daemon", *words],
        cwd=site.folder, env={**environment, "TERM": "dumb"},
        stdin=subprocess.DEVNULL if terminal is None else terminal, stdout=ends, stderr=ends, text=True,
    )  # fmt: skip
