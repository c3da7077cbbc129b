"""A standby takes over a daemon that was killed: the job runs on, once."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from daemon_site import PATIENCE_SECONDS, Site, a_site, wait_for

from boa_daemon.api.client import Client


@pytest.fixture
def site() -> Iterator[Site]:
    with a_site() as found:
        yield found


def a_standby(site: Site) -> subprocess.Popen[bytes]:
    """Return a second daemon of the folder, once it stands by."""
    standby = site.start("--standby", log_file="standby.log")
    until = time.monotonic() + PATIENCE_SECONDS
    while "standing by" not in (site.folder / "standby.log").read_text():
        assert standby.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    return standby


def test_a_standby_takes_over_and_nothing_is_started_twice(site: Site) -> None:
    """SIGKILL to the leader: the standby, a process that waited beside it, finishes the job that runs.

    The settings were changed while it waited: it takes over with them, not with those of its own start.
    """
    site.up()
    go, ran = site.folder / "go", site.folder / "ran"
    run = f"echo $BOA_GENERATION >> {ran}; while [ ! -e {go} ]; do sleep 0.1; done"
    with Client(site.socket) as client:
        content = {"name": "real", "class": "default", "run": run, "workdir": str(site.folder), "max_gpus": 1}
        (job,) = client.post("/jobs", {"jobs": [content]})["jobs"]
    wait_for(ran.exists, site)
    standby = a_standby(site)
    leader = site.get("/status")["leader"]["pid"]
    file = site.folder / "boa.toml"
    file.write_text(file.read_text().replace("max_instances = 4", "max_instances = 7"))
    assert site.process is not None
    assert leader == site.process.pid
    site.end(signal.SIGKILL)
    site.process = standby
    wait_for(lambda: (site.get("/status").get("leader") or {}).get("pid") == standby.pid, site)
    wait_for(lambda: site.get("/status").get("max_instances") == 7, site)
    go.touch()
    wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "finished", site)
    assert ran.read_text().split() == ["1"]
    assert site.end(signal.SIGTERM) == 0


@pytest.mark.exhaustive
def test_a_standby_that_waits_stops_when_it_is_told(site: Site) -> None:
    """SIGTERM while another one leads: it ends well, and touches nothing."""
    site.up()
    other = Site(site.folder, (site.folder / "boa.toml").read_text())
    other.process = a_standby(other)
    assert other.end(signal.SIGTERM) == 0
    assert site.get("/status")["fault"] == ""
    assert site.end(signal.SIGTERM) == 0
