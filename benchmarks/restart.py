"""Seconds of a resize, from the order to stop to the first step of the next generation, on this machine.

    python benchmarks/restart.py [--times 4] [--job numpy|ddp|large]

The daemon runs in a process of its own, with jobs as processes. The benchmark edits the width of the class
and lets the daemon read it again, as an operator would. One line for each part: the next start is prepared
while the job goes on; the job stops; the daemon notices and starts the next generation; the generation makes
its first step. GPUs are idle in the last three parts. The rule against flapping would hold back many resizes
within an hour. `large` has a gigabyte of state (`train_large.py`); with RESTART_TRACE=FILE its ranks write
into FILE when they begin, have their state, their peers, and have made a step.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from daemon_site import Site, wait_for

from boa_daemon.api.client import Client
from boa_daemon.engines.layout import OWN, Layout
from boa_daemon.job.processes import kill_all_carrying

ROOT = Path(__file__).resolve().parents[1]

SETTINGS = """
[budget]
usd_per_hour = 100.0
usd_per_day_cap = 3000.0
max_instances = 4
[cloud]
instance_types = ["g5.xlarge"]
provider = "local"
boot_seconds = 0
[workload]
classes = "classes.yaml"
policy = "boa"
[daemon]
state_dir = "state"
tick_seconds = 1
idle_hold_seconds = 60
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
MARK = "RESTARTS_OF"
_FLAGS = "--steps 1000000 --pause 0.005"
RUNS = {
    "numpy": f"{sys.executable} {ROOT}/examples/train_numpy.py {_FLAGS}",
    "ddp": f"{sys.executable} -m torch.distributed.run {ROOT}/examples/train_ddp.py {_FLAGS}",
    "large": f"{sys.executable} -m torch.distributed.run {ROOT}/benchmarks/train_large.py",
}


def main() -> None:
    """Resize a job back and forth, and print the median of each part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--job", choices=sorted(RUNS), default="numpy")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        site = Site(Path(name), SETTINGS)
        (site.folder / "classes.yaml").write_text(CLASSES.format(width=1))
        site.up()
        try:
            parts = _resize(site, RUNS[asked.job], asked.times)
        finally:
            site.end(signal.SIGTERM)
            # Jobs outlive their daemon.
            kill_all_carrying(f"{MARK}={site.folder}")
    print(f"{asked.job}, {asked.times} resizes, median seconds")
    for label, seconds in parts.items():
        print(f"  {label}: {median(seconds):.2f}  ({min(seconds):.2f} to {max(seconds):.2f})")


def _resize(site: Site, run: str, times: int) -> dict[str, list[float]]:
    """Return the seconds of each part of each resize."""
    names = ("made ready, the job goes on", "stop", "notice and start", "first step", "in all, cards wait")
    parts: dict[str, list[float]] = {name: [] for name in names}
    with Client(site.socket) as boa:
        content = {"name": "job", "class": "real", "run": run, "elastic": True}
        environment = {MARK: str(site.folder)}
        if "RESTART_TRACE" in os.environ:
            environment["RESTART_TRACE"] = os.environ["RESTART_TRACE"]
        (job,) = boa.submit({**content, "environment": environment})
        layout = Layout(root=(site.folder / "state" / "jobs").resolve())
        wait_for(lambda: (boa.job(job)["step"] or 0) > 3, site)
        for number in range(times):
            time.sleep(1.0 + 0.37 * number % 1.0)
            now, width = boa.job(job)["generation"], 2 - number % 2
            before = layout.generation(job, now)
            (site.folder / "classes.yaml").write_text(CLASSES.format(width=width))
            assert site.process is not None
            site.process.send_signal(signal.SIGHUP)
            asked_at = time.time()
            after = layout.generation(job, now + 1)
            progress = after / OWN / "progress.json"
            wait_for((after / "generation.json").exists, site)
            wait_for(lambda file=progress: _step(file) > 0, site)
            stop_at = (before / "stop").stat().st_mtime
            end_at = json.loads((before / "n0" / "exit.json").read_text())["ended_at"]
            start_at = (after / "generation.json").stat().st_mtime
            first_at = json.loads(progress.read_text())["at"]
            found = (
                stop_at - asked_at,
                end_at - stop_at,
                start_at - end_at,
                first_at - start_at,
                first_at - stop_at,
            )
            for label, one in zip(parts, found, strict=True):
                parts[label].append(one)
    return parts


def _step(file: Path) -> int:
    """Return the last step that a job reported, or 0 before the first."""
    try:
        return int(json.loads(file.read_text())["step"] or 0)
    except (OSError, ValueError, KeyError):
        return 0


if __name__ == "__main__":
    main()
