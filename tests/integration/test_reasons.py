"""`explain`, `status` and the log tell within a minute why a node does not become usable.

One test for each thing that goes wrong in a first hour on AWS. The cloud is the fake one with nodes that run
scripts, on a clock of the test. Settings, calls and the scripts on the node are those of a real site.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest

from boa_daemon.daemon.loop.assembly import open_daemon
from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.engines.ssm_scripts import bundle
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_nodes import FakeNodes
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import mocked

START, TICK = 1_800_057_600.0, 10.0
BOOT_SECONDS = 20.0
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running."
)
FORBIDDEN = "fatal error: An error occurred (403) when calling the HeadObject operation: Forbidden"
NO_SPACE = "tar: boa_daemon/job/keeper.py: Cannot write: No space left on device"


@dataclass
class Stage:
    """What a cause may change before the daemon starts: the fake cloud, the tools on nodes, the settings."""

    fake: FakeCloud
    shims: Path
    cloud: dict[str, Any] = field(default_factory=dict)

    def tool(self, name: str, says: str, code: int | str) -> None:
        """Let a tool on nodes print this text and fail."""
        (self.shims / name).write_text(f'#!/bin/bash\necho "{says}" >&2\nexit {code}\n')
        (self.shims / name).chmod(0o755)


def no_agent(stage: Stage) -> None:
    assert stage.fake.nodes is not None
    stage.fake.nodes.agent_seconds = 1e9


def no_profile(stage: Stage) -> None:
    stage.cloud["instance_profile"] = "boa-forgotten"


def wrong_image(stage: Stage) -> None:
    stage.cloud["image"] = "ami-0123456789abcdef0"


def image_without_tools(stage: Stage) -> None:
    stage.tool("python3", "python3: command not found", 127)


def no_driver(stage: Stage) -> None:
    stage.tool("nvidia-smi", NO_DRIVER, 9)


def no_bucket(stage: Stage) -> None:
    stage.tool("aws", FORBIDDEN, 1)


def disk_full(stage: Stage) -> None:
    stage.tool("tar", NO_SPACE, 2)


def no_efa(stage: Stage) -> None:
    # No subnet is named: the zone's default subnet gives room for one card.
    stage.cloud |= {"instance_types": ["g5.8xlarge"]}


def no_quota(stage: Stage) -> None:
    stage.fake.terms.vcpu_quotas["L-DB2E81BA"] = 0


def no_capacity(stage: Stage) -> None:
    stage.fake.terms.stock["g5.xlarge", "us-east-1a", "on-demand"] = 0


def no_route(stage: Stage) -> None:
    ec2 = boto3.client("ec2", region_name="us-east-1")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24", AvailabilityZone="us-east-1a")["Subnet"]
    stage.cloud["subnets"] = [subnet["SubnetId"]]


CAUSES: dict[Callable[[Stage], None], str] = {
    no_agent: "its agent is not online",
    no_profile: "boa-forgotten",
    wrong_image: "ami-0123456789abcdef0",
    image_without_tools: "python3: command not found",
    no_driver: "couldn't communicate with the NVIDIA driver",
    no_bucket: "(403) when calling the HeadObject operation: Forbidden",
    disk_full: "No space left on device",
    no_efa: "0 of 1 EFA cards are there",
    no_quota: "quota",
    no_capacity: "no capacity of g5.xlarge in us-east-1a",
    no_route: "it routes to no gateway",
}
"""What goes wrong, and the words that have to be read where somebody looks."""


@contextmanager
def a_site(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cause: Callable[[Stage], None]
) -> Iterator[tuple[Daemon, ManualClock, FakeCloud]]:
    """Yield a daemon whose first node will not become usable, its clock and the fake AWS."""
    clock = ManualClock(START)
    fake = FakeCloud(clock.now, Terms(boot_seconds=BOOT_SECONDS, vcpu_quotas={"L-DB2E81BA": 64}))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mocked(fake):
        nodes = FakeNodes(
            folder / "nodes", environment={"BOA_INFINIBAND": str(folder / "none")}, agent_seconds=5.0
        )
        fake.nodes = nodes
        sqs = boto3.client("sqs", region_name="us-east-1")
        url = sqs.create_queue(QueueName="reports")["QueueUrl"]
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="boa")
        boto3.client("iam").create_instance_profile(InstanceProfileName="boa-node")
        stage = Stage(fake, folder / "nodes" / "shims")
        # The fake S3 is in this process, which scripts of nodes cannot reach: they copy a file.
        (folder / "bundle").write_bytes(bundle()[1])
        stage.tool("aws", "", f'$(cp {folder / "bundle"} "$4"; echo $?)')
        cause(stage)
        settings = Settings.model_validate(
            {
                "cloud": {
                    "provider": "aws",
                    "instance_types": ["g5.xlarge"],
                    "zones": ["us-east-1a"],
                    "instance_profile": "boa-node",
                    **stage.cloud,
                },
                "engine": {"name": "ssm", "queue_url": url, "uri": "s3://boa/jobs"},
                "budget": {"usd_per_hour": 20.0, "usd_per_day_cap": 600.0, "max_instances": 1},
                "daemon": {"state_dir": str(folder / "state"), "tick_seconds": TICK},
            }
        )
        daemon = open_daemon(settings, clock=clock)
        daemon.start()
        try:
            yield daemon, clock, fake
        finally:
            daemon.close()
            nodes.close()


def settle(daemon: Daemon, fake: FakeCloud) -> None:
    """Wait until the scripts on nodes have ended; they run in real time, not on the test's clock."""
    deadline = time.monotonic() + 120.0
    assert fake.nodes is not None
    # A thread sends each script, because a tick does not wait for SSM.
    starts = daemon.world.runner.starts  # type: ignore[attr-defined]
    while not all(asked.done() for asked in list(starts._asked.values())) or any(
        process.poll() is None for process, _ in list(fake.nodes.ssm._running.values())
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.first_set(2)
@pytest.mark.parametrize(
    "cause",
    [
        pytest.param(
            cause, id=cause.__name__, marks=pytest.mark.exhaustive if cause in (no_driver, no_efa) else ()
        )
        for cause in CAUSES
    ],
)
def test_explain_status_and_log_tell_the_reason_within_a_minute(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    cause: Callable[[Stage], None],
) -> None:
    """The minute begins when the node has booted, or would have booted."""
    words = CAUSES[cause]
    with caplog.at_level(logging.INFO), a_site(tmp_path, monkeypatch, cause) as (daemon, clock, fake):
        service = Service(daemon)
        content = {"name": "first", "class": "default", "run": "true", "max_gpus": 1}
        (job,) = service.submit([content], user="me")["jobs"]
        until = clock.instant + BOOT_SECONDS + 60.0
        while clock.instant < until:
            daemon.tick()
            assert not daemon.standing.fault
            clock.instant += TICK
            settle(daemon, fake)
        places = {
            "status": str(service.status()),
            "explain": service.explain(job)["text"],
            "log": "\n".join(record.getMessage() for record in caplog.records),
        }

    assert [place for place, text in places.items() if words not in text] == [], places


def test_the_daemon_does_not_start_without_an_instance_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes without a profile could never be reached."""

    def none(stage: Stage) -> None:
        stage.cloud["instance_profile"] = ""

    with pytest.raises(InputError, match="instance_profile"), a_site(tmp_path, monkeypatch, none):
        pass
