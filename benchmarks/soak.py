"""Many small jobs while the daemon and keepers are killed: nothing lost, run twice, left behind or growing.

    python benchmarks/soak.py [--jobs 2000] [--kills 40]

A group of jobs, each of which notes that it began and ended; a daemon in a process of its own that is killed
every few seconds and started again; keepers of jobs that run are killed as well. At the end every job has
finished and noted its end, twice only where its keeper was killed in between, and no process is left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from daemon_site import Site  # noqa: E402

from boa_daemon.api.client import Client  # noqa: E402
from boa_daemon.errors import BoaError  # noqa: E402
from boa_daemon.job.processes import carrying  # noqa: E402

SETTINGS = """
[budget]
usd_per_hour = 500.0
usd_per_day_cap = 20000.0
max_instances = 4
[cloud]
boot_seconds = 0.1
[daemon]
state_dir = "state"
tick_seconds = 1
idle_hold_seconds = 60
"""
JOB = "echo begin >> $NOTES/$BOA_INDEX; sleep 0.5; echo end >> $NOTES/$BOA_INDEX"


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """What was found at the end: jobs by status and by how many ends they noted, and what is left."""

    jobs: int
    counts: dict[str, int]
    ends: dict[int, int]
    kills_of_daemon: int
    kills_of_keepers: int
    processes_left: int
    database_bytes: int
    seconds: float


def soak(folder: Path, *, jobs: int, kills: int, seed: int = 0) -> Soaked:
    """Run so many jobs under so many kills, half of the daemon and half of keepers."""
    draw, began = random.Random(seed), time.monotonic()
    notes = folder / "notes"
    notes.mkdir()
    site = Site(folder, SETTINGS)
    site.up()
    killed: Counter[str] = Counter()
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
            if killed.total() < kills:
                killed[_kill(site, draw, killed.total())] += 1
            with suppress(BoaError), Client(site.socket) as boa:
                counts = boa.group(group)["counts"]
                if set(counts) & {"failed", "cancelled"}:
                    break
    finally:
        site.end(signal.SIGTERM)
    ends = Counter(file.read_text().split().count("end") for file in notes.iterdir())
    return Soaked(
        jobs=jobs,
        counts=counts,
        ends=dict(ends),
        kills_of_daemon=killed["daemon"],
        kills_of_keepers=killed["keeper"],
        processes_left=len(carrying(f"NOTES={notes}")),
        database_bytes=sum(file.stat().st_size for file in (folder / "state").glob("boa.sqlite*")),
        seconds=time.monotonic() - began,
    )


def _kill(site: Site, draw: random.Random, number: int) -> str:
    """Kill the daemon and start it again, or a keeper; return which."""
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
    """Soak, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=40)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        print(json.dumps(asdict(soak(Path(name), jobs=asked.jobs, kills=asked.kills)), indent=2))


if __name__ == "__main__":
    main()
