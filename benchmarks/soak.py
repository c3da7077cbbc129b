"""Many small jobs while the daemon and keepers are killed: no job is lost or run twice, nothing grows.

    python benchmarks/soak.py [--jobs 2000] [--kills 40] [--nodes 4] [--users 12]

Besides, the daemon is stopped and started again as for an upgrade, reads its settings again, and its log is
rotated. It makes a backup every few seconds, and users read its answers all the time.

Each job notes its begin and its end. The daemon in a process of its own is killed and started again, and
keepers of running jobs are killed; the kills are spread over the first part of the jobs. At the end every job
must have finished and noted its end, twice only if its keeper was killed in between, and no process may be
left. The daemon is measured all the time: growth is printed as rates and at ten points.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from daemon_site import Site

from boa_daemon.api.client import Client
from boa_daemon.errors import BoaError
from boa_daemon.job.processes import carrying

SETTINGS = """
[budget]
usd_per_hour = 500.0
usd_per_day_cap = 20000.0
max_instances = {nodes}
[cloud]
boot_seconds = 0.1
[daemon]
state_dir = "state"
tick_seconds = 1
idle_hold_seconds = 60
backup_seconds = 5
"""
JOB = "echo begin >> $NOTES/$BOA_INDEX; sleep 0.5; echo end >> $NOTES/$BOA_INDEX"


PART_WITH_KILLS = 0.6
SAMPLE_SECONDS, SETTLED_SECONDS, POINTS = 3.0, 20.0, 10
"""Seconds between measurements, seconds at a life's start without growth rates, points that are kept."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The resources of the daemon with this process id after a number of ended jobs."""

    pid: int
    life_seconds: float
    jobs_done: int
    rss_mb: float
    open_files: int
    threads: int
    files: int
    files_of_jobs: int
    mb_of_jobs: float
    database_mb: float
    wal_mb: float
    log_mb: float
    rows: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """The result: jobs by status and by the number of ends that they noted, and everything left over.

    `growth` has rates: memory, files and threads of the daemon per 1,000 jobs within its lives, once it has
    settled; files and rows per job, in the first and in the second half of the jobs. `points` are some of the
    measurements, in order.
    """

    jobs: int
    counts: dict[str, int]
    ends: dict[int, int]
    kills_of_daemon: int
    kills_of_keepers: int
    upgrades: int
    reloads: int
    rotations: int
    requests: int
    get_p99_ms: float
    processes_left: int
    database_bytes: int
    seconds: float
    growth: dict[str, float]
    points: tuple[Sample, ...]


class Readers:
    """Users who read the daemon's answers all the time, and how long they wait for one."""

    def __init__(self, site: Site, count: int) -> None:
        self.seconds: list[float] = []
        self._site, self._over = site, threading.Event()
        self._threads = [threading.Thread(target=self._read, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        while not self._over.wait(0.5):
            for path in ("/status", "/jobs?limit=20", "/instances"):
                began = time.monotonic()
                with suppress(Exception), Client(self._site.socket) as boa:
                    boa.get(path)
                    self.seconds.append(time.monotonic() - began)

    def stop(self) -> None:
        """Let them go."""
        self._over.set()
        for thread in self._threads:
            thread.join(30.0)

    @property
    def p99(self) -> float:
        """The time that one in a hundred answers exceeds, connection included; 0 without answers."""
        ordered = sorted(self.seconds)
        return ordered[int(0.99 * len(ordered))] if ordered else 0.0


def soak(folder: Path, *, jobs: int, kills: int, nodes: int = 4, seed: int = 0, users: int = 0) -> Soaked:
    """Run this many jobs under this many faults: five in eight are kills of the daemon or of keepers."""
    draw, began = random.Random(seed), time.monotonic()
    notes = folder / "notes"
    notes.mkdir()
    site = Site(folder, SETTINGS.format(nodes=nodes))
    site.up()
    killed: Counter[str] = Counter()
    samples: list[Sample] = []
    up_at = sampled_at = time.monotonic()
    readers = Readers(site, users)
    try:
        with Client(site.socket) as boa:
            job = {
                "name": "soak",
                "class": "default",
                "run": JOB,
                "max_gpus": 1,
                "retries": 100,
                "count": jobs,
            }
            first, *_ = boa.submit({**job, "environment": {"NOTES": str(notes)}})
            group = boa.job(first)["group"] or ""
        counts: dict[str, int] = {}
        while set(counts) != {"finished"}:
            time.sleep(draw.uniform(0.5, 1.5))
            done = counts.get("finished", 0)
            # The last part of the jobs has no kills, so that growth shows in one life of the daemon.
            if killed.total() < kills and done * kills >= killed.total() * jobs * PART_WITH_KILLS:
                kind = _kill(site, draw, killed.total())
                killed[kind] += 1
                up_at = time.monotonic() if kind in ("daemon", "upgrade") else up_at
            if time.monotonic() - sampled_at >= SAMPLE_SECONDS:
                sampled_at = time.monotonic()
                with suppress(OSError, sqlite3.Error):
                    samples.append(_sample(site, life_seconds=sampled_at - up_at, jobs_done=done))
            with suppress(BoaError), Client(site.socket) as boa:
                counts = boa.group(group)["counts"]
                if set(counts) & {"failed", "cancelled"}:
                    break
    finally:
        readers.stop()
        site.end(signal.SIGTERM)
    ends = Counter(file.read_text().split().count("end") for file in notes.iterdir())
    return Soaked(
        jobs=jobs,
        counts=counts,
        ends=dict(ends),
        kills_of_daemon=killed["daemon"],
        kills_of_keepers=killed["keeper"],
        upgrades=killed["upgrade"],
        reloads=killed["reload"],
        rotations=killed["rotation"],
        requests=len(readers.seconds),
        get_p99_ms=1000.0 * readers.p99,
        processes_left=len(carrying(f"NOTES={notes}")),
        database_bytes=sum(file.stat().st_size for file in (folder / "state").glob("boa.sqlite*")),
        seconds=time.monotonic() - began,
        growth=growth_of(samples),
        points=tuple(samples[:: max(len(samples) // POINTS, 1)]),
    )


def _sample(site: Site, *, life_seconds: float, jobs_done: int) -> Sample:
    """Measure the daemon and its files and database."""
    assert site.process is not None
    process, state = Path(f"/proc/{site.process.pid}"), site.folder / "state"
    words = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    with closing(sqlite3.connect(f"file:{state / 'boa.sqlite'}?mode=ro", uri=True, timeout=10.0)) as database:
        tables = database.execute("select name from sqlite_master where type = 'table'").fetchall()
        rows = {name: database.execute(f'select count(*) from "{name}"').fetchone()[0] for (name,) in tables}
    jobs, mb_of_jobs = _weigh(state / "jobs")
    return Sample(
        pid=site.process.pid,
        life_seconds=life_seconds,
        jobs_done=jobs_done,
        rss_mb=int(words["VmRSS"].split()[0]) / 1024.0,
        open_files=len(os.listdir(process / "fd")),
        threads=int(words["Threads"]),
        files=_weigh(site.folder)[0] - jobs,
        files_of_jobs=jobs,
        mb_of_jobs=mb_of_jobs,
        database_mb=sum(file.stat().st_size for file in state.glob("boa.sqlite*")) / 1e6,
        wal_mb=_size_mb(state / "boa.sqlite-wal"),
        log_mb=_size_mb(site.folder / "log"),
        rows=rows,
    )


def _size_mb(file: Path) -> float:
    """Return the megabytes of a file; 0 without one."""
    with suppress(FileNotFoundError):
        return file.stat().st_size / 1e6
    return 0.0


def _weigh(folder: Path) -> tuple[int, float]:
    """Return the number and megabytes of files below a folder; files may be deleted meanwhile."""
    count, size = 0, 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.lstat(f"{place}/{name}").st_size
                count += 1
    return count, size / 1e6


def growth_of(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the rates of growth: within lives of the daemon per 1,000 jobs, else by half of the jobs."""
    lives: dict[int, list[Sample]] = {}
    for one in samples:
        if one.life_seconds >= SETTLED_SECONDS:
            lives.setdefault(one.pid, []).append(one)
    of_lives: dict[str, Callable[[Sample], float]] = {
        "rss_mb": lambda one: one.rss_mb,
        "open_files": lambda one: one.open_files,
        "threads": lambda one: one.threads,
    }
    found = {
        f"{name}_per_1000_jobs": 1000.0 * _slope(list(lives.values()), value)
        for name, value in of_lives.items()
    }
    if not samples:
        return found
    middle = samples[-1].jobs_done / 2.0
    halves = {
        "first_half": [one for one in samples if one.jobs_done <= middle],
        "second_half": [one for one in samples if one.jobs_done >= middle],
    }
    for half, part in halves.items():
        found[f"files_per_job_{half}"] = _slope([part], lambda one: one.files)
        found[f"files_of_jobs_per_job_{half}"] = _slope([part], lambda one: one.files_of_jobs)
        found[f"mb_of_jobs_per_1000_jobs_{half}"] = 1000.0 * _slope([part], lambda one: one.mb_of_jobs)
        found[f"database_mb_per_1000_jobs_{half}"] = 1000.0 * _slope([part], lambda one: one.database_mb)
        for table in samples[-1].rows:
            rate = _slope([part], lambda one, table=table: one.rows.get(table, 0))
            if abs(rate) > 1e-3:
                found[f"rows_{table}_per_job_{half}"] = rate
    return {name: round(value, 4) for name, value in found.items()}


def _slope(groups: Sequence[Sequence[Sample]], value: Callable[[Sample], float]) -> float:
    """Return the growth of a value per job, by least squares with a separate level for each group."""
    above = below = 0.0
    for group in groups:
        jobs = [one.jobs_done for one in group]
        values = [value(one) for one in group]
        middle_job, middle_value = sum(jobs) / max(len(jobs), 1), sum(values) / max(len(values), 1)
        above += sum((a - middle_job) * (b - middle_value) for a, b in zip(jobs, values, strict=True))
        below += sum((a - middle_job) ** 2 for a in jobs)
    return above / below if below else 0.0


def _kill(site: Site, draw: random.Random, number: int) -> str:
    """Kill the daemon and start it again, kill a keeper, or do what an administrator does; return which."""
    assert site.process is not None
    if number % 8 == 2:
        site.end(signal.SIGTERM)
        site.up()
        return "upgrade"
    if number % 8 == 4:
        site.process.send_signal(signal.SIGHUP)
        return "reload"
    if number % 8 == 6:
        # As logrotate does with copytruncate.
        os.truncate(site.folder / "log", 0)
        return "rotation"
    keepers = [
        file
        for file in (site.folder / "state" / "jobs").glob("*/g*/n*/keeper.json")
        if not (file.parent / "exit.json").exists()
    ]
    if number % 2 and keepers:
        with suppress(OSError, ValueError):
            os.kill(int(json.loads(draw.choice(keepers).read_text())["pid"]), signal.SIGKILL)
        return "keeper"
    site.end(signal.SIGKILL)
    site.up()
    return "daemon"


def main() -> None:
    """Run the soak, and print its result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--nodes", type=int, default=4, help="nodes; each runs one job at a time")
    parser.add_argument("--users", type=int, default=12, help="users who read all the time")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        found = soak(Path(name), jobs=asked.jobs, kills=asked.kills, nodes=asked.nodes, users=asked.users)
        print(json.dumps(asdict(found), indent=2))


if __name__ == "__main__":
    main()
