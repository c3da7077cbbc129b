"""For tests of engines: an engine with one job, and the trainers of `examples/`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from boa_daemon.engines.local import LocalEngine
from boa_daemon.tick.facts.actions import StartJob, StopJob
from boa_daemon.tick.facts.ports import Accepted, JobSpec, Refused, Runner, RunReport
from policies.model import GpuSlot, Width

EXAMPLES = Path(__file__).parent.parent / "examples"
NUMPY = f"{sys.executable} {EXAMPLES / 'train_numpy.py'}"
TORCHRUN = f"{sys.executable} -m torch.distributed.run"
DDP = f"{TORCHRUN} {EXAMPLES / 'train_ddp.py'}"
PATIENCE_SECONDS = 180.0


def script(text: str) -> str:
    """Return a command that runs a Python script."""
    return f"{sys.executable} -u -c {shlex.quote(text)}"


def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def numpy_loss(steps: int) -> float:
    """Return the loss of an uninterrupted run of the numpy trainer on one worker, computed here."""
    import numpy as np

    weights = np.zeros(16)
    for step in range(steps):
        parts = []
        for shard in range(8):
            x = np.random.default_rng((step, shard)).normal(size=(32, 16))
            error = x @ (weights - np.arange(16))
            parts.append(np.append(x.T @ error, error @ error) / (8 * 32))
        total = np.sum(parts, axis=0)
        weights = weights - 0.05 * total[:-1]
    return float(total[-1])


def loss_alone(folder: Path, script: Path, *, steps: int) -> float:
    """Return the last loss of an uninterrupted trainer: one process, no engine, no launcher."""
    progress = folder / "alone.json"
    places = {"BOA_PROGRESS_FILE": str(progress), "BOA_CHECKPOINT_DIR": str(folder / "alone")}
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", **places}
    subprocess.run(
        [sys.executable, str(script), "--steps", str(steps), "--every", "100000"],
        cwd=folder, env={**os.environ, **alone},
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    found = json.loads(progress.read_text())
    assert found["step"] == steps
    return float(found["loss"])


@dataclass
class Bench:
    """An engine with one job."""

    engine: Runner
    workdir: Path
    job: str = "a"
    nodes: tuple[str, ...] = ("n1", "n2")
    generation: int = 0
    ends: list[RunReport] = field(default_factory=list)

    def admit(self, run: str, **changes: object) -> Accepted | Refused:
        """Admit the job with this command."""
        values = {"stop_grace_seconds": 10.0, "workdir": str(self.workdir)} | changes
        return self.engine.admit(
            JobSpec(job=self.job, name=self.job, class_name="c", run=run, **values)  # type: ignore[arg-type]
        )

    def start(self, gpus: int = 1, *, nodes: int = 1) -> None:
        """Start the next generation on the first nodes, and check that the order was accepted."""
        self.generation += 1
        said = self.engine.start(self.order(gpus, nodes=nodes))
        assert said == Accepted(), said

    def order(self, gpus: int, *, nodes: int = 1, generation: int | None = None) -> StartJob:
        """Return the order to start a generation."""
        number = generation or self.generation
        slots = tuple(GpuSlot(self.nodes[at * nodes // gpus], at % (gpus // nodes)) for at in range(gpus))
        width = Width("cpu", gpus)
        return StartJob(
            id=f"t{number}-start", job=self.job, generation=number, width=width, slots=slots, reason="test"
        )

    def stop(self) -> None:
        """Order a stop, and check that the order was accepted."""
        assert self.engine.stop(self.stop_order()) == Accepted()

    def stop_order(self) -> StopJob:
        """Return the order to stop the newest generation."""
        return StopJob(id="t-stop", job=self.job, generation=self.generation, reason="test")

    def report(self) -> RunReport:
        """Return the engine's current report of the job."""
        return self.engine.poll()[self.job]

    def wait(self, until: Callable[[RunReport], bool], *, seconds: float = PATIENCE_SECONDS) -> RunReport:
        """Return the first report for which `until` holds."""
        deadline = time.monotonic() + seconds
        while not until(report := self.report()):
            assert time.monotonic() < deadline, f"waited {seconds} s; last: {report}\n{self.printed()}"
            assert not report.is_over or until(report), f"ended early: {report}\n{self.printed()}"
            # Polling a service over HTTP slows down the work that is waited for.
            time.sleep(0.05 if isinstance(self.engine, LocalEngine) else 0.3)
        return report

    def wait_step(self, step: int) -> RunReport:
        """Return the first report of at least that step."""
        return self.wait(lambda report: (report.step or 0) >= step)

    def wait_end(self, *, seconds: float = PATIENCE_SECONDS) -> RunReport:
        """Return the report of the generation's end."""
        report = self.wait(lambda report: report.is_over, seconds=seconds)
        self.ends.append(report)
        return report

    def run_to_end(self, run: str, *, gpus: int = 1, **changes: object) -> RunReport:
        """Run a command as one generation and return its end."""
        assert self.admit(run, **changes) == Accepted()
        self.start(gpus)
        return self.wait_end()

    def printed(self) -> str:
        """Return what the newest generation printed."""
        return self.engine.logs(self.job).text[-4000:]
