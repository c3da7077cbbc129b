"""Run small real training jobs on this machine, under the daemon and a budget of simulated money.

Everything is what a user's daemon runs: `Daemon` with its database, the local cloud, the local engine,
checkpoints, learning. Simulated are the prices, the clock, on which a second counts as a minute, and most of
each step, which sleeps so that more workers are faster on any machine.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from boa_daemon.backends.local import LocalCloud
from boa_daemon.daemon.loop.assembly import open_storage
from boa_daemon.daemon.loop.components import World
from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.engines.local import LocalEngine
from boa_daemon.errors import BoaError
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.ports import RunReport
from policies.model import Budget, InstanceType, JobId

PACE = 60.0
"""Simulated seconds per real second."""
NODE = InstanceType(name="worker-x2", gpu_type="worker", gpus=2, usd_per_hour=6.0)
LOCAL_NODES = 8
"""Largest number of simulated nodes."""
ARRIVAL_SECONDS = 6.0
TICK_SECONDS = 0.5
SHARDS = 8
RESTART_SECONDS = 0.6
"""Real seconds of a stop and a start on an idle machine."""
STOP_SECONDS = 10.0
"""Real seconds that a job has to write its checkpoint; an idle machine needs a tenth of one."""
LOSS = "loss "
DAY_CAP_HOURS = 48.0
"""Cap of a simulated day in hours of the budget: high, because the demo is about the budget."""
NEVER_STALLED_SECONDS = 86_400.0
"""Stall limit, high because processes start slowly on a busy machine and each second counts as a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """A kind of job: steps, and real seconds per step, per shard (parallel) and in all (serial).

    `believed_parallel` is the parallel fraction in its class file, before anything is measured.
    """

    name: str
    steps: int
    shard_seconds: float
    serial_seconds: float
    believed_parallel: float

    @property
    def gpu_hours(self) -> float:
        """Simulated hours on one worker."""
        return self.steps * (SHARDS * self.shard_seconds + self.serial_seconds) * PACE / 3600.0

    @property
    def command(self) -> str:
        """The command line of the trainer."""
        trainer = files("boa_daemon") / "data" / "demo" / "train_numpy.py"
        return (
            f"{sys.executable} {trainer} --steps {self.steps} --pause {self.shard_seconds} "
            f"--serial {self.serial_seconds}"
        )

    @property
    def document(self) -> Mapping[str, Any]:
        """The class as an entry of a class file."""
        restart_hours = RESTART_SECONDS * PACE / 3600.0
        speedup = {"amdahl": {"parallel_fraction": self.believed_parallel, "max_gpus": 4}}
        return {
            "name": self.name,
            "arrivals_per_hour": 3600.0 / (PACE * ARRIVAL_SECONDS) / len(JOB_KINDS),
            "startup_hours": restart_hours,
            "rescale_hours": restart_hours,
            "phases": [{"size_gpu_hours": self.gpu_hours, "speedup": speedup}],
        }


JOB_KINDS = (
    # Both believed fractions are wrong: vision scales better, language worse. Reports correct the plan.
    JobKind(name="vision", steps=120, shard_seconds=0.02, serial_seconds=0.01, believed_parallel=0.5),
    JobKind(name="language", steps=300, shard_seconds=0.003, serial_seconds=0.024, believed_parallel=0.95),
)


class PacedClock:
    """The machine's clock, `PACE` times as fast."""

    def __init__(self) -> None:
        self._began, self._origin = time.monotonic(), time.time()

    def now(self) -> float:
        """Return seconds since the epoch, on the fast clock."""
        return self._origin + PACE * (time.monotonic() - self._began)


class PacedEngine(LocalEngine):
    """The local engine, with reported work seconds scaled to the fast clock."""

    def poll(self) -> Mapping[JobId, RunReport]:
        """Return the newest reports, on the fast clock."""
        return _paced(super().poll())

    def reattach(self) -> Mapping[JobId, RunReport]:
        """Return the reports of jobs that run already, on the fast clock."""
        return _paced(super().reattach())


def _paced(reports: Mapping[JobId, RunReport]) -> dict[JobId, RunReport]:
    """Return reports with the seconds of work on the fast clock."""
    return {
        job: report if report.seconds is None else replace(report, seconds=PACE * report.seconds)
        for job, report in reports.items()
    }


class LogRecorder(logging.Handler):
    """Collects the daemon's log messages."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Store one message."""
        self.said.append(record.getMessage())


class RealRun:
    """A daemon on a fast clock, and the jobs that are submitted to it."""

    def __init__(self, root: Path, *, jobs: int, budget: Budget) -> None:
        self.clock, self.sentences = PacedClock(), LogRecorder()
        self.budget, self.jobs_in_all, self.started_at = budget, jobs, self.clock.now()
        self._root, self._came = root, 0
        self._log = logging.getLogger("boa")
        self._level = self._log.level
        self._log.addHandler(self.sentences)
        self._log.setLevel(logging.INFO)
        world = World(
            clock=self.clock,
            cloud=LocalCloud(self.clock, most_nodes=LOCAL_NODES),
            runner=PacedEngine(root / "jobs"),
        )
        storage = open_storage(sqlite_url(root / "boa.sqlite"), durable=False)
        self.daemon = Daemon(_settings(root, budget), world, storage)
        self.service = Service(self.daemon)

    @property
    def is_over(self) -> bool:
        """Whether every job was submitted and is over."""
        return self._came == self.jobs_in_all and not any(job["ended_at"] is None for job in self.jobs)

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """The jobs as `boa jobs --json` shows them, oldest first."""
        return list(reversed(self.service.jobs()["jobs"]))

    @property
    def spent_usd(self) -> float:
        """Simulated dollars so far."""
        return float(self.service.cost(since=self.started_at)["usd"])

    def tick(self) -> Decision:
        """Submit the jobs that are due, and run one tick.

        Raises:
            BoaError: when the tick fails.
        """
        due = int((self.clock.now() - self.started_at) / (PACE * ARRIVAL_SECONDS)) + 1
        while self._came < min(due, self.jobs_in_all):
            self._submit(JOB_KINDS[self._came % len(JOB_KINDS)])
        decision = self.daemon.tick()
        if decision is None:
            raise BoaError(f"a tick of the demo's daemon failed: {self.daemon.standing.fault}")
        return decision

    def _submit(self, kind: JobKind) -> None:
        self._came += 1
        content = {
            "name": kind.name,
            "class": kind.name,
            "run": kind.command,
            "workdir": str(self._root),
            "stop_grace_seconds": STOP_SECONDS,
        }
        self.service.submit([content], user="demo")

    def lines_of(self, job: JobId, generation: int | None = None) -> list[str]:
        """Return the lines that a generation of a job printed, by default the newest."""
        at, lines = 0, list[str]()
        while (chunk := self.service.logs(job, since=at, generation=generation))["text"]:
            lines += chunk["text"].splitlines()
            at = chunk["next_offset"]
        return lines

    def loss_of(self, job: JobId, generations: int) -> float | None:
        """Return a job's last printed loss; a generation stopped at its end prints none, so look back."""
        for generation in range(generations, 0, -1):
            for line in reversed(self.lines_of(job, generation)):
                if LOSS in line:
                    return float(line.rpartition(LOSS)[2])
        return None

    def widths_of(self, job: JobId) -> list[int]:
        """Return the widths of a job's generations, in order."""
        assert self.daemon.storage is not None
        return [one.width.gpus for one in self.daemon.storage.queue.usages(0.0) if one.job == job]

    def close(self) -> None:
        """Kill running jobs and close the daemon."""
        runner = self.daemon.world.runner
        until = time.monotonic() + STOP_SECONDS
        while alive := [report for report in runner.poll().values() if not report.is_over]:
            if time.monotonic() > until:
                break
            for report in alive:
                runner.kill(report.job, report.generation)
            time.sleep(0.05)
        self.daemon.close()
        self._log.removeHandler(self.sentences)
        self._log.setLevel(self._level)


def _settings(root: Path, budget: Budget) -> Settings:
    """Return the settings of the daemon, with its class file written."""
    machine = {"usd_per_gpu_hour": NODE.usd_per_gpu_hour, "gpus_per_instance": NODE.gpus}
    classes = root / "classes.json"
    classes.write_text(
        json.dumps({"gpu_types": {NODE.gpu_type: machine}, "classes": [kind.document for kind in JOB_KINDS]})
    )
    return Settings.model_validate(
        {
            "budget": {"usd_per_hour": budget.amount, "usd_per_day_cap": DAY_CAP_HOURS * budget.amount},
            "cloud": {"provider": "local", "instance_types": [NODE.name], "boot_seconds": 0.0},
            "workload": {"classes": str(classes)},
            "daemon": {
                "tick_seconds": TICK_SECONDS * PACE,
                "idle_hold_seconds": 60.0,
                "stall_seconds": NEVER_STALLED_SECONDS,
            },
        }
    )


@cache
def uninterrupted_loss(steps: int) -> float:
    """Return the final loss of the trainer on one worker without interruption, computed here."""
    weights, loss = np.zeros(16), 0.0
    for step in range(steps):
        parts = []
        for shard in range(SHARDS):
            x = np.random.default_rng((step, shard)).normal(size=(32, weights.size))
            error = x @ (weights - np.arange(weights.size))
            parts.append(np.append(x.T @ error, error @ error) / (SHARDS * len(x)))
        total = np.sum(parts, axis=0)
        weights, loss = weights - 0.05 * total[:-1], float(total[-1])
    return loss


def ticks(run: RealRun, *, most_seconds: float) -> Iterator[Decision]:
    """Yield each decision until all jobs are over or `most_seconds` have passed."""
    until = time.monotonic() + most_seconds
    while not run.is_over and time.monotonic() < until:
        began = time.monotonic()
        yield run.tick()
        time.sleep(max(0.0, TICK_SECONDS - (time.monotonic() - began)))
