"""The daemon's gate with real processes and a real DDP job: training goes on when the gate dies."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daemon_site import SETTINGS, Site, wait_for

from boa_daemon.api.client import Client
from boa_daemon.job.gate.address_file import find_address
from boa_daemon.job.gate.client import GateClient

SCRIPT = Path(__file__).with_name("gate_job.py")
GATE = "[gate]\nalways_on = true\n[workload]\nexplore_fraction = 0\n"


@pytest.fixture
def gated_site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        found = Site(Path(name))
        (found.folder / "boa.toml").write_text(SETTINGS.format(usd=20.0) + GATE)
        yield found
        if found.process is not None and found.process.poll() is None:
            found.end(signal.SIGKILL)


def submit(site: Site, *jobs: dict[str, Any]) -> list[str]:
    common = {"class": "default", "workdir": str(site.folder)}
    with Client(site.socket) as client:
        return list(client.post("/jobs", {"jobs": [{**common, **job} for job in jobs]})["jobs"])


@pytest.mark.exhaustive
def test_training_goes_on_when_the_gate_or_the_daemon_dies(gated_site: Site) -> None:
    """Two ranks ask the gate, lose it and the daemon, go on training, and ask again when the gate is back.

    Neither the script nor the job file mentions the gate.
    """
    site = gated_site
    site.up()
    run = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(SCRIPT))}"
    (job,) = submit(
        site,
        {
            "name": "ddp",
            "run": run,
            "min_gpus": 2,
            "max_gpus": 2,
            "environment": {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        },
    )

    def gate() -> dict[str, Any]:
        return dict(site.get("/status").get("gate") or {})

    def steps() -> int:
        file = site.folder / "step-1"
        return int(file.read_text() or 0) if file.exists() else 0

    def trains_on(count: int = 25) -> None:
        since = steps()
        wait_for(lambda: steps() > since + count, site)

    wait_for(lambda: gate().get("jobs") == 1 and gate()["grants"] > 0, site)
    assert (gate()["nics"], gate()["starts"], gate()["fault"], gate()["ungated"]) == (2, 1, "", [])
    assert set(gate()["measured"][job]) == {"exposed_fraction", "gain_fraction", "mean_wait_seconds"}
    trains_on()

    Path(gate()["listens"][0].removeprefix("unix:")).unlink()
    wait_for(lambda: gate().get("starts") == 2, site)
    wait_for(lambda: gate().get("jobs") == 1 and gate()["grants"] > 0, site)
    trains_on()

    assert site.end(signal.SIGKILL) == -signal.SIGKILL
    site.process = None
    trains_on()
    site.up()
    wait_for(lambda: gate().get("jobs") == 1 and gate()["grants"] > 0, site)
    trains_on()

    (site.folder / "go").touch()
    wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "finished", site)
    assert site.get(f"/jobs/{job}")["generation"] == 1
    assert site.end(signal.SIGTERM) == 0
    assert not (site.folder / "state" / "gate.sock").exists()


def test_the_job_with_less_work_left_sends_first(gated_site: Site) -> None:
    """Two jobs wait for the same network cards; the shorter job is granted first, though it asked last."""
    site = gated_site
    site.up()
    sleeper = {"run": "sleep 600", "max_gpus": 1}
    holder, long, short = submit(
        site,
        {**sleeper, "name": "holder"},
        {**sleeper, "name": "long", "scale": 9.0},
        {**sleeper, "name": "short", "scale": 0.1},
    )
    folder = site.folder / "state" / "jobs"
    wait_for(lambda: len(list(folder.glob("*/g1/gate.json"))) == 3, site)
    clients = {}
    for job in (holder, long, short):
        (file,) = [f for f in folder.glob("*/g1/gate.json") if f.parent.parent.name.startswith(job)]
        assert set(json.loads(file.read_text())) == {"address"}
        address = find_address(str(file))
        assert address is not None
        address = replace(address, answer_seconds=1.0)  # The machine may be busy.
        clients[job] = GateClient(address, job=job, nics=["n1", "n2"], token=address.read_token())
    wait_for(lambda: site.get("/status")["gate"].get("jobs") == 3, site)
    wait_for(lambda: site.get(f"/jobs/{short}").get("status") == "running", site)
    order: list[str] = []
    is_in_time = False

    def send(job: str) -> None:
        go = clients[job].ask(1e6, 1e6)
        order.append(f"{job} {go.why}")
        clients[job].done(go.fence, 0.01)

    try:
        # The gate may have old priorities until the tick after the first that knows all jobs.
        told = site.get("/status")["tick"] + 1
        wait_for(lambda: site.get("/status")["tick"] > told, site)
        until = time.monotonic() + 180.0
        while not is_in_time:
            assert time.monotonic() < until, order
            order.clear()
            held, began = clients[holder].ask(1e6, 1e6), time.monotonic()
            threads = {job: threading.Thread(target=send, args=(job,)) for job in (long, short)}
            for job, thread in threads.items():
                before = clients[job]._id
                thread.start()
                while clients[job]._id == before:
                    time.sleep(0.001)
                time.sleep(0.05)
            clients[holder].done(held.fence, 0.01)
            for thread in threads.values():
                thread.join()
            # On a stalled machine the lease runs out before both jobs have asked: then try again.
            is_in_time = held.why == "granted" and time.monotonic() - began < held.lease_seconds
    finally:
        for client in clients.values():
            client.close()
        with Client(site.socket) as client:
            for job in clients:
                client.post(f"/jobs/{job}/cancel")
        wait_for(lambda: site.get("/instances").get("instances") == [], site)
    assert order == [f"{short} granted", f"{long} granted"]
    assert site.end(signal.SIGTERM) == 0
