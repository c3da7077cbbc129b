"""A day of two nodes on moto as it is, without the rules of our own fake AWS."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import boto3
import pytest
from aws_rigs import CATALOG
from engine_bench import until

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing import ManualClock, NoJobs, Wishes
from boa_daemon.tick.decide.controller import Controller, Ports
from boa_daemon.tick.facts.state import Rules
from policies.placement.first_fit import FirstFit

TYPE, TICK_SECONDS = "g5.xlarge", 900.0
DAY_TICKS = int(24 * 3600 / TICK_SECONDS)
IMAGE = "ami-03cf127a"
"""An image that moto has from the start."""


@pytest.fixture
def stock() -> Iterator[str]:
    """Yield the address of moto's own server, in a process without our settings of moto."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MOTO_")}
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)], env=variables,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: answers(url))
        yield url
    finally:
        server.kill()
        server.wait()


def answers(url: str) -> bool:
    """Return whether a server at the address answers."""
    with suppress(OSError), urllib.request.urlopen(f"{url}/moto-api/data.json", timeout=5):
        return True
    return False


@pytest.mark.first_set(1)
@pytest.mark.parametrize("market", ["on-demand", "spot-then-on-demand"])
def test_a_day_with_two_nodes(stock: str, market: str) -> None:
    """moto lacks prices, quotas and topology, and answers such calls with HTML: two nodes run all day."""
    clock, store, said = ManualClock(time.time()), MemoryStore(), list[str]()
    kind, ticking = CATALOG.instance_type(TYPE), itertools.count()
    settings = AwsSettings(
        endpoint=stock,
        instance_types=(TYPE,),
        image=IMAGE,
        market=market,  # type: ignore[arg-type]
    )
    calls = AwsCalls(settings, tries=1, monotonic=lambda: float(next(ticking)))
    cloud = AwsCloud(
        settings, catalog=CATALOG, clock=clock, calls=calls, ledger_id="t", say=said.append,
        sleep=lambda seconds: None,
    )  # fmt: skip
    ports = Ports(clock=clock, cloud=cloud, jobs=NoJobs(), engine=NoJobs(), store=store)  # type: ignore[arg-type]
    rules = Rules(instance_types={kind.gpu_type: kind}, idle_hold_seconds=0.0)
    running = []
    for number in range(DAY_TICKS + 6):
        if number % 4 == 0:
            cloud.refresh()
            assert cloud.sweep() == {}
        wanted = 2 if number < DAY_TICKS else 0
        allocator = Wishes(widths={}, nodes={TYPE: wanted})
        Controller(allocator=allocator, placer=FirstFit(), rules=rules, ports=ports).run_once()
        nodes = [node for node in cloud.nodes() if node.ended_at is None]
        cloud.renew([node.id for node in nodes])
        running.append(len(nodes))
        clock.instant += TICK_SECONDS

    ec2 = boto3.client("ec2", region_name="us-east-1", endpoint_url=stock)
    rows = [each for one in ec2.describe_instances()["Reservations"] for each in one["Instances"]]
    assert running[1:DAY_TICKS] == [2] * (DAY_TICKS - 1), (said[:6], cloud.offers(), calls.counts)
    assert [each["State"]["Name"] for each in rows] == ["terminated"] * 2
    assert len(store.charges) == 2
    assert store.unsettled() == []
    # What moto cannot answer is asked now and then, not each tick.
    assert calls.counts["ec2:DescribeInstanceTopology"] < DAY_TICKS / 2
    assert [each for each in said if "Traceback" in each] == []
