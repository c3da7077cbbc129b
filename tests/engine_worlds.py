"""The engines that the contract suite runs against; each world makes engine objects."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from slurm_cluster import slurm_cluster, why_no_slurm

from boa_daemon.engines.local import LocalEngine
from boa_daemon.engines.slurm import SlurmEngine
from boa_daemon.engines.ssm import SsmEngine, SsmSettings
from boa_daemon.slurm.commands import Slurm
from boa_daemon.testing.fake_ssm import FakeSsm
from boa_daemon.tick.facts.ports import JobGate, Runner

World: TypeAlias = Callable[[Path], AbstractContextManager[Callable[..., Runner]]]


@contextmanager
def local_world(root: Path) -> Iterator[Callable[..., Runner]]:
    """Yield a maker of engines that run processes of this machine."""
    yield lambda gate=None: LocalEngine(root, gate=gate)


@functools.cache
def _session() -> Any:
    """Return one session for all worlds, so that the descriptions of services are read once."""
    import boto3

    return boto3.session.Session("test", "test", region_name="us-east-1")


@contextmanager
def ssm_world(
    root: Path, *, own_user: bool = False, node_environment: Mapping[str, str] | None = None
) -> Iterator[Callable[..., SsmEngine]]:
    """Yield a maker of SSM engines: scripts run here, and moto serves S3 and SQS on the loopback."""
    from moto.moto_api._internal import moto_api_backend
    from moto.server import ThreadedMotoServer

    # Delete what an earlier test of this process left in the bucket.
    moto_api_backend.reset()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        environment = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            **(node_environment or {}),
        }
        sqs, s3 = (
            _session().client(name, endpoint_url=environment["AWS_ENDPOINT_URL"]) for name in ("sqs", "s3")
        )
        queue_url = sqs.create_queue(QueueName="boa")["QueueUrl"]
        s3.create_bucket(Bucket="boa")
        # A job that runs as another user must be able to reach the interpreter.
        python = "/usr/bin/python3" if own_user and os.geteuid() == 0 else sys.executable
        fake = FakeSsm(root / "nodes", environment=environment, users=own_user, python=python)
        settings = SsmSettings(
            queue_url=queue_url,
            uri="s3://boa/jobs",
            state_file=root / "state" / "ssm.json",
            root=f"{root}/nodes/{{node}}/boa",
            # Each beat of a node starts five processes.
            heartbeat_seconds=2.0,
            silent_seconds=20.0,
            own_user=own_user,
            # A node that answers late on a busy machine must not count as lost.
            probe_seconds=8.0,
            # Parallel tests share the loopback: jobs of the same name must not use the same port,
            # a port of Ray's workers (10002 to 19999) or an ephemeral port of the kernel.
            rendezvous_port=20_000 + os.getpid() * 37 % 9_700,
        )

        def make(gate: JobGate | None = None) -> SsmEngine:
            engine = SsmEngine(fake, sqs, s3, settings, address_of=lambda _node: "127.0.0.1", gate=gate)
            engine.fake, engine.s3, engine.sqs = fake, s3, sqs  # type: ignore[attr-defined]
            return engine

        yield make
        fake.close()
        for client in (sqs, s3):
            client.close()
    finally:
        server.stop()


@contextmanager
def ray_world(root: Path) -> Iterator[Callable[..., Runner]]:
    """Yield a maker of engines on a real Ray cluster of a head and two nodes; it takes seconds to start."""
    import ray
    import ray.cluster_utils

    from boa_daemon.engines.ray import RayEngine

    cluster = ray.cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    for name in ("n1", "n2"):
        cluster.add_node(num_cpus=2, num_gpus=4, resources={f"boa_node_{name}": 1})
    try:
        yield lambda gate=None: RayEngine(root, address=cluster.address, gate=gate)
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def slurm_world(root: Path) -> Iterator[Callable[..., Runner]]:
    """Yield a maker of engines on a real Slurm with four nodes."""
    why = why_no_slurm()
    if why:
        pytest.skip(why)
    with slurm_cluster() as cluster:
        slurm = lambda: Slurm(environment=cluster.environment)  # noqa: E731
        yield lambda gate=None: SlurmEngine(root, slurm=slurm(), gate=gate)


ENGINES: Mapping[str, World] = {"local": local_world, "ssm": ssm_world, "slurm": slurm_world}
