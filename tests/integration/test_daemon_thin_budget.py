"""The daemon as a process with a budget below its load, both from the start and after a reload.

All tests are exhaustive, because `learning/test_budget_watch.py` checks the same inside the test's process.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from daemon_site import SETTINGS, Site, a_site, wait_for

from boa_daemon.api.client import Client

pytestmark = pytest.mark.exhaustive


@pytest.fixture(params=["boa", "boa-paced"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Yield a folder whose daemon runs a policy, and end the daemon's process."""
    with a_site(settings(usd=10.0, policy=request.param)) as found:
        yield found


def settings(*, usd: float, policy: str) -> str:
    """Return settings with a budget and a policy; the load is one job-hour per hour, 1.006 USD/hour."""
    return f'{SETTINGS.format(usd=usd)}[workload]\npolicy = "{policy}"\n[learning]\nrates = false\n'


def test_sighup_with_a_budget_below_the_load_stops_no_tick(
    site: Site, request: pytest.FixtureRequest
) -> None:
    """Idle nodes go back, the status names the least budget, and the old budget brings the plan back."""
    policy = request.node.callspec.params["site"]
    site.up()
    go = site.folder / "go"
    run = f"while [ ! -e {go} ]; do sleep 0.1; done"
    content = {"class": "default", "run": run, "workdir": str(site.folder), "max_gpus": 1}
    with Client(site.socket) as client:
        client.post("/jobs", {"jobs": [{"name": f"j{n}", **content} for n in range(3)]})
    wait_for(lambda: site.get("/status").get("running") == 3, site)
    (site.folder / "boa.toml").write_text(settings(usd=0.3, policy=policy))
    assert site.process is not None
    site.process.send_signal(signal.SIGHUP)
    wait_for(lambda: bool(site.get("/status").get("best_effort")), site)
    told = site.get("/status")
    assert told["best_effort"]["least_spend"] == pytest.approx(1.006, rel=0.02)
    assert told["fault"] == ""
    go.touch()
    wait_for(lambda: site.get("/status").get("nodes") == 0, site)
    with Client(site.socket) as client:
        (late,) = client.post("/jobs", {"jobs": [{"name": "late", **content}]})["jobs"]
    wait_for(lambda: site.get(f"/jobs/{late}/explain").get("reason") == "budget", site)
    (site.folder / "boa.toml").write_text(settings(usd=10.0, policy=policy))
    site.process.send_signal(signal.SIGHUP)
    wait_for(lambda: site.get(f"/jobs/{late}").get("status") == "finished", site)
    assert site.get("/status")["best_effort"] is None
    assert "a tick failed" not in site.log
    assert site.end(signal.SIGTERM) == 0


def test_a_daemon_starts_with_a_budget_below_its_load(site: Site, request: pytest.FixtureRequest) -> None:
    """The daemon starts, takes a job, and explains that the job waits for the budget."""
    policy = request.node.callspec.params["site"]
    (site.folder / "boa.toml").write_text(settings(usd=0.3, policy=policy))
    site.up()
    with Client(site.socket) as client:
        content = {"name": "j", "class": "default", "run": "true", "workdir": "/", "max_gpus": 1}
        (job,) = client.post("/jobs", {"jobs": [content]})["jobs"]
    wait_for(lambda: site.get(f"/jobs/{job}/explain").get("reason") == "budget", site)
    assert "would stop that" in site.get(f"/jobs/{job}/explain")["text"]
    assert "a tick failed" not in site.log
    assert site.end(signal.SIGTERM) == 0
