"""Calls per tick on AWS, and the time that an intent takes to settle when calls fail.

    python benchmarks/cloud.py            about three minutes; --quick: half a minute

Calls are counted by `AwsCalls.counts` over ticks that change nothing, on the fake cloud in process. The
baseline is a program that describes instances one by one by id, as several autoscalers did; its calls are
counted, not timed. Times to settle are seconds on the fake cloud's clock with ticks every 30 s, from the
intent to the tick in which all of its nodes are listed or it is given up.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections import Counter
from dataclasses import replace
from math import ceil

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing import ManualClock, Wishes, a_job
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import FAKE_CREDENTIALS, mocked
from boa_daemon.tick.decide.controller import Controller, Ports
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.ports import Launched
from boa_daemon.tick.facts.state import Claim, JobState, Rules, UserMoney
from boa_daemon.tick.facts.team_money import TeamMoney
from policies.placement.first_fit import FirstFit

TYPE, TICK_SECONDS = "g5.xlarge", 30.0
CATALOG = Catalog.load()


class Jobs:
    """Jobs that all wait; it also stands for the engine, which is never called."""

    def __init__(self, count: int) -> None:
        self._jobs = {f"j{number}": JobState(job=replace(a_job(f"j{number}"))) for number in range(count)}

    def jobs(self) -> dict[str, JobState]:
        """Return the jobs."""
        return self._jobs

    def users(self) -> dict[str, UserMoney]:
        """Return none."""
        return {}

    def teams(self) -> dict[str, TeamMoney]:
        """Return none."""
        return {}

    def claims(self) -> dict[str, Claim]:
        """Return none."""
        return {}


def a_cloud(fake: FakeCloud, clock: ManualClock) -> AwsCloud:
    """Return the backend without waits for its own rate limits."""
    settings = AwsSettings(instance_types=(TYPE,))
    ticking = iter(range(10**9))
    calls = AwsCalls(settings, tries=1, monotonic=lambda: float(next(ticking)))
    return AwsCloud(settings, catalog=CATALOG, clock=clock, calls=calls, sleep=lambda seconds: None)


def calls_per_tick(instances: int, jobs: int, ticks: int) -> tuple[float, float]:
    """Return the calls and the median seconds of a tick with this many instances and waiting jobs."""
    clock = ManualClock(1_800_000_000.0)
    fake = FakeCloud(clock.now)
    with mocked(fake):
        cloud = a_cloud(fake, clock)
        kind = CATALOG.instance_type(TYPE)
        offer = next((each for each in cloud.offers()), None)
        for number in range(ceil(instances / 500)):
            count = min(500, instances - 500 * number)
            cloud.launch(
                LaunchNodes(id=f"l{number}", instance_type=kind, count=count, offer=offer, reason="benchmark")
            )
        controller = Controller(
            allocator=Wishes(widths={}, nodes={TYPE: instances}),
            placer=FirstFit(),
            rules=Rules(instance_types={kind.gpu_type: kind}, idle_hold_seconds=1e9),
            ports=Ports(clock=clock, cloud=cloud, jobs=Jobs(jobs), engine=Jobs(0), store=MemoryStore()),  # type: ignore[arg-type]
        )
        controller.run_once()
        counts, seconds = [], []
        for _ in range(ticks):
            clock.instant += TICK_SECONDS
            before, began = sum(cloud.calls.counts.values()), time.perf_counter()
            controller.run_once()
            seconds.append(time.perf_counter() - began)
            counts.append(sum(cloud.calls.counts.values()) - before)
    return statistics.median(counts), statistics.median(seconds)


def calls_of_hours(instances: int, ticks: int) -> Counter[str]:
    """Return the calls by operation of ticks that change nothing, with those beside the ticks.

    Facts are refreshed and leases renewed as the daemon does.
    """
    clock = ManualClock(1_800_000_000.0)
    fake = FakeCloud(clock.now, Terms(list_prices={TYPE: 1.006}))
    with mocked(fake):
        cloud = a_cloud(fake, clock)
        cloud.refresh()
        offer = next(each for each in cloud.offers())
        kind = CATALOG.instance_type(TYPE)
        said = cloud.launch(
            LaunchNodes(id="l0", instance_type=kind, count=instances, offer=offer, reason="benchmark")
        )
        assert isinstance(said, Launched), said
        cloud.nodes()
        cloud.calls.counts.clear()
        for _ in range(ticks):
            clock.instant += TICK_SECONDS
            names = [node.id for node in cloud.nodes() if node.ended_at is None]
            cloud.renew(names)
            cloud.offers()
            cloud.refresh()
        assert len(names) == instances
        return cloud.calls.counts


def settling(fault: str, share: float, runs: int) -> list[float]:
    """Return the seconds from an intent until it settles when a share of the launches fails in one way."""
    draw, found = random.Random(7), []
    clock = ManualClock(1_800_000_000.0)
    fake = FakeCloud(clock.now, Terms(boot_seconds=60.0, invisible_seconds=5.0))
    with mocked(fake):
        cloud = a_cloud(fake, clock)
        kind, store = CATALOG.instance_type(TYPE), MemoryStore()
        for run in range(runs):
            if fault and draw.random() < share:
                fake.faults.plan("RunInstances", fault, times=3 if "Internal" in fault else 1)
            began = clock.now()
            has_been_asked = False
            while not has_been_asked or store.unsettled() or not live(cloud, began):
                controller = Controller(
                    allocator=Wishes(widths={}, nodes={TYPE: run + 1}),
                    placer=FirstFit(),
                    rules=Rules(instance_types={kind.gpu_type: kind}, idle_hold_seconds=1e9),
                    ports=Ports(clock=clock, cloud=cloud, jobs=Jobs(0), engine=Jobs(0), store=store),  # type: ignore[arg-type]
                )
                controller.run_once()
                has_been_asked = True
                clock.instant += TICK_SECONDS
            found.append(clock.now() - began - TICK_SECONDS)
    return found


def live(cloud: AwsCloud, since: float) -> bool:
    """Return whether a node that was launched since an instant is listed."""
    return any(node.launched_at >= since for node in cloud.nodes() if node.ended_at is None)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    os.environ.update(FAKE_CREDENTIALS)
    print("instances  jobs  calls per tick  one by one  seconds per tick (nearly all are moto's)")
    for instances, jobs in (
        (0, 0),
        (0, 1000),
        (100, 0),
        (100, 1000),
        *(() if quick else ((1000, 0), (1000, 1000))),
    ):
        calls, seconds = calls_per_tick(instances, jobs, 3)
        print(f"{instances:9} {jobs:5} {calls:15.0f} {instances + 1:11} {seconds:12.3f}")
    ticks = 240
    print(f"\ncalls in {ticks} ticks, two hours, of 2 instances, with those beside the ticks")
    for operation, count in sorted(calls_of_hours(2, ticks).items()):
        print(f"{operation:45} {count:5}")
    print("\nfault on the launch                share   median    worst  (seconds to settle, ticks of 30 s)")
    runs = 10 if quick else 30
    for fault, share in (
        ("", 0.0),
        ("lost", 0.5),
        ("error:RequestLimitExceeded", 0.5),
        ("error:InsufficientInstanceCapacity", 0.5),
        ("error:InternalError", 0.5),
    ):
        seconds_of = settling(fault, share, runs)
        print(
            f"{fault or 'none':34} {share:5.0%} {statistics.median(seconds_of):8.0f} {max(seconds_of):8.0f}"
        )


if __name__ == "__main__":
    main()
