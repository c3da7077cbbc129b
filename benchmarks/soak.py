"""Many small jobs while the daemon and keepers are killed: no job is lost or run twice, nothing grows.

    python benchmarks/soak.py [--jobs 2000 | --minutes 12] [--kills 40] [--nodes 4] [--users 12]
                              [--database postgresql]

A standby takes over whenever the daemon is killed, or stopped as for an upgrade. The daemon reads its
settings again, its log is rotated, and its database server is restarted. It makes a backup every few seconds,
and users read its answers all the time. The script fails if something grows without bound.

Each job notes its begin and its end. The daemon in a process of its own is killed and started again, and
keepers of running jobs are killed; the kills are spread over the first part of the jobs. At the end every job
must have finished and noted its end, twice only if its keeper was killed in between, and no process may be
left. The daemon is measured all the time: growth is printed as rates and at ten points.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from daemon_site import Site, wait_for
from postgres_server import PostgresServer
from sqlalchemy import inspect, text
from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.api.client import Client
from boa_daemon.errors import BoaError
from boa_daemon.job.processes import carrying
from boa_daemon.store.database_setup import open_engine

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
JOBS_PER_MINUTE = 150
"""More than four nodes run."""
MOST = {
    "rss_mb_per_1000_jobs": (15.0, 12.0),
    "open_files_per_1000_jobs": (3.0, 40.0),
    "threads_per_1000_jobs": (3.0, 16.0),
    "files_per_job_second_half": (0.05, 20.0),
    "log_kb_per_job": (2.0, 0.0),
    "wal_mb": (32.0, 0.0),
}
"""Growth that counts as none: as a rate, or in all over the jobs of this run.

Pools of threads and connections fill up first. Rows and files that are kept for each job do not count.
"""
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
    outages: int
    upgrades: int
    reloads: int
    rotations: int
    requests: int
    get_p99_ms: float
    processes_left: int
    database_bytes: int
    seconds: float
    growth: dict[str, float]
    first: Sample | None
    last: Sample | None
    grows: tuple[str, ...]
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


class Pair:
    """A daemon and a standby, which takes its place whenever it ends."""

    def __init__(self, site: Site, *, has_standby: bool) -> None:
        self.site, self._has_standby = site, has_standby
        self._standby: subprocess.Popen[bytes] | None = None
        self.up_at = time.monotonic()

    def up(self) -> None:
        """Start both."""
        self.site.up()
        self._stand_by()

    def replace(self, number: signal.Signals) -> None:
        """End the daemon by a signal; the standby takes over, and another one starts."""
        self.site.end(number)
        if self._standby is None:
            self.site.up()
        else:
            pid, self.site.process = self._standby.pid, self._standby
            wait_for(lambda: (self.site.get("/status").get("leader") or {}).get("pid") == pid, self.site)
        self._stand_by()
        self.up_at = time.monotonic()

    def check(self) -> None:
        """Stop the soak if one of them has ended by itself."""
        for process in (self.site.process, self._standby):
            if process is not None and process.poll() is not None:
                raise SystemExit(f"a daemon ended by itself ({process.returncode}):\n{self.site.log[-6000:]}")

    def end(self) -> None:
        """End both."""
        if self._standby is not None:
            self._standby.kill()
            self._standby.wait(30.0)
        if self.site.process is not None and self.site.process.poll() is None:
            self.site.end(signal.SIGTERM)

    def _stand_by(self) -> None:
        self._standby = self.site.start("--standby") if self._has_standby else None


def soak(
    folder: Path,
    *,
    jobs: int,
    kills: int,
    nodes: int = 4,
    seed: int = 0,
    users: int = 0,
    minutes: float = math.inf,
    server: PostgresServer | None = None,
) -> Soaked:
    """Run this many jobs, or jobs for some minutes, under this many faults: half are kills.

    Without users there is no standby either.
    """
    draw, began = random.Random(seed), time.monotonic()
    notes = folder / "notes"
    notes.mkdir()
    settings = SETTINGS.format(nodes=nodes)
    site = Site(folder, settings if server is None else f'{settings}database = "{server.url}"\n')
    pair = Pair(site, has_standby=users > 0)
    pair.up()
    killed: Counter[str] = Counter()
    samples: list[Sample] = []
    sampled_at = time.monotonic()
    readers = Readers(site, users)
    is_over = False
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
        while not counts or set(counts) & {"queued", "running"}:
            time.sleep(draw.uniform(0.5, 1.5))
            pair.check()
            done = counts.get("finished", 0)
            # The last part of the jobs has no kills, so that growth shows in one life of the daemon.
            part = max(done / jobs, (time.monotonic() - began) / 60.0 / minutes)
            if killed.total() < kills and part * kills >= killed.total() * PART_WITH_KILLS:
                killed[_kill(pair, draw, killed.total(), server)] += 1
            if time.monotonic() - sampled_at >= SAMPLE_SECONDS:
                sampled_at = time.monotonic()
                with suppress(OSError, SQLAlchemyError):
                    life = sampled_at - pair.up_at
                    samples.append(_sample(site, server, life_seconds=life, jobs_done=done))
            with suppress(BoaError), Client(site.socket) as boa:
                if part >= 1.0 and not is_over and minutes < math.inf:
                    boa.post(f"/groups/{group}/cancel", {})
                    is_over = True
                counts = boa.group(group)["counts"]
                if "failed" in counts:
                    break
    finally:
        readers.stop()
        pair.end()
    ends = Counter(file.read_text().split().count("end") for file in notes.iterdir())
    growth = growth_of(samples)
    return Soaked(
        jobs=jobs,
        counts=counts,
        ends=dict(ends),
        kills_of_daemon=killed["daemon"],
        kills_of_keepers=killed["keeper"],
        outages=killed["outage"],
        upgrades=killed["upgrade"],
        reloads=killed["reload"],
        rotations=killed["rotation"],
        requests=len(readers.seconds),
        get_p99_ms=1000.0 * readers.p99,
        processes_left=len(carrying(f"NOTES={notes}")),
        database_bytes=sum(file.stat().st_size for file in (folder / "state").glob("boa.sqlite*")),
        seconds=time.monotonic() - began,
        growth=growth,
        first=samples[0] if samples else None,
        last=samples[-1] if samples else None,
        grows=tuple(
            f"{name} is {growth[name]:g}, and at most {rate:g} is expected"
            for name, (rate, most) in MOST.items()
            if growth.get(name, 0.0) > rate
            and growth[name] * samples[-1].jobs_done > most * (1000.0 if "_1000_" in name else 1.0)
        ),
        points=tuple(samples[:: max(len(samples) // POINTS, 1)]),
    )


def _sample(site: Site, server: PostgresServer | None, *, life_seconds: float, jobs_done: int) -> Sample:
    """Measure the daemon and its files and database."""
    assert site.process is not None
    process, state = Path(f"/proc/{site.process.pid}"), site.folder / "state"
    words = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    engine = open_engine(f"sqlite:///{state / 'boa.sqlite'}" if server is None else server.url)
    try:
        with engine.connect() as database:
            names = inspect(database).get_table_names()
            rows = {name: int(database.scalar(text(f'select count(*) from "{name}"'))) for name in names}
            size = sum(file.stat().st_size for file in state.glob("boa.sqlite*"))
            if server is not None:
                size = int(database.scalar(text("select pg_database_size(current_database())")))
    finally:
        engine.dispose()
    jobs, mb_of_jobs = _weigh(state / "jobs")
    return Sample(
        pid=site.process.pid,
        life_seconds=life_seconds,
        jobs_done=jobs_done,
        rss_mb=int(words["VmRSS"].split()[0]) / 1024.0,
        open_files=len(os.listdir(process / "fd")),
        threads=int(words["Threads"]),
        # The notes are of the soak's own jobs.
        files=_weigh(site.folder)[0] - jobs - _weigh(site.folder / "notes")[0],
        files_of_jobs=jobs,
        mb_of_jobs=mb_of_jobs,
        database_mb=size / 1e6,
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
    logs = [one.log_mb for one in samples]
    # A log that was rotated is smaller than before.
    grown = sum(max(after - before, 0.0) for before, after in pairwise(logs))
    found["log_kb_per_job"] = 1000.0 * grown / max(samples[-1].jobs_done, 1)
    found["wal_mb"] = max(one.wal_mb for one in samples)
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


def _kill(pair: Pair, draw: random.Random, number: int, server: PostgresServer | None) -> str:
    """Kill the daemon or a keeper, or do what an administrator does; return which."""
    site = pair.site
    assert site.process is not None
    if number % 8 == 2:
        pair.replace(signal.SIGTERM)
        return "upgrade"
    if number % 8 == 4:
        site.process.send_signal(signal.SIGHUP)
        return "reload"
    if number % 8 == 5 and server is not None:
        server.stop()
        time.sleep(2.0)
        server.start()
        return "outage"
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
    pair.replace(signal.SIGKILL)
    return "daemon"


def main() -> None:
    """Run the soak, and print its result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=math.inf, help="in place of --jobs")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--nodes", type=int, default=4, help="nodes; each runs one job at a time")
    parser.add_argument("--users", type=int, default=12, help="users who read all the time")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    asked = parser.parse_args()
    jobs = asked.jobs if asked.minutes == math.inf else int(JOBS_PER_MINUTE * asked.minutes)
    with tempfile.TemporaryDirectory(prefix="boa") as name, ExitStack() as stack:
        server = stack.enter_context(PostgresServer()) if asked.database == "postgresql" else None
        found = soak(
            Path(name),
            jobs=jobs,
            kills=asked.kills,
            nodes=asked.nodes,
            users=asked.users,
            minutes=asked.minutes,
            server=server,
        )
    print(json.dumps(asdict(found), indent=2))
    finished = found.counts.get("finished", 0)
    ended = sum(count for ends, count in found.ends.items() if ends)
    wrong = [
        *found.grows,
        *([f"{found.processes_left} processes are left"] if found.processes_left else []),
        *([f"{finished} jobs finished, and {ended} noted an end"] if ended < finished else []),
    ]
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
