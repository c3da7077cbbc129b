"""Growth of a site: tick, submission, list, cost and database with many ended jobs and many nodes.

    python benchmarks/growth.py                      10,000 and 100,000 jobs that are over, 100 and 400 nodes
    python benchmarks/growth.py --jobs 1000000       a month of a million jobs, about ten minutes
    python benchmarks/growth.py --nodes 1250         10,000 GPUs

The store (SQLite, WAL, synchronous=FULL), the loop and the service are real and run in one process; nodes and
jobs are simulated. Ended jobs are inserted as rows like those of the queue, because submitting a million jobs
takes an hour. The last line of each part extrapolates linear figures from the two largest sizes, and says so.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from boa_daemon.backends.simulated import FileCloud, SimulatedLimits
from boa_daemon.daemon.loop.assembly import open_storage
from boa_daemon.daemon.loop.components import World
from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.loop.pruning import prune
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.sim.simulated_runner import SimulatedRunner
from boa_daemon.store.job_rows import row_of
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import JobRecord
from boa_daemon.store.storage import Storage
from boa_daemon.store.tables import GENERATIONS, JOBS
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import job_content

NOW, DAY = 1_800_000_000.0, 86_400.0
BATCH, TIMES = 5000, 7


def settings_of(nodes: int) -> Settings:
    """Return the settings of a site with this many nodes of eight GPUs, and two teams."""
    return Settings.model_validate(
        {
            "budget": {"usd_per_hour": 40.0 * nodes, "max_instances": nodes, "usd_per_day_cap": 1e9},
            "cloud": {"boot_seconds": 0.0, "instance_types": ["p4d.24xlarge"]},
            "workload": {"policy": "boa"},
            "steady": {"moves_per_hour": 1_000_000},
            "teams": {
                "red": {"members": ["ann"], "usd_per_day_cap": 1e8, "share": 1.0},
                "blue": {"members": ["bob"], "usd_per_month_cap": 1e9, "share": 1.0},
            },
        }
    )


def write_ended(queue: JobQueue, first: int, count: int) -> None:
    """Insert jobs that ended within the last month, with one start each."""
    for begin in range(first, first + count, BATCH):
        numbers = range(begin, min(begin + BATCH, first + count))
        jobs, starts = [], []
        for number in numbers:
            ended = NOW - 30.0 * DAY * (1.0 - (number - first) / count)
            user = "ann" if number % 2 else "bob"
            record = JobRecord(
                id=f"old-{number}",
                seq=number,
                user=user,
                class_name="default",
                content={
                    **job_content("old"),
                    "stop_grace_seconds": 60.0,
                    "team": "red" if number % 2 else "blue",
                },
                arrived_at=ended - 7200.0,
                remaining_gpu_hours=0.0,
                size_gpu_hours=1.0,
                status="finished",
                generation=1,
                ended_at=ended,
            )
            jobs.append(row_of(record))
            starts.append(
                {
                    "job": record.id,
                    "generation": 1,
                    "gpu_type": "a100",
                    "gpus": 1,
                    "slots": "[]",
                    "end": "finished",
                    "started_at": ended - 3600.0,
                    "ended_at": ended,
                    "micro_dollars": 4_000_000,
                }
            )
        with queue.database.write() as connection:
            connection.execute(insert(JOBS), jobs)
            connection.execute(insert(GENERATIONS), starts)


def timed(do: Callable[[], Any], times: int = TIMES) -> float:
    """Return the median milliseconds of some calls."""
    took = []
    for _ in range(times):
        begin = time.perf_counter()
        do()
        took.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(took)


def one_tick(daemon: Daemon, clock: ManualClock) -> None:
    """Advance the clock by half a minute, and tick."""
    clock.instant += 30.0
    daemon.tick()


def open_site(folder: Path, clock: ManualClock, nodes: int) -> tuple[Daemon, Storage, Service]:
    """Return a daemon in a folder; its nodes are ready at once."""
    settings = settings_of(nodes)
    cloud = FileCloud(folder / "cloud.sqlite", clock, limits=SimulatedLimits(boot_seconds=0.0, stock=nodes))
    runner = SimulatedRunner(clock, speed=lambda _name, width: float(width.gpus))
    storage = open_storage(sqlite_url(folder / "boa.sqlite"))
    daemon = Daemon(settings, World(clock=clock, cloud=cloud, runner=runner), storage)
    daemon.start()
    return daemon, storage, Service(daemon)


def by_jobs(counts: list[int]) -> list[dict[str, float]]:
    """Measure with growing numbers of ended jobs, and a few running ones."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        clock = ManualClock(NOW)
        daemon, storage, service = open_site(Path(name), clock, 4)
        service.submit([job_content(hours=500.0) for _ in range(20)], user="ann")
        for _ in range(3):
            clock.instant += 30.0
            daemon.tick()
        there = 1000
        for count in counts:
            write_ended(storage.queue, there, count - (there - 1000))
            there = 1000 + count

            middle = there - count // 2
            rows.append(
                {
                    "jobs": count,
                    "tick ms": timed(partial(one_tick, daemon, clock)),
                    "submit ms": timed(lambda: service.submit([job_content()], user="cyd"), 3),
                    "list ms": timed(lambda: service.jobs(limit=50)),
                    "page ms": timed(lambda at=middle: service.jobs(limit=50, before=at, team="red")),
                    "cost ms": timed(lambda: service.cost(by="team", since=NOW - DAY), 3),
                    "MB": (Path(name) / "boa.sqlite").stat().st_size / 1e6,
                }
            )
        begin = time.perf_counter()
        gone = prune(storage, daemon.world.runner, keep_days=32.0, now=NOW + 22.0 * DAY)
        print(f"pruning: {gone:,} jobs in {time.perf_counter() - begin:.1f} s")
        daemon.close()
    return rows


def by_nodes(counts: list[int]) -> list[dict[str, float]]:
    """Measure with growing numbers of nodes of eight GPUs, one job on each GPU."""
    rows = []
    for nodes in counts:
        with tempfile.TemporaryDirectory() as name:
            clock = ManualClock(NOW)
            daemon, _, service = open_site(Path(name), clock, nodes)
            service.submit([job_content(hours=500.0) for _ in range(8 * nodes)], user="ann")
            for _ in range(10):
                clock.instant += 30.0
                daemon.tick()
            picture = daemon.standing.picture

            running = 0 if picture is None else picture.running
            rows.append(
                {
                    "nodes": nodes,
                    "GPUs": 8 * nodes,
                    "running": running,
                    "tick ms": timed(partial(one_tick, daemon, clock), 3),
                }
            )
            daemon.close()
    return rows


def show(rows: list[dict[str, float]]) -> None:
    """Print a table."""
    print(" | ".join(f"{name:>10}" for name in rows[0]))
    for row in rows:
        print(" | ".join(f"{value:>10,.1f}" if value % 1 else f"{value:>10,.0f}" for value in row.values()))


def extrapolated(rows: list[dict[str, float]], by: str, at: float) -> None:
    """Print the line through the two largest sizes at a larger size."""
    if len(rows) < 2 or rows[-1][by] >= at:
        return
    low, high = rows[-2], rows[-1]
    part = (at - high[by]) / (high[by] - low[by])
    said = {name: high[name] + max(high[name] - low[name], 0.0) * part for name in high if name != by}
    print(
        f"extrapolated, not measured: {by} {at:,.0f}: " + ", ".join(f"{n} {v:,.0f}" for n, v in said.items())
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 400])
    given = parser.parse_args()
    jobs = by_jobs(given.jobs)
    show(jobs)
    extrapolated(jobs, "jobs", 1e6)
    nodes = by_nodes(given.nodes)
    show(nodes)
    extrapolated(nodes, "nodes", 1250)


if __name__ == "__main__":
    main()
