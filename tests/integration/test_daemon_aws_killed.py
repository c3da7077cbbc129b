"""The program `boa daemon` on a moto server is killed during its calls to EC2 and started again.

`test_crash_daemon_aws` enumerates the points of death on a simulated clock. Here the program, the database
and the sockets are real and run in real time.
"""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import boto3
import pytest
from daemon_site import PATIENCE_SECONDS, Site

from boa_daemon.api.client import Client
from boa_daemon.engines.ssm_scripts import HEALTH, READY
from boa_daemon.testing.fake_answers import Answer, Call, json_answer
from boa_daemon.testing.fake_cloud import FakeCloud, Forward
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import FakeServer

SETTINGS = """
[budget]
usd_per_hour = 4.0
max_instances = 2
[cloud]
provider = "aws"
cluster = "killed"
instance_types = ["g5.xlarge"]
zones = ["us-east-1a"]
instance_profile = "boa-node"
[engine]
name = "ssm"
queue_url = "{queue}"
uri = "s3://boa-test/jobs"
[daemon]
state_dir = "state"
tick_seconds = 0.5
idle_hold_seconds = 0
"""
Point = tuple[str, str]
STARTING: tuple[Point, ...] = (("DescribeInstances", "after"),)
RENTING: tuple[Point, ...] = (("RunInstances", "before"), ("GetProducts", "after"), ("SendCommand", "before"))
ENDING: tuple[Point, ...] = (("TerminateInstances", "before"), ("TerminateInstances", "after"))


class Deaths:
    """Kills the daemon once at each point that is listed, in whatever order the calls come."""

    def __init__(self) -> None:
        self.left: set[Point] = set()
        self.pid: int | None = None

    def __call__(self, _number: int, operation: str, when: str) -> None:
        """Kill the daemon if this call is one of the listed points."""
        if self.pid is not None and (operation, when) in self.left:
            self.left.discard((operation, when))
            os.kill(self.pid, signal.SIGKILL)
            self.pid = None


class Attended(Site):
    """A daemon that is started again whenever it was killed."""

    deaths: Deaths
    died = 0

    def dies_at(self, points: tuple[Point, ...]) -> None:
        """Let the daemon die once at each point, and start it again after the last one."""
        due = self.died + len(points)
        self.deaths.left.update(points)
        self.until(lambda: self.died == due)

    def until(self, is_so: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the condition holds, and restart the daemon whenever it was killed."""
        deadline = time.monotonic() + seconds
        while True:
            if self.process is None or self.process.poll() is not None:
                if self.process is not None:
                    assert self.process.returncode == -signal.SIGKILL, self.log[-3000:]
                    self.died += 1
                self.process = self.start()
                self.deaths.pid = self.process.pid
            if is_so():
                return
            assert time.monotonic() < deadline, (self.deaths.left, self.log[-3000:])
            time.sleep(0.05)


class SlowNodes(FakeCloud):
    """A cloud whose machines boot and end in a second, and are prepared for jobs when the test allows it."""

    is_prepared = False

    def handle(self, call: Call, body: bytes, forward: Forward) -> Answer:
        """Answer for the script on a node, because moto runs no scripts."""
        if call.operation == "GetCommandInvocation":
            status, said = (
                ("Success", f'{HEALTH}{{"faults": []}}\n{READY}') if self.is_prepared else ("InProgress", "")
            )
            return json_answer({**call.document, "Status": status, "StandardOutputContent": said})
        return super().handle(call, body, forward)


@pytest.fixture
def fake() -> SlowNodes:
    """A cloud on real time."""
    return SlowNodes(time.time, Terms(boot_seconds=1.0, shutdown_seconds=1.0))


@pytest.fixture
def site(fake: SlowNodes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attended]:
    """A folder, a server, and a queue on the server."""
    deaths = Deaths()
    with (
        FakeServer(fake, on_call=deaths) as url,
        tempfile.TemporaryDirectory(prefix="boa", ignore_cleanup_errors=True) as name,
    ):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        sqs = boto3.client("sqs", region_name="us-east-1")
        queue = sqs.create_queue(QueueName="boa")["QueueUrl"]
        sqs.close()
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket="boa-test")
        s3.close()
        iam = boto3.client("iam", region_name="us-east-1")
        iam.create_instance_profile(InstanceProfileName="boa-node")
        iam.close()
        site = Attended(Path(name), SETTINGS.format(queue=queue))
        site.deaths = deaths
        yield site
        deaths.left.clear()
        if site.process is not None and site.process.poll() is None:
            site.end(signal.SIGKILL)


@pytest.mark.exhaustive
def test_a_daemon_killed_during_its_calls_rents_once_and_pays_once(site: Attended, fake: SlowNodes) -> None:
    """The daemon rents a node for a job that is cancelled, and is killed at six calls on the way."""
    site.dies_at(STARTING)
    site.until(lambda: site.get("/status").get("tick", 0) > 0)
    with Client(site.socket) as client:
        content = {"name": "a", "class": "default", "run": "true", "workdir": "/", "max_gpus": 1}
        (job,) = client.post("/jobs", {"jobs": [content]})["jobs"]
    site.dies_at(RENTING)
    assert len(fake.live()) == 1
    site.until(lambda: bool(site.get("/status")))
    # The first order to end the node never arrives: the daemon dies, and repeats the recorded order later.
    fake.faults.plan("TerminateInstances", "drop")
    with Client(site.socket) as client:
        client.post(f"/jobs/{job}/cancel", {})
    fake.is_prepared = True
    site.dies_at(ENDING)
    site.until(lambda: not fake.live())
    (life,) = fake.history()
    assert life.tags["boa:cluster"] == "killed"
    assert life.tags["boa:intent"]
    site.until(lambda: bool(charges(site)))
    (billed,) = charges(site)
    # EC2 reports times in whole seconds.
    assert billed == (life.id, math.floor(life.launched_at), math.floor(life.ended_at or 0.0))
    assert site.died == len(STARTING + RENTING + ENDING)
    assert fake.forbidden == []


def charges(site: Attended) -> list[tuple[str, float, float]]:
    """Return the final charges in the daemon's database."""
    database = sqlite3.connect(f"file:{site.folder / 'state' / 'boa.sqlite'}?mode=ro", uri=True)
    with closing(database):
        return [tuple(row) for row in database.execute("select node, started_at, ended_at from charges")]
