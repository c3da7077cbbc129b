"""`boa run` on the simulated cloud: whole runs, too little money, resizes and interrupts."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from daemon_site import Site, a_site, wait_for
from verbs import exit_code

from boa_daemon.engines.local import LocalEngine

SETTINGS = """
[budget]
usd_per_hour = {usd}
max_instances = 3
[cloud]
provider = "simulated"
instance_types = ["{machine}"]
boot_seconds = 1
[daemon]
state_dir = "state"
tick_seconds = 0.5
idle_hold_seconds = 60
"""
JOB = """
name: first
class: default
max_gpus: {gpus}
elastic: true
{more}
run: |
  {python} -u - <<'SCRIPT'
  import json, os, time
  from boa_daemon import job
  total = 0
  def load(path):
      global total
      total = json.loads(path.read_text())
  def save(file):
      file.write(json.dumps(total).encode())
  for step in job.steps({steps}, load=load, save=save, every=5):
      total += step + 1
      time.sleep(0.1)
      job.report(step + 1)
      print("step", step + 1, "on", os.environ["BOA_GPUS"], "total", total, flush=True)
  SCRIPT
"""


_STARTED: list[int] = []
"""Commands that have not ended yet."""


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A folder with settings; every daemon that runs in it ends with the test."""
    machine = getattr(request, "param", "g5.xlarge")
    with a_site(SETTINGS.format(machine=machine, usd=10 if machine == "g5.xlarge" else 100)) as found:
        yield found
        for process in (*_STARTED, *daemons_in(found)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        _STARTED.clear()
        if (found.folder / "state" / "cloud.sqlite").exists():
            boa(found, "down", "--all")


def a_job(site: Site, *, steps: int, gpus: int = 1, more: str = "") -> None:
    text = JOB.format(steps=steps, gpus=gpus, more=more, python=sys.executable)
    (site.folder / "job.yaml").write_text(text)


def start(site: Site, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "boa_daemon", *words],
        cwd=site.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _STARTED.append(process.pid)
    return process


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, error = process.communicate(timeout=180.0)
    _STARTED.remove(process.pid)
    return process.returncode, out if not error or process.returncode == 0 else out + error


def boa(site: Site, *words: str) -> tuple[int, str]:
    return end(start(site, *words))


def rented(site: Site) -> list[str]:
    """Return the ids of all nodes that the cloud ever launched."""
    with closing(sqlite3.connect(site.folder / "state" / "cloud.sqlite")) as file:
        return sorted(name for (name,) in file.execute("SELECT id FROM nodes"))


def receipt_of(said: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said.splitlines()[0])
    return found


def until_step(site: Site, step: int) -> str:
    """Wait until the job has made a step, and return its id."""
    wait_for(lambda: any((row["step"] or 0) >= step for row in site.get("/jobs").get("jobs", [])), site)
    return str(site.get("/jobs")["jobs"][0]["id"])


@pytest.mark.exhaustive
def test_boa_run_shows_each_phase_and_leaves_nothing_running(site: Site) -> None:
    """`boa run` starts its own daemon, prints the phases in order and the job's log, and ends the daemon."""
    a_job(site, steps=30)
    code, said = boa(site, "run", "job.yaml", "--max-usd", "2")

    assert code == 0, said
    order = [
        line[3:].partition(":")[0]
        for line in said.splitlines()
        if line.startswith("-- ") and " s, " not in line
    ]
    every = ["starting the daemon", "planning", "booting", "starting", "running", "giving back"]
    # A short phase may begin and end between two polls, half a second apart or more on a busy machine.
    assert order == [phase for phase in every if phase in order]
    assert {"starting the daemon", "running", "giving back"} <= set(order)
    assert "step 30 on 1 total 465" in said
    assert said.splitlines()[-1] == "Nothing is left running."
    assert not (site.folder / "state" / "boa.sock").exists()


@pytest.mark.exhaustive
def test_phases_add_up_to_the_bill(site: Site) -> None:
    """The phases and the nodes of the receipt each add up to its total."""
    a_job(site, steps=8)
    code, said = boa(site, "run", "job.yaml", "--max-usd", "2", "--json")
    receipt = receipt_of(said)

    assert (code, receipt["status"], receipt["is_clean"], receipt["is_own_daemon"]) == (
        0,
        "finished",
        True,
        True,
    )
    assert sum(row["usd"] for row in receipt["phases"]) == pytest.approx(receipt["usd"], abs=1e-5)
    assert sum(row["usd"] for row in receipt["nodes"]) == pytest.approx(receipt["usd"], abs=1e-5)
    for row in receipt["nodes"]:
        assert sum(row["kinds"].values()) == pytest.approx(row["usd"], abs=1e-6)
        assert "compute" in row["kinds"]
    assert sum(row["seconds"] for row in receipt["phases"]) == pytest.approx(receipt["seconds"], abs=0.2)
    assert receipt["usd"] >= 60 / 3600 * 1.006 - 1e-6
    assert all(row["ended_at"] is not None for row in receipt["nodes"])


def test_max_usd_below_the_price_of_a_node_rents_nothing(site: Site) -> None:
    """The job is cancelled, and the exit code is 4."""
    a_job(site, steps=8)
    code, said = boa(site, "run", "job.yaml", "--max-usd", "0.02", "--json")
    receipt = receipt_of(said)

    assert (code, receipt["is_money_used_up"], receipt["nodes"], receipt["usd"]) == (4, True, [], 0.0)
    assert receipt["status"] == "cancelled"


@pytest.mark.exhaustive
@pytest.mark.parametrize("site", ["p5.48xlarge"], indirect=True)
def test_a_job_that_reaches_its_max_usd_is_stopped(site: Site) -> None:
    """The exit code is 4, the node goes back, and the job saved a checkpoint before it ended."""
    a_job(site, steps=2000, more="max_usd: 0.05")
    code, said = boa(site, "run", "job.yaml", "--max-usd", "40", "--json")
    receipt = receipt_of(said)

    assert (code, receipt["cause"], receipt["is_clean"]) == (4, "max_usd reached", True)
    # The job has one of eight GPUs; the stop may come late by a poll and a checkpoint, at most 10 s.
    assert 0.05 <= receipt["usd_of_job"] <= 0.05 + 10 * receipt["nodes"][0]["usd"] / receipt["seconds"] / 8
    assert 0 < receipt["step"] < 2000
    assert receipt["lost_steps"] == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_gives_everything_back(site: Site, number: signal.Signals) -> None:
    """After Ctrl-C or SIGTERM the job is cancelled and the receipt says that nothing is left."""
    a_job(site, steps=2000)
    process = start(site, "run", "job.yaml", "--max-usd", "2", "--json")
    until_step(site, 3)
    process.send_signal(number)
    code, said = end(process)
    receipt = receipt_of(said)

    assert (code, receipt["status"], receipt["is_clean"]) == (130, "cancelled", True)


@pytest.mark.exhaustive
def test_boa_run_restarts_a_daemon_that_was_killed(site: Site) -> None:
    """The job runs on meanwhile in the same generation, and loses no step."""
    a_job(site, steps=60)
    process = start(site, "run", "job.yaml", "--max-usd", "2", "--json")
    until_step(site, 3)
    [pid] = daemons_in(site)
    os.kill(pid, signal.SIGKILL)
    code, said = end(process)
    receipt = receipt_of(said)

    assert (code, receipt["status"], receipt["generations"], receipt["is_clean"]) == (0, "finished", 1, True)
    assert (receipt["step"], receipt["lost_steps"]) == (60, 0)


def daemons_in(site: Site) -> list[int]:
    """Return the process ids of the daemons of a folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"daemon" in words and (folder / "cwd").resolve() == site.folder.resolve():
                found.append(int(folder.name))
    return found


@pytest.mark.exhaustive
def test_a_run_that_is_resized_and_loses_a_node_loses_no_step(site: Site) -> None:
    """The job gets two GPUs, then a node is interrupted; both times it resumes from its checkpoint."""
    a_job(site, steps=150, gpus=1)
    process = start(site, "run", "job.yaml", "--max-usd", "2", "--json")
    name = until_step(site, 5)
    code, said = boa(site, "resize", name, "--gpus", "2", "--json")
    assert (code, json.loads(said)["changed"]) == (0, True), said
    wait_for(lambda: site.get(f"/jobs/{name}")["gpus"] == 2, site)
    before = site.get(f"/jobs/{name}")
    until_step(site, (before["step"] or 0) + 5)
    code, said = boa(site, "simulate-interrupt", name, "--json")
    taken = json.loads(said)
    assert (code, taken["node"] in before["nodes"]) == (0, True), said
    wait_for(lambda: taken["node"] not in site.get(f"/jobs/{name}").get("nodes", [taken["node"]]), site)
    code, said = end(process)
    receipt = receipt_of(said)
    log = boa(site, "logs", name)[1] if site.get("/status") else said

    assert (code, receipt["status"], receipt["lost_steps"]) == (0, "finished", 0), log
    assert receipt["generations"] >= 3
    assert receipt["step"] == 150
    assert len(receipt["nodes"]) >= 3
    assert receipt["is_clean"]


@pytest.mark.exhaustive
def test_boa_run_uses_a_running_daemon_and_leaves_it_running(site: Site) -> None:
    """The receipt counts only the cost of the job."""
    a_job(site, steps=8)
    site.up()
    code, said = boa(site, "run", "job.yaml", "--max-usd", "2", "--json")
    assert code == 0, said + site.log
    receipt = receipt_of(said)

    assert (code, receipt["status"], receipt["is_own_daemon"], receipt["left"]) == (
        0,
        "finished",
        False,
        None,
    )
    assert receipt["usd"] == pytest.approx(receipt["usd_of_job"], abs=1e-5)
    assert site.get("/status")["is_down"] is False
    site.end(signal.SIGTERM)


@pytest.mark.exhaustive
def test_boa_run_refuses_to_start_if_an_earlier_daemon_left_jobs(site: Site) -> None:
    """The exit code is 2, the message counts the jobs, and nothing is rented."""
    a_job(site, steps=2000)
    site.up()
    boa(site, "submit", "job.yaml")
    site.end(signal.SIGTERM)
    before = rented(site)
    code, said = boa(site, "run", "job.yaml", "--max-usd", "2")

    assert code == 2
    assert rented(site) == before
    assert "1 job of an earlier daemon go" in said.replace("\n", " ")


@pytest.mark.exhaustive
def test_gc_and_down_find_and_end_the_node_of_a_killed_daemon(site: Site) -> None:
    """The node is a leak once its lease is over; `boa down --all` ends the node and its job."""
    a_job(site, steps=2000)
    site.up()
    boa(site, "submit", "job.yaml")
    until_step(site, 2)
    assert boa(site, "down", "--all")[0] == 1
    site.end(signal.SIGKILL)
    assert boa(site, "gc", "--check")[0] == 0
    age(site, 400.0)
    code, said = boa(site, "gc", "--check", "--json")
    assert (code, len(json.loads(said)["leaks"])) == (6, 1)
    code, said = boa(site, "down", "--all", "--json")

    assert (code, json.loads(said)["regions"][0]["ended"]) == (0, 1)
    assert boa(site, "gc", "--check", "--json")[0] == 0
    assert not list_running(site)


def age(site: Site, seconds: float) -> None:
    """Move a daemon's last renewal and its launches back in time."""
    with closing(sqlite3.connect(site.folder / "state" / "cloud.sqlite")) as file, file:
        file.execute("UPDATE notes SET renewed_at = renewed_at - ?", (seconds,))
        rows = file.execute("SELECT id, node FROM nodes").fetchall()
        for name, node in rows:
            document = json.loads(node)
            document["launched_at"] -= seconds
            file.execute("UPDATE nodes SET node = ? WHERE id = ?", (json.dumps(document), name))


def list_running(site: Site) -> list[str]:
    """Return the jobs of a folder that still run, after waiting for killed jobs to be noticed."""
    until = time.monotonic() + 60.0
    while True:
        engine = LocalEngine(site.folder / "state" / "jobs")
        found = [name for name, report in engine.reattach().items() if not report.is_over]
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.2)


def test_the_doctor_checks_a_site_on_the_simulated_cloud(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It checks plan, engine, disk, database and daemon; an engine that does not fit the cloud has a fix."""
    monkeypatch.chdir(site.folder)
    code = exit_code(monkeypatch, "doctor", "--json")
    names = [check["name"] for check in json.loads(capsys.readouterr().out)["checks"]]
    assert (code, names) == (0, ["plan", "engine", "disk", "database", "daemon"])

    with (site.folder / "boa.toml").open("a") as file:
        file.write('[engine]\nname = "ssm"\n')
    code = exit_code(monkeypatch, "doctor", "--json")
    [bad] = [check for check in json.loads(capsys.readouterr().out)["checks"] if check["status"] == "failed"]
    assert (code, bad["name"], bad["fix"]) == (1, "engine", "[engine] name: local or ray")
