"""A standby takes over from a daemon that was killed, and the running job runs once."""

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
    """Start a second daemon in the folder and return it once it stands by."""
    standby = site.start("--standby", log_file="standby.log")
    until = time.monotonic() + PATIENCE_SECONDS
    while "standing by" not in (site.folder / "standby.log").read_text():
        assert standby.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    return standby


def test_a_standby_takes_over_a_running_job_without_starting_it_again(site: Site) -> None:
    """After SIGKILL to the leader the standby sees the running job finish.

    The standby leads with the settings of the moment of takeover, not with those of its own start. The limit
    is a lower one: a higher one would need consent.
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
    file.write_text(file.read_text().replace("max_instances = 4", "max_instances = 3"))
    assert site.process is not None
    assert leader == site.process.pid
    site.end(signal.SIGKILL)
    site.process = standby
    wait_for(lambda: (site.get("/status").get("leader") or {}).get("pid") == standby.pid, site)
    wait_for(lambda: site.get("/status").get("max_instances") == 3, site)
    go.touch()
    wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "finished", site)
    assert ran.read_text().split() == ["1"]
    assert site.end(signal.SIGTERM) == 0


@pytest.mark.exhaustive
def test_a_waiting_standby_stops_on_sigterm(site: Site) -> None:
    """The standby exits with 0, and the leader goes on without a fault, as the leader that it was."""
    site.up()
    other = Site(site.folder, (site.folder / "boa.toml").read_text())
    leader = site.get("/status")["leader"]
    other.process = a_standby(other)
    assert other.end(signal.SIGTERM) == 0
    assert site.get("/status")["leader"] == leader
    assert site.get("/status")["fault"] == ""
    assert site.end(signal.SIGTERM) == 0
