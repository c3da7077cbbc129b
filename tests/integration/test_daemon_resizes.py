"""The daemon resizes real jobs while processes are killed: the loss stays that of an unbroken run.

The daemon is a process of its own. The test changes widths as an operator would: it edits the class file and
sends SIGHUP to the daemon or restarts it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import permutations
from pathlib import Path

import pytest
from daemon_site import Site, wait_for
from engine_bench import EXAMPLES, NUMPY, numpy_loss

from boa_daemon.api.client import Client
from boa_daemon.engines.generation_units import Layout
from boa_daemon.job.processes import carrying

SETTINGS = """
[budget]
usd_per_hour = 100.0
usd_per_day_cap = 3000.0
max_instances = {nodes}
[cloud]
instance_types = ["{machine}"]
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
  a10g: {{instance_type: {machine}}}
classes:
  - name: real
    arrivals_per_hour: 0.1
    phases: [{{size_gpu_hours: 1.0, speedup: {{a10g: {{table: {{{width}: {width}.0}}}}}}}}]
"""


TRAINER = """
import os, runpy, sys
from boa_daemon import job  # a start that comes early waits here for its turn
steps = job.resume().step + 50 if os.path.exists({last!r}) else 1000000
sys.argv = ["train", "--steps", str(steps), "--every", "1", "--pause", "0.006"]
runpy.run_path({script!r}, run_name="__main__")
"""
"""Has an end from when the test says so: on a busy machine it would be over before all has happened."""


class Resizes(Site):
    """A daemon with one job whose class allows one width at a time."""

    def __init__(self, folder: Path, run: str, *, nodes: int, machine: str) -> None:
        super().__init__(folder, SETTINGS.format(nodes=nodes, machine=machine))
        self.machine = machine
        self.give(1)
        self.up()
        with Client(self.socket) as client:
            content = {"name": "job", "class": "real", "run": run, "workdir": str(folder), "retries": 9}
            (self.job,) = client.post("/jobs", {"jobs": [content]})["jobs"]

    def give(self, width: int) -> None:
        """Set the width of the class; the daemon uses it when it next reads the file."""
        (self.folder / "classes.yaml").write_text(CLASSES.format(width=width, machine=self.machine))
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGHUP)

    @property
    def row(self) -> dict[str, object]:
        """The daemon's row of the job."""
        return self.get(f"/jobs/{self.job}")

    def gets_on(self, width: int, steps: int = 3) -> None:
        """Wait until the job has this width and its newest generation makes steps."""
        wait_for(lambda: self.row.get("gpus") == width and len(self.printed(width)) >= steps, self)

    @property
    def generation(self) -> int:
        """The number of the newest generation."""
        return int(str(self.row["generation"]))

    def printed(self, width: int) -> list[str]:
        """Return the lines of steps that the newest generation printed, if it has that width.

        The engine may still answer for the generation before, because the queue knows of a new generation
        first.
        """
        newest = self.row.get("generation", 0)
        text = self.get(f"/jobs/{self.job}/logs?generation={newest}").get("text", "")
        return [line for line in text.splitlines() if f" on {width} workers" in line]

    def unit(self, generation: int, rank: int) -> Path:
        """Return the folder of a unit."""
        return Layout(root=(self.folder / "state" / "jobs").resolve()).unit(self.job, generation, rank)

    def kill_worker_of(self, generation: int, rank: int, *, may_be_gone: bool = False) -> None:
        """Kill the newest process that a unit started."""
        name = json.loads((self.unit(generation, rank) / "unit.json").read_text())["name"]
        found = carrying(f"BOA_UNIT={name}")
        if found or not may_be_gone:
            os.kill(max(found), signal.SIGKILL)

    def kill_keeper(self, rank: int, generation: int | None = None, *, may_be_gone: bool = False) -> None:
        """Kill the keeper of a unit, by default in the newest generation."""
        note = self.unit(generation or self.generation, rank) / "keeper.json"
        with suppress(*((FileNotFoundError, ProcessLookupError) if may_be_gone else ())):
            os.kill(int(json.loads(note.read_text())["pid"]), signal.SIGKILL)

    def comes_back(self, width: int, *, after: int) -> None:
        """Wait for steps of a generation later than the one that lost a process."""
        wait_for(lambda: int(str(self.row.get("generation", 0))) > after, self)
        self.gets_on(width)

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.row.get("status") in ("finished", "failed")

    def finish(self) -> float:
        """Wait for the end of the job on one worker while it makes steps; return the last printed loss."""
        while not self.is_over:
            row = self.row
            wait_for(lambda before=row: self.row.get("step") != before.get("step") or self.is_over, self)
        assert self.row["status"] == "finished", self.row
        return float(self.printed(1)[-1].rpartition(" ")[2])


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="boa", ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def playing(folder: Path, run: str, *, nodes: int, machine: str) -> Iterator[Resizes]:
    """Run a daemon with one job, and kill the daemon at the end."""
    site = Resizes(folder, run, nodes=nodes, machine=machine)
    try:
        yield site
    finally:
        if site.process is not None and site.process.poll() is None:
            site.end(signal.SIGKILL)


@pytest.mark.exhaustive
def test_a_job_resized_1_2_4_1_under_kills_keeps_its_loss(folder: Path) -> None:
    """A worker, a keeper and twice the daemon are killed between the widths; no resize loses a step."""
    last = folder / "last"
    (folder / "train.py").write_text(TRAINER.format(last=str(last), script=str(EXAMPLES / "train_numpy.py")))
    with playing(folder, f"{sys.executable} {folder / 'train.py'}", nodes=4, machine="g5.xlarge") as site:
        site.gets_on(1)
        site.give(2)
        site.gets_on(2)
        assert site.row["lost_steps"] == 0
        before = site.generation
        site.kill_worker_of(before, 1)
        site.comes_back(2, after=before)
        # The daemon dies; the job works on, and its width is changed before the daemon is back.
        site.end(signal.SIGKILL)
        site.give(4)
        site.up()
        site.gets_on(4)
        before = site.generation
        site.kill_keeper(0)
        site.end(signal.SIGKILL)
        site.up()
        site.gets_on(4)
        assert site.generation == before, "the death of a keeper ends no generation"
        lost = site.row["lost_steps"]
        last.touch()
        site.give(1)
        site.gets_on(1)
        assert site.row["lost_steps"] == lost, "a resize loses nothing"
        loss = site.finish()
        done = int(str(site.row["step"]))
    assert loss == pytest.approx(numpy_loss(done), rel=1e-12)


@pytest.mark.exhaustive
def test_a_job_survives_deaths_of_worker_keeper_and_daemon_in_any_order(folder: Path) -> None:
    """Each of the six orders loses at most one step; the loss stays that of an unbroken run."""
    run = f"{NUMPY} --steps 100000 --every 1 --pause 0.004"
    with playing(folder, run, nodes=2, machine="g5.xlarge") as site:
        site.give(2)
        site.gets_on(2)
        for count, order in enumerate(permutations(("worker", "keeper", "daemon")), 1):
            before = site.generation
            deaths = {
                # When the keeper dies first, the worker may end by itself because it lost its peer; when
                # the worker dies first, so may the keeper.
                "worker": partial(site.kill_worker_of, before, 1, may_be_gone=order[0] != "worker"),
                "keeper": partial(site.kill_keeper, 0, before, may_be_gone=order[0] != "keeper"),
                "daemon": partial(site.end, signal.SIGKILL),
            }
            for name in order:
                deaths[name]()
            site.up()
            site.comes_back(2, after=before)
            lost = int(str(site.row["lost_steps"]))
            assert lost <= count, f"{order}: {lost} steps lost"
        words = site.printed(2)[-1].split()
        with Client(site.socket) as client:
            client.post(f"/jobs/{site.job}/cancel", {})
        wait_for(lambda: site.row.get("status") == "cancelled", site)
    assert float(words[-1]) == pytest.approx(numpy_loss(int(words[1])), rel=1e-9)
