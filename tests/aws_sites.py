"""A site on the fake AWS: a server, roles with the generated policies, nodes that run scripts, a daemon."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import boto3
import pytest
from request_shapes import RequestShapes, request_shapes

from boa_daemon.backends.aws.rights.policy import node_policy, policy
from boa_daemon.backends.aws.stack.settings import StackSettings, stack_settings_of
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.daemon.loop import assembly
from boa_daemon.daemon.loop.assembly import open_daemon
from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.engines.ssm import SsmSettings
from boa_daemon.testing.fake_checks import ACCOUNT
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_iam import Principal
from boa_daemon.testing.fake_nodes import FakeNodes
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import FakeServer

DAEMON_KEY, NODE_KEY = "AKIADAEMON", "AKIANODE"
TRAINER = """
import json, pathlib, sys, time
from boa_daemon import job
hurry, done = pathlib.Path(sys.argv[1]), []
state = {
    "load": lambda file: done.extend(json.loads(file.read_text())),
    "save": lambda out: out.write(json.dumps(done).encode()),
}
with job.ranks() as ranks:
    for step in job.steps(2000, every=20, agree=ranks.agree, **state):
        ranks.gather(b"x")
        done.append(step)
        time.sleep(0.0 if hurry.exists() else 0.1)
        if ranks.rank == 0:
            print(f"step {step + 1} on {ranks.width} workers, {len(done)} done", flush=True)
        job.report(step + 1)
"""
"""Takes its time until a file is there, however slow the machine is that the test runs on."""
SETTINGS = """
[budget]
usd_per_hour = 20.0
usd_per_day_cap = 600.0
max_instances = 4
[cloud]
provider = "aws"
cluster = "lab"
region = "us-east-1"
instance_types = ["g5.xlarge"]
zones = ["us-east-1a"]
market = "{market}"
instance_profile = "{profile}"
queue_url = "{warnings}"
lease_minutes = 2
warm_pool_nodes = {pool}
pool_end_role = "{pool_end}"
[engine]
name = "ssm"
queue_url = "{reports}"
uri = "{uri}"
[workload]
classes = "classes.yaml"
policy = "boa"
[daemon]
state_dir = "state"
idle_hold_seconds = 1
[steady]
minimum_hold_seconds = 0
moves_per_hour_of_a_job = 50
"""
CLASSES = """
gpu_types:
  a10g: {{instance_type: g5.xlarge}}
classes:
  - name: real
    arrivals_per_hour: 0.1
    phases: [{{size_gpu_hours: 1.0, speedup: {{a10g: {{table: {{{width}: {width}.0}}}}}}}}]
"""


@dataclass
class AwsSite:
    """A folder with settings, the fake AWS, and the daemon in this process."""

    folder: Path
    fake: FakeCloud
    nodes: FakeNodes
    url: str
    shapes: RequestShapes
    queues: Mapping[str, str]
    roles: Mapping[str, Principal]
    daemon: Daemon | None = None
    said: list[str] = field(default_factory=list)

    def give(self, width: int) -> None:
        """Set the width of the class."""
        (self.folder / "classes.yaml").write_text(CLASSES.format(width=width))
        if self.daemon is not None:
            self.daemon.use(load_settings(self.folder / "boa.toml").settings)

    def up(self) -> Service:
        """Open the daemon with the credentials of the daemon's role."""
        self.daemon = open_daemon(load_settings(self.folder / "boa.toml").settings)
        self.daemon.start()
        return Service(self.daemon)

    def until(self, is_so: Callable[[], bool], seconds: float = 90.0, *, pause: float = 0.1) -> None:
        """Tick until the condition holds."""
        assert self.daemon is not None
        deadline = time.monotonic() + seconds
        while not is_so():
            self.daemon.tick()
            fault = self.daemon.standing.fault
            assert time.monotonic() < deadline, (fault, self.fake.iam.denied, self.why())
            time.sleep(pause)

    def hurry(self) -> None:
        """Let the trainer run without pauses to its end."""
        (self.folder / "hurry").touch()

    def why(self) -> object:
        """Return the state and the actions of the last decision."""
        last = None if self.daemon is None else self.daemon.standing.decision
        return (
            None if last is None else (last.state.cooldowns, last.state.nodes, last.state.jobs, last.actions)
        )

    def submit(self, service: Service) -> str:
        """Submit the trainer, and return its job's name."""
        (self.folder / "train.py").write_text(TRAINER)
        run = f"{sys.executable} -u {self.folder / 'train.py'} {self.folder / 'hurry'}"
        content = {"name": "first", "class": "real", "run": run, "retries": 9}
        (job,) = service.submit([content], user="me")["jobs"]
        return str(job)


@contextmanager
def an_aws_site(
    monkeypatch: pytest.MonkeyPatch,
    *,
    market: str = "on-demand",
    cluster: str = "lab",
    without: str = "",
    warm_pool_nodes: int = 0,
) -> Iterator[AwsSite]:
    """Yield a site; daemon and nodes have their own keys, which allow exactly what `boa iam` prints.

    `without` is the Sid of a statement to leave out of the daemon's policy.
    """
    fake = FakeCloud(
        time.time,
        Terms(
            boot_seconds=1.0,
            shutdown_seconds=0.5,
            vcpu_quotas={"L-DB2E81BA": 64, "L-3819A6DF": 64},
            spot_fraction=0.4,
        ),
    )
    with ExitStack() as stack:
        url = stack.enter_context(FakeServer(fake))
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="boa", ignore_cleanup_errors=True))
        )
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", DAEMON_KEY)
        # With the default heartbeat each reported step would take a quarter of a minute.
        monkeypatch.setattr(assembly, "SsmSettings", partial(SsmSettings, heartbeat_seconds=1.0))
        settings = AwsSettings(
            cluster=cluster,
            instance_types=("g5.xlarge",),
            market=market,  # type: ignore[arg-type]
            warm_pool_nodes=warm_pool_nodes,
        )
        site = stack_settings_of(settings, account=ACCOUNT)
        queues = _made(url, site)
        real = site.settings.model_copy(update={"queue_url": queues["warnings"]})
        uses = type(site.uses)(reports_queue_url=queues["reports"], uri=site.uses.uri)
        allowed = policy(real, uses=uses, account=ACCOUNT)
        allowed["Statement"] = [each for each in allowed["Statement"] if each["Sid"] != without]
        arn = f"arn:aws:iam::{ACCOUNT}:role"
        roles = {
            DAEMON_KEY: Principal(f"{arn}/{site.names.control}", [allowed]),
            NODE_KEY: Principal(f"{arn}/{site.names.node}", [node_policy(real, uses, account=ACCOUNT)]),
        }
        fake.iam.principals.update(roles)
        fake.terms.event_queue = site.names.warnings
        nodes = FakeNodes(
            folder / "nodes",
            environment={
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": NODE_KEY,
                "AWS_SECRET_ACCESS_KEY": "testing",
                "AWS_DEFAULT_REGION": "us-east-1",
            },
            agent_seconds=0.5,
        )
        fake.nodes = nodes
        stack.callback(nodes.close)
        (folder / "boa.toml").write_text(
            SETTINGS.format(
                market=market, pool=warm_pool_nodes, pool_end=real.pool_end_role,
                profile=site.names.node, warnings=queues["warnings"],
                reports=queues["reports"], uri=site.uses.uri,
            )
        )  # fmt: skip
        shapes = stack.enter_context(request_shapes())
        monkeypatch.chdir(folder)
        made = AwsSite(folder, fake, nodes, url, shapes, queues, roles)
        made.give(1)
        yield made
        if made.daemon is not None:
            made.daemon.close()


def _made(url: str, site: StackSettings) -> dict[str, str]:
    """Make queues, bucket and profile as an administrator would."""
    admin = boto3.session.Session("testing", "testing", region_name="us-east-1")
    sqs, s3, iam = (admin.client(name, endpoint_url=url) for name in ("sqs", "s3", "iam"))
    found = {
        "warnings": sqs.create_queue(QueueName=site.names.warnings)["QueueUrl"],
        "reports": sqs.create_queue(QueueName=site.names.reports)["QueueUrl"],
    }
    s3.create_bucket(Bucket=site.uses.uri.removeprefix("s3://").partition("/")[0])
    iam.create_instance_profile(InstanceProfileName=site.names.node)
    for client in (sqs, s3, iam):
        client.close()
    return found
