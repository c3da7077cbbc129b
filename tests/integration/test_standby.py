"""A standby takes over a daemon that was killed: the job runs on, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_site import PATIENCE_SECONDS, Site, wait_for

from boa_daemon.api.client import Client


@pytest.fixture
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        found = Site(Path(name))
        yield found
        if found.process is not None and found.process.poll() is None:
            found.end(signal.SIGKILL)


def test_a_standby_takes_over_and_nothing_is_started_twice(site: Site) -> None:
    """SIGKILL to the leader: the standby, a process that waited beside it, finishes the job that runs."""
    site.up()
    go, ran = site.folder / "go", site.folder / "ran"
    run = f"echo $BOA_GENERATION >> {ran}; while [ ! -e {go} ]; do sleep 0.1; done"
    with Client(site.socket) as client:
        content = {"name": "real", "class": "default", "run": run, "workdir": str(site.folder), "max_gpus": 1}
        (job,) = client.post("/jobs", {"jobs": [content]})["jobs"]
    wait_for(ran.exists, site)
    with (site.folder / "standby.log").open("wb") as log:
        standby = subprocess.Popen(
            [sys.executable, "-m", "boa_daemon", "daemon", "--standby"],
            cwd=site.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdout=log,
            stderr=log,
        )
    until = time.monotonic() + PATIENCE_SECONDS
    while "standing by" not in (site.folder / "standby.log").read_text():
        assert standby.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    leader = site.get("/status")["leader"]["pid"]
    assert site.process is not None
    assert leader == site.process.pid
    site.end(signal.SIGKILL)
    site.process = standby
    wait_for(lambda: (site.get("/status").get("leader") or {}).get("pid") == standby.pid, site)
    go.touch()
    wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "finished", site)
    assert ran.read_text().split() == ["1"]
    assert site.end(signal.SIGTERM) == 0


def test_a_standby_that_waits_stops_when_it_is_told(site: Site) -> None:
    """SIGTERM while another one leads: it ends well, and touches nothing."""
    site.up()
    other = Site(site.folder, (site.folder / "boa.toml").read_text())
    with (site.folder / "standby.log").open("wb") as log:
        other.process = subprocess.Popen(
            [sys.executable, "-m", "boa_daemon", "daemon", "--standby"],
            cwd=site.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdout=log,
            stderr=log,
        )
    until = time.monotonic() + PATIENCE_SECONDS
    while "standing by" not in (site.folder / "standby.log").read_text():
        assert time.monotonic() < until
        time.sleep(0.1)
    assert other.end(signal.SIGTERM) == 0
    assert site.get("/status")["fault"] == ""
    assert site.end(signal.SIGTERM) == 0
