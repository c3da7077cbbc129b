"""`boa daemon` over sockets whose keys expire and whose queues and bucket are deleted: nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from boa_daemon.api.client import Client
from boa_daemon.testing.fake_answers import Answer, Call, ec2_error, json_error
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_nodes import FakeNodes
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import FakeServer, node_environment

pytestmark = [pytest.mark.filterwarnings("ignore:Tried to parse"), pytest.mark.exhaustive]
"""moto says of the stack what it leaves out."""

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 300.0
"""A loss is told within five minutes, on whatever machine this runs."""
JOB = "name: long\nclass: default\nmax_gpus: 1\nrun: |\n  while [ ! -e HURRY ]; do sleep 0.3; done\n"


class _Cloud(FakeCloud):
    """A fake AWS that knows which keys have expired."""

    expired: frozenset[str] = frozenset()

    def handle(self, call: Call, body: bytes, forward: Any) -> Answer:
        if call.access_key in self.expired:
            make = ec2_error if call.query else json_error
            return make("ExpiredToken", "The security token included in the request is expired", 400)
        return super().handle(call, body, forward)


@dataclass
class Site:
    """A folder, the fake AWS, and a daemon with keys in a file."""

    folder: Path
    fake: _Cloud
    url: str
    environment: dict[str, str]

    @property
    def socket(self) -> Path:
        return self.folder / "s"

    def keys(self, name: str) -> None:
        """Write the file of keys, as a program that renews them does."""
        text = f"[default]\naws_access_key_id = {name}\naws_secret_access_key = testing\n"
        (self.folder / "keys").write_text(text)

    def boa(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Type a command."""
        done = subprocess.run(
            [sys.executable, "-m", "boa_daemon", *words],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False,
            timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def until(self, is_so: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until the status is as wanted."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            with Client(self.socket) as client:
                status = client.status()
            if is_so(status):
                return
            assert time.monotonic() < until, (status["notes"], status["fault"])
            time.sleep(1.0)

    def client(self, service: str) -> Any:
        """Return calls of an administrator."""
        session = boto3.session.Session("testing", "testing", region_name="us-east-1")
        return session.client(service, endpoint_url=self.url)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site that `boa up` has made, and its running daemon with a running job."""
    fake = _Cloud(time.time, Terms(boot_seconds=1.0, shutdown_seconds=1.0, enforces_cluster="lab"))
    with ExitStack() as stack:
        url = stack.enter_context(FakeServer(fake))
        fake.nodes = FakeNodes(tmp_path / "nodes", environment=node_environment(url))
        stack.callback(fake.nodes.close)
        own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "COV_"))}
        environment = {
            **own,
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys"),
            "AWS_ENDPOINT_URL": url,
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTHONPATH": str(ROOT),
            "BOA_DAEMON_TICK_SECONDS": "1",
            "BOA_DAEMON_IDLE_HOLD_SECONDS": "5",
            "BOA_DAEMON_STATE_DIR": str(tmp_path / "state"),
            "BOA_DAEMON_SOCKET": str(tmp_path / "s"),
        }
        made = Site(tmp_path, fake, url, environment)
        made.keys("AKIAFIRST")
        made.boa("up", "--cluster", "lab", "--type", "g5.xlarge", "--usd-per-hour", "4", "--yes")
        log = stack.enter_context((tmp_path / "daemon.log").open("w"))
        daemon = subprocess.Popen(
            [sys.executable, "-m", "boa_daemon", "daemon"],
            cwd=tmp_path, env=environment, stdout=log, stderr=log,
        )  # fmt: skip
        stack.callback(daemon.wait, PATIENCE_SECONDS)
        stack.callback(daemon.terminate)
        until = time.monotonic() + PATIENCE_SECONDS
        while not made.socket.exists():
            assert time.monotonic() < until, (tmp_path / "daemon.log").read_text()
            time.sleep(0.3)
        (tmp_path / "job.yaml").write_text(JOB.replace("HURRY", str(tmp_path / "hurry")))
        made.boa("submit", "job.yaml")
        made.until(lambda status: status.get("running") == 1 and not status["fault"])
        yield made
        assert daemon.poll() is None


def test_keys_queues_and_a_bucket_come_and_go_under_a_running_daemon(site: Site) -> None:
    """Each loss is told with its cure and each return ends the note; the job ends well on its one node."""

    def says(*words: str) -> Callable[[dict[str, Any]], bool]:
        def is_said(status: dict[str, Any]) -> bool:
            said = [*status["notes"], status["fault"]]
            return any(all(word in each for word in words) for each in said)

        return is_said

    def is_quiet(status: dict[str, Any]) -> bool:
        lost = ("reports: ", "bucket: ", "spot warnings: ", "credentials: ", "commands: ")
        return not status["fault"] and not any(note.startswith(lost) for note in status["notes"])

    site.until(is_quiet)
    sqs, s3 = site.client("sqs"), site.client("s3")
    urls = {url.rpartition("/")[2]: url for url in sqs.list_queues()["QueueUrls"]}
    for name, net in (("boa-lab-reports", "reports: "), ("boa-lab-warnings", "spot warnings: ")):
        sqs.delete_queue(QueueUrl=urls[name])
        site.until(says(net, "aws sqs create-queue"))
        sqs.create_queue(QueueName=name)
        site.until(is_quiet)

    (bucket,) = (each["Name"] for each in s3.list_buckets()["Buckets"])
    for row in s3.list_objects_v2(Bucket=bucket).get("Contents", ()):
        s3.delete_object(Bucket=bucket, Key=row["Key"])
    s3.delete_bucket(Bucket=bucket)
    site.until(says("bucket: ", "aws s3 mb"))
    s3.create_bucket(Bucket=bucket)
    site.until(is_quiet)

    site.fake.expired = frozenset({"AKIAFIRST"})
    site.until(says("ExpiredToken", "Renew the credentials"))
    site.keys("AKIASECOND")
    site.until(is_quiet)

    (site.folder / "hurry").touch()
    site.until(lambda status: status["running"] == 0 and status["nodes"] == 0)
    assert "finished" in site.boa("jobs", "--all").stdout
    assert len(site.fake.history()) == 1
    assert site.fake.live() == []
