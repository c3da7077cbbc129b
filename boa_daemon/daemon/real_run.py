"""Small training jobs that really run on this machine, under the controller and a budget of pretended money.

Everything is what the daemon uses: the controller, the desk, the local engine, checkpoints, the estimates.
Pretended are the prices, the clock, on which a second counts as a minute, and most of each step, which
sleeps so that more workers are faster on any machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from boa_daemon.backends.local import LocalCloud
from boa_daemon.engines.desk import JobDesk, OccupiedCloud, Ticket
from boa_daemon.engines.local import LocalEngine
from boa_daemon.learning.exploring import Exploring
from boa_daemon.learning.speedups import (
    CurveEstimate,
    Exploration,
    Stakes,
    estimate_all,
    explain_curve,
    measured_class,
    worth_exploring,
)
from boa_daemon.store.memory import MemoryStore
from boa_daemon.tick.actions import StartJob
from boa_daemon.tick.controller import Controller, Ports
from boa_daemon.tick.decision import Decision
from boa_daemon.tick.ledger import Ledger
from boa_daemon.tick.ports import Accepted, JobSpec
from boa_daemon.tick.state import ClusterState, Rules
from policies.model import Budget, GpuType, InstanceType, Job, JobClass, JobId, Phase, Problem
from policies.optimum.boa import BudgetOptimal
from policies.placement.lwf import LeastWorkloadFirst
from policies.speedup import Amdahl, SpeedupCurve

PACE = 60.0
"""Pretended seconds per second."""
NODE = InstanceType(name="local-2", gpu_type="worker", gpus=2, usd_per_hour=6.0)
PLACES = 8
"""Nodes that fit on the machine."""
ARRIVAL_SECONDS = 6.0
TICK_SECONDS = 0.5
SHARDS = 8
RESTART_SECONDS = 0.6
"""What a stop and a start take on an idle machine."""
TRY_SECONDS = 3.0
PLANNED = 0.7
"""Of the budget; nodes that boot, idle or are partly used take the rest."""
CHANGED = 0.1
"""A speed that turns out so much different is worth a new plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of job: its steps, the seconds of pretended work per shard, and the serial rest per half."""

    name: str
    steps: int
    shard_seconds: float
    serial_seconds: tuple[float, ...]
    believed: tuple[SpeedupCurve, ...]

    @property
    def phase_ends(self) -> tuple[int, ...]:
        """The steps after which its phases end."""
        return (self.steps // 2, self.steps) if len(self.believed) == 2 else (self.steps,)

    @property
    def phase_gpu_hours(self) -> tuple[float, ...]:
        """Pretended hours of each phase on one worker."""
        each = self.steps // len(self.believed)
        return tuple(
            each * (SHARDS * self.shard_seconds + self.serial_seconds[min(at, len(self.serial_seconds) - 1)])
            * PACE / 3600.0
            for at in range(len(self.believed))
        )  # fmt: skip

    @property
    def command(self) -> str:
        """What is run."""
        trainer = files("boa_daemon") / "data" / "demo" / "train_numpy.py"
        serial = " ".join(map(str, self.serial_seconds))
        return (
            f"{sys.executable} {trainer} --steps {self.steps} --pause {self.shard_seconds} --serial {serial}"
        )

    def job_class(self, arrivals_per_hour: float) -> JobClass:
        """Return the class as it is believed to be before anything was measured."""
        return JobClass(
            name=self.name,
            arrivals_per_hour=arrivals_per_hour,
            startup_hours=RESTART_SECONDS * PACE / 3600.0,
            rescale_hours=RESTART_SECONDS * PACE / 3600.0,
            phases=tuple(
                Phase(size_gpu_hours=hours, speedups={NODE.gpu_type: curve})
                for hours, curve in zip(self.phase_gpu_hours, self.believed, strict=True)
            ),
        )


KINDS = (
    # Its first half scales badly and its second half well: the plan widens it half way.
    Kind(
        name="vision",
        steps=100,
        shard_seconds=0.02,
        serial_seconds=(0.16, 0.001),
        believed=(Amdahl(parallel_fraction=0.5, max_gpus=4), Amdahl(parallel_fraction=0.99, max_gpus=4)),
    ),
    # Believed to scale well, it does not: its reports correct that, and the plan follows.
    Kind(
        name="language",
        steps=300,
        shard_seconds=0.003,
        serial_seconds=(0.024,),
        believed=(Amdahl(parallel_fraction=0.95, max_gpus=4),),
    ),
)


class PacedClock:
    """The machine's clock, so many times as fast."""

    def __init__(self) -> None:
        self._began, self._origin = time.monotonic(), time.time()

    def now(self) -> float:
        """Return seconds since the epoch, on the fast clock."""
        return self._origin + PACE * (time.monotonic() - self._began)


@dataclass(slots=True)
class Teller:
    """Implements `Telemetry`: keeps the sentences."""

    sentences: list[str] = field(default_factory=list)

    def say(self, sentence: str, **_numbers: float | str) -> None:
        """Keep a sentence."""
        self.sentences.append(sentence)


class RealRun:
    """A queue of real jobs, and the controller that runs them."""

    def __init__(self, root: Path, *, jobs: int, budget: Budget) -> None:
        self.clock, self.teller, self.store = PacedClock(), Teller(), MemoryStore()
        self.budget, self.jobs_in_all, self.started_at = budget, jobs, self.clock.now()
        self.desk = JobDesk(LocalEngine(root), self.clock)
        self.curves: Mapping[tuple[str, str], CurveEstimate] = {}
        self._root, self._came, self._used_samples = root, 0, 0
        self._tries: dict[JobId, Exploration] = {}
        rate = 3600.0 / (PACE * ARRIVAL_SECONDS) / len(KINDS)
        self.classes = {kind.name: kind.job_class(rate) for kind in KINDS}
        self._controller = Controller(
            allocator=self._allocator(),
            placer=LeastWorkloadFirst(),
            rules=Rules(instance_types={NODE.gpu_type: NODE}, idle_hold_seconds=60.0, max_nodes=PLACES),
            ports=Ports(
                clock=self.clock,
                cloud=OccupiedCloud(cloud=LocalCloud(self.clock, most_nodes=PLACES), desk=self.desk),
                jobs=self.desk,
                engine=self.desk,
                store=self.store,
                telemetry=self.teller,
            ),
        )

    def _allocator(self) -> BudgetOptimal:
        """Return the optimum for what is believed now.

        Raises:
            InfeasibleBudget: when the budget is below the least that runs every job.
        """
        gpu = GpuType(name=NODE.gpu_type, usd_per_gpu_hour=NODE.usd_per_gpu_hour)
        problem = Problem(classes=tuple(self.classes.values()), gpu_types=(gpu,))
        planned = replace(self.budget, amount=PLANNED * self.budget.amount)
        return BudgetOptimal.from_problem(problem, planned)

    @property
    def is_over(self) -> bool:
        """Whether every job has come and left."""
        return len(self.desk.left) == self.jobs_in_all

    def tick(self) -> Decision:
        """Let due jobs arrive, learn from reports, and decide."""
        due = int((self.clock.now() - self.started_at) / (PACE * ARRIVAL_SECONDS)) + 1
        while self._came < min(due, self.jobs_in_all):
            self._arrive(KINDS[self._came % len(KINDS)])
        self._learn()
        return self._controller.run_once()

    def _arrive(self, kind: Kind) -> None:
        """Let a job come."""
        self._came += 1
        name = f"{kind.name}-{self._came}"
        ticket = Ticket(
            spec=JobSpec(
                job=name,
                name=name,
                class_name=kind.name,
                run=kind.command,
                workdir=str(self._root),
                stop_grace_seconds=10.0,
            ),
            job=Job(
                id=name,
                class_name=kind.name,
                arrived_at=self.clock.now(),
                phase=0,
                remaining_gpu_hours=sum(kind.phase_gpu_hours),
                draw=0.5,
            ),
            phase_ends=kind.phase_ends,
            phase_gpu_hours=kind.phase_gpu_hours,
        )
        if not isinstance(self.desk.take(ticket), Accepted):
            raise AssertionError(f"the local engine refused {name} below {self._root}")

    def _learn(self) -> None:
        """Correct what is believed of classes with one phase, and plan anew where that matters."""
        if len(self.desk.samples) == self._used_samples:
            return
        self._used_samples = len(self.desk.samples)
        stated = [kind.job_class(1.0) for kind in KINDS if len(kind.believed) == 1]
        self.curves = estimate_all(self.desk.samples, stated, now=self.clock.now())
        for name in {name for name, _ in self.curves}:
            stated_class = next(job_class for job_class in stated if job_class.name == name)
            found = replace(
                measured_class(stated_class, list(self.curves.values())),
                arrivals_per_hour=self.classes[name].arrivals_per_hour,
            )
            if _differ(found, self.classes[name]):
                self.classes[name] = found
                self._plan_anew()
                self.teller.say(f"new plan: {explain_curve(self.curves[name, NODE.gpu_type])}")
        self._explore()

    def _plan_anew(self) -> None:
        """Use what is believed now, and let go the tries that have said what they can."""
        known = {(sample.class_name, sample.gpus) for sample in self.desk.samples}
        self._tries = {
            job: found for job, found in self._tries.items() if (_class_of(job), found.gpus) not in known
        }
        allocator = Exploring(base=self._allocator(), tries=self._tries)
        self._controller = replace(self._controller, allocator=allocator)

    def _explore(self) -> None:
        """Let one job of a class try the width that the plan should know more of, where that is cheap."""
        present = self.desk.jobs()
        for (name, _), curve in self.curves.items():
            running = [job for job in present.values() if job.job.class_name == name and job.job.width]
            if any(_class_of(job) == name for job in self._tries) or not running:
                continue
            job = running[-1].job
            planned = job.width.gpus if job.width else 1
            job_class = self.classes[name]
            stakes = Stakes(
                gpu_hour_worth=self._allocator().multiplier * NODE.usd_per_gpu_hour,
                hours_to_come=job_class.arrivals_per_hour * job_class.size_gpu_hours,
            )
            found = worth_exploring(curve, planned_gpus=planned, stakes=stakes, seconds=TRY_SECONDS)
            if found is not None:
                self._tries[job.id] = found
                self.teller.say(f"{job.id}: {found.reason}")
                self._plan_anew()

    def close(self) -> None:
        """End what still runs; its checkpoints are lost with the folder."""
        runner = self.desk.runner
        until = time.monotonic() + 10.0
        while time.monotonic() < until:
            alive = [report for report in runner.poll().values() if not report.is_over]
            if not alive:
                return
            for report in alive:
                runner.kill(report.job, report.generation)
            time.sleep(0.05)

    def spent_usd(self, state: ClusterState) -> float:
        """Return the pretended dollars so far."""
        return Ledger.of(state).committed_usd

    def widths_of(self, job: JobId) -> list[int]:
        """Return the widths of a job's generations, in order."""
        return [
            action.width.gpus
            for action, outcome, _ in self.store.outcomes
            if isinstance(action, StartJob) and action.job == job and isinstance(outcome, Accepted)
        ]


def _class_of(job: JobId) -> str:
    """Return the class in a job's name."""
    return job.rpartition("-")[0]


def _differ(found: JobClass, believed: JobClass) -> bool:
    """Return whether a class is faster or slower at some width than believed, enough to matter."""
    new, old = (job_class.phases[0].speedups[NODE.gpu_type] for job_class in (found, believed))
    widths = new.whole_widths()
    return bool(np.any(np.abs(new.speed_at(widths) / old.speed_at(widths) - 1.0) > CHANGED))


@cache
def uninterrupted_loss(steps: int) -> float:
    """Return the loss that the trainer ends with on one worker without any stop, computed here."""
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


def pause_until_next_tick(began: float) -> None:
    """Sleep until a tick that began then is over."""
    time.sleep(max(0.0, TICK_SECONDS - (time.monotonic() - began)))


def ticks(run: RealRun, *, most_seconds: float) -> Iterator[Decision]:
    """Yield each decision until all jobs have left or the time is over."""
    until = time.monotonic() + most_seconds
    while not run.is_over and time.monotonic() < until:
        began = time.monotonic()
        yield run.tick()
        pause_until_next_tick(began)
