"""Two regions over sockets, by commands that people type: a job runs far from its bucket and its queue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.testing.fake_answers import Answer, Call
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_nodes import FakeNodes
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import FAKE_CREDENTIALS, FakeServer, node_environment

pytestmark = [pytest.mark.filterwarnings("ignore:Tried to parse"), pytest.mark.exhaustive]
"""moto says of the stack what it leaves out."""

ROOT = Path(__file__).resolve().parents[2]
HOME, FAR, PATIENCE_SECONDS = "us-east-1", "eu-west-1", 180.0
FILE = f"""[cloud]
provider = "aws"
region = "{HOME}"
regions = ["{HOME}", "{FAR}"]
[cloud.by_region.{FAR}.side_prices]
gp3_usd_per_gib_month = 0.088
gp3_usd_per_mb_month = 0.044
snapshot_usd_per_gb_month = 0.05
address_usd_per_hour = 0.005
nat_usd_per_hour = 0.048
nat_usd_per_gb = 0.048
s3_usd_per_gb_month = 0.023
s3_usd_per_1000_writes = 0.005
sqs_usd_per_million = 0.4
as_of = "2026-11-01"
"""
JOB = """
name: far
class: default
max_gpus: 1
artifacts: ["*.txt"]
run: |
  echo "region=[${AWS_REGION-}${AWS_DEFAULT_REGION-}]"; echo hi > a.txt
  while [ ! -e HURRY ]; do sleep 0.3; done
"""


class _Cloud(FakeCloud):
    """A fake AWS, one region of which may answer like a gateway that has lost its way to it."""

    cut = ""

    def handle(self, call: Call, body: bytes, forward: Any) -> Answer:
        if call.region == self.cut and call.service != "iam":
            return Answer(503, b"<html><h1>503 no upstream</h1></html>", {"content-type": "text/html"})
        return super().handle(call, body, forward)


@dataclass
class Site:
    """A folder with settings for two regions, of which the home region has no stock."""

    folder: Path
    fake: _Cloud
    environment: dict[str, str]

    def boa(self, *words: str, rc: int = 0) -> Any:
        """Type a command; return its JSON."""
        done = subprocess.run(
            [sys.executable, "-m", "boa_daemon", *words, "--json"],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False,
            timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert done.returncode == rc, done.stdout + done.stderr
        return json.loads(done.stdout)

    def until(self, job: str, status: str) -> None:
        """Wait until a job has a status."""
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            (found,) = (each for each in self.boa("jobs", "--all")["jobs"] if each["id"] == job)
            if found["status"] == status:
                return
            time.sleep(1.0)
        raise AssertionError(found)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site that `boa up` has made in both regions."""
    stock = {("g5.xlarge", f"{HOME}{zone}", "on-demand"): 0 for zone in "abcdef"}
    terms = Terms(boot_seconds=1.0, shutdown_seconds=1.0, enforces_cluster="lab", stock=stock)
    fake = _Cloud(time.time, terms)
    (tmp_path / "boa.toml").write_text(FILE)
    with ExitStack() as stack:
        url = stack.enter_context(FakeServer(fake))
        # As on a node of EC2, whose own region is the default of the AWS command line.
        own = {**node_environment(url), "AWS_DEFAULT_REGION": FAR}
        fake.nodes = FakeNodes(tmp_path / "nodes", environment=own)
        stack.callback(fake.nodes.close)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "COV_"))},
            **FAKE_CREDENTIALS,
            "AWS_ENDPOINT_URL": url,
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTHONPATH": str(ROOT),
            "BOA_DAEMON_TICK_SECONDS": "1",
            "BOA_DAEMON_STATE_DIR": str(tmp_path / "state"),
            "BOA_DAEMON_SOCKET": str(tmp_path / "s"),
        }
        made = Site(tmp_path, fake, environment)
        made.boa("up", "--cluster", "lab", "--type", "g5.xlarge", "--usd-per-hour", "4", "--yes")
        yield made


def test_a_job_runs_far_from_home_while_its_region_is_cut_off_and_after(site: Site) -> None:
    """Its reports reach the queue at home; commands of people go on; nothing leaks."""
    (site.folder / "job.yaml").write_text(JOB.replace("HURRY", str(site.folder / "hurry")))
    log = site.folder / "daemon.log"
    with log.open("w") as file:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "boa_daemon", "daemon"],
            cwd=site.folder, env=site.environment, stdout=file, stderr=file,
        )  # fmt: skip
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while not (site.folder / "s").exists():
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.3)
        (job,) = site.boa("submit", "job.yaml")["jobs"]
        site.until(job, "running")
        (life,) = site.fake.live()
        assert life.region == FAR
        until = time.monotonic() + PATIENCE_SECONDS
        while True:  # Its start is ordered; on the node it may still be under way.
            inside = subprocess.run(
                [sys.executable, "-m", "boa_daemon", "exec", job, "--", "echo", "inside"],
                cwd=site.folder, env=site.environment, capture_output=True, text=True, check=False,
                timeout=PATIENCE_SECONDS,
            )  # fmt: skip
            if "does not run on this node" not in inside.stderr or time.monotonic() > until:
                break
            time.sleep(0.5)
        assert (inside.returncode, inside.stdout) == (0, "inside\n"), inside.stderr

        site.fake.cut = FAR
        time.sleep(5.0)
        began = time.monotonic()
        status = site.boa("status")
        assert any(FAR in note and "does not answer" in note for note in status["notes"]), status["notes"]
        assert status["nodes"] == 1
        site.until(job, "running")
        assert time.monotonic() - began < 20.0
        gone = site.boa("gc", rc=4)
        assert {each["region"] for each in gone["regions"]} == {HOME}
        assert gone["unanswered"].keys() == {FAR}
        site.fake.cut = ""

        (site.folder / "hurry").touch()
        site.until(job, "finished")
        logs = subprocess.run(
            [sys.executable, "-m", "boa_daemon", "logs", job],
            cwd=site.folder, env=site.environment, capture_output=True, text=True, check=False,
            timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert f"region=[{FAR}]" in logs.stdout
        (unit,) = (site.folder / "nodes").rglob("unit.json")
        assert json.loads(unit.read_text())["region"] == HOME
        assert "a.txt" in json.dumps(site.boa("artifacts", job))
        until = time.monotonic() + PATIENCE_SECONDS
        while site.fake.live():
            assert time.monotonic() < until
            time.sleep(0.5)
        assert len(site.fake.history()) == 1
    finally:
        daemon.terminate()
        daemon.wait(PATIENCE_SECONDS)
