"""The program `boa daemon` with real processes, real jobs on this machine and real signals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_site import PATIENCE_SECONDS, SETTINGS, Site, a_site, wait_for
from verbs import exit_code

from boa_daemon.api.client import Client
from boa_daemon.testing.daemon_in_a_folder import job_content


@pytest.fixture
def site() -> Iterator[Site]:
    with a_site() as found:
        yield found


@pytest.mark.exhaustive  # Starts four daemons; test_standby has a job that outlives one daemon.
def test_a_real_job_outlives_two_daemons(site: Site) -> None:
    """A job runs once though its daemon is killed with SIGKILL and later stopped with SIGTERM.

    A Python client that waits for the job keeps waiting through both restarts.
    """
    site.up()
    go, ran = site.folder / "go", site.folder / "ran"
    run = f"echo $BOA_GENERATION >> {ran}; while [ ! -e {go} ]; do sleep 0.1; done; echo done"
    with Client(site.socket) as client:
        content = {"name": "real", "class": "default", "run": run, "workdir": str(site.folder), "max_gpus": 1}
        (job,) = client.post("/jobs", {"jobs": [content]})["jobs"]
    wait_for(ran.exists, site)
    waited: list[str] = []
    waiting = threading.Thread(target=wait_for_jobs, args=(site, job, waited))
    waiting.start()
    assert site.end(signal.SIGKILL) == -signal.SIGKILL
    site.up()
    assert site.get("/status")["reattached"] == {"jobs": 1, "instances": 1}
    assert site.end(signal.SIGTERM) == 0
    assert not site.socket.exists()
    site.up()
    go.touch()
    wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "finished", site)
    assert ran.read_text().split() == ["1"]
    waiting.join(PATIENCE_SECONDS)
    assert waited == ["finished"]
    assert "done" in site.get(f"/jobs/{job}/logs")["text"]
    wait_for(lambda: site.get("/instances").get("instances") == [], site)
    assert site.end(signal.SIGTERM) == 0


def wait_for_jobs(site: Site, job: str, found: list[str]) -> None:
    """Wait for the job as a script would, and note how the job ended."""
    with Client(site.socket) as boa:
        found.extend(row["status"] for row in boa.wait(job, timeout_seconds=PATIENCE_SECONDS))


@pytest.mark.exhaustive
def test_a_second_daemon_exits_and_sighup_takes_only_good_settings(site: Site) -> None:
    """The second daemon exits with 1; SIGHUP takes good settings and refuses bad ones."""
    site.up()
    second = site.start()
    assert second.wait(timeout=PATIENCE_SECONDS) == 1
    assert "another daemon" in site.log
    (site.folder / "boa.toml").write_text(SETTINGS.format(usd=12.5))
    assert site.process is not None
    site.process.send_signal(signal.SIGHUP)
    wait_for(lambda: site.get("/status").get("budget_usd_per_hour") == 12.5, site)
    (site.folder / "boa.toml").write_text(SETTINGS.format(usd='"much"'))
    site.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "the settings stay as they were" in site.log, site)
    assert site.get("/status")["budget_usd_per_hour"] == 12.5
    assert all(json.loads(line) for line in site.log.splitlines() if line.startswith("{"))
    assert site.end(signal.SIGTERM) == 0


def _ignores_hangup(pid: int) -> bool:
    """Whether a process ignores SIGHUP, the first signal of its mask."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(mask, 16) & 1)


@pytest.mark.exhaustive  # starts the program
def test_a_reload_while_the_program_starts_does_not_end_it(site: Site) -> None:
    """Its imports take seconds on a busy machine, and systemd calls an end by SIGHUP a clean exit."""
    site.process = site.start()
    pid = site.process.pid
    wait_for(lambda: _ignores_hangup(pid), site)
    for _ in range(20):
        site.process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
    wait_for(lambda: site.get("/status").get("tick", 0) > 0, site)
    assert site.end(signal.SIGTERM) == 0


@pytest.mark.exhaustive  # starts the program
def test_a_log_that_nobody_reads_stops_neither_ticks_nor_the_end(site: Site) -> None:
    """A pager, or a terminal after Ctrl-S, reads nothing for hours."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(1 << 12))
    os.set_blocking(writer, True)
    site.process = subprocess.Popen(
        [sys.executable, "-m", "boa_daemon", "daemon"],
        cwd=site.folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdout=writer,
        stderr=writer,
    )
    wait_for(lambda: site.get("/status").get("tick", 0) > 0, site)
    site.process.send_signal(signal.SIGHUP)
    with Client(site.socket) as boa:
        (job,) = boa.submit(job_content(hours=0.01))
        (ended,) = boa.wait(job, timeout_seconds=PATIENCE_SECONDS)
    assert ended["status"] == "finished"
    assert site.end(signal.SIGTERM) == 0
    os.close(reader)
    os.close(writer)


@pytest.mark.exhaustive  # Starts the program four times; test_recovery has the cases of recovery.
def test_a_daemon_with_an_unreadable_database_starts_nothing_until_boa_recover(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The daemon says so; `boa recover` finds the instance again, and the running job with it."""
    site.up()
    with Client(site.socket) as client:
        content = {"name": "r", "class": "default", "run": "sleep 600", "workdir": "/", "max_gpus": 1}
        client.post("/jobs", {"jobs": [content]})
    wait_for(lambda: bool(site.get("/instances").get("instances")), site)
    wait_for(lambda: any((site.folder / "state" / "jobs").glob("*/g1/n0/keeper.json")), site)
    site.end(signal.SIGKILL)
    for path in (site.folder / "state").glob("boa.sqlite*"):
        path.write_bytes(b"this is no database" * 500)
    site.process = site.start()
    wait_for(lambda: "`boa recover` makes a new" in site.get("/status").get("fault", ""), site)
    assert site.end(signal.SIGTERM) == 0
    monkeypatch.chdir(site.folder)
    assert exit_code(monkeypatch, "recover", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["instances"], answer["jobs"]) == (1, 1)
    site.up()
    wait_for(lambda: site.get("/jobs/r-1").get("status") == "running", site)
    assert site.get("/jobs/r-1")["generation"] == 1
    with Client(site.socket) as client:
        client.post("/jobs/r-1/cancel", {})
    wait_for(lambda: site.get("/instances").get("instances") == [], site)
    assert site.end(signal.SIGTERM) == 0


@pytest.mark.exhaustive  # The engines' contract covers kinds of failures, test_loop the retries.
def test_a_command_that_does_not_exist_is_not_tried_again(site: Site) -> None:
    """A command that is not found fails at once; an error or a kill has its retry.

    A Python MemoryError counts as an error: the words of a log are no proof of a lack of memory.
    """
    site.up()
    runs = {
        "lost": "trane.py --fast",
        "large": f"ulimit -v 400000; exec {sys.executable} -c 'bytearray(1 << 40)'",
        "shot": "echo shot; kill -9 $$",
    }
    common = {"class": "default", "workdir": str(site.folder), "max_gpus": 1, "retries": 1}
    with Client(site.socket) as client:
        client.post("/jobs", {"jobs": [{"name": name, "run": run, **common} for name, run in runs.items()]})

    def rows() -> dict[str, Any]:
        return {row["name"]: row for row in site.get("/jobs").get("jobs", [])}

    wait_for(lambda: [row["status"] for row in rows().values()] == ["failed"] * 3, site)
    ends = {name: (row["generation"], row["exit_code"]) for name, row in rows().items()}
    assert ends == {"lost": (1, 127), "large": (2, 1), "shot": (2, -9)}
    assert "command not found" in rows()["lost"]["last_lines"][-1]
    assert "MemoryError" in rows()["large"]["last_lines"][-1]
    assert site.end(signal.SIGTERM) == 0


def test_a_socket_that_was_swept_away_is_made_again(site: Site) -> None:
    """A cleaner of /tmp takes the file: the daemon answers again, and ends as before."""
    site.up()
    site.socket.unlink()
    wait_for(lambda: site.socket.exists() and site.get("/status").get("tick", 0) > 0, site)
    assert site.end(signal.SIGTERM) == 0
    assert not site.socket.exists()


def test_a_daemon_ends_although_its_parent_blocked_all_signals(site: Site) -> None:
    """A service manager's order to stop is heard; else it would kill the daemon after its patience."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        site.process = site.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    wait_for(lambda: site.get("/status").get("tick", 0) > 0, site)
    assert site.end(signal.SIGTERM) == 0
