"""A simulated engine whose jobs only take time, for tests of the daemon on a virtual clock.

The engine stands for machines, so it can keep its events in a journal; an engine opened on the same journal
knows all of them. A job's work is `HOURS` of its environment, in hours on one reference GPU. A stop takes the
time of a checkpoint. With `FAILS` in its environment a generation fails where it would have finished.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boa_daemon.tick.facts.actions import StartJob, StopJob
from boa_daemon.tick.facts.ports import Accepted, Clock, LogChunk, Refused, RunReport, Unknown
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import JobId, NodeId, Width

if TYPE_CHECKING:
    from boa_daemon.tick.facts.job_spec import JobSpec

Speed = Callable[[str, Width], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A generation: its begin, its speed, the work left at its begin, and when it was stopped or killed."""

    generation: int
    began_at: float
    speed: float
    left: float
    stop_at: float | None = None
    killed_at: float | None = None


class SimulatedRunner:
    """Implement `Runner` on a clock."""

    name = "simulated"

    def __init__(
        self, clock: Clock, *, speed: Speed, journal: Path | None = None, checkpoint_seconds: float = 10.0
    ) -> None:
        self._clock, self._speed, self._checkpoint = clock, speed, checkpoint_seconds
        self._specs: dict[JobId, JobSpec] = {}
        self._runs: dict[JobId, _Run] = {}
        self._forgotten: set[JobId] = set()
        self.started: list[tuple[JobId, int]] = []
        self._journal = journal
        if journal is not None and journal.exists():
            for line in journal.read_text(encoding="utf-8").splitlines():
                self._happen(json.loads(line))

    def _write(self, event: Mapping[str, Any]) -> None:
        """Append an event to the journal and apply it."""
        if self._journal is not None:
            with self._journal.open("a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")
        self._happen(event)

    def _happen(self, event: Mapping[str, Any]) -> None:
        """Apply an event."""
        job = event["job"]
        if event["what"] == "start":
            self.started.append((job, event["generation"]))
            self._forgotten.discard(job)
            self._runs[job] = _Run(
                generation=event["generation"], began_at=event["at"], speed=event["speed"], left=event["left"]
            )
        elif event["what"] == "stop":
            self._runs[job] = replace(self._runs[job], stop_at=event["at"])
        elif event["what"] == "kill":
            self._runs[job] = replace(self._runs[job], killed_at=event["at"])
        else:
            self._forgotten.add(job)

    def prepare(self, nodes: Sequence[NodeState]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Accept every node."""
        return {node.id: Accepted() for node in nodes}

    def admit(self, spec: JobSpec) -> Accepted | Refused:
        """Store what to run for a job."""
        self._specs[spec.job] = spec
        return Accepted()

    def start(self, action: StartJob) -> Accepted | Refused:
        """Start a generation; accepted if it runs already."""
        spec, before = self._specs.get(action.job), self._runs.get(action.job)
        if spec is None:
            return Refused(reason=f"job {action.job} was not admitted", kind="bad-request")
        if before is not None and before.generation == action.generation:
            return Accepted()
        if before is not None and (before.generation > action.generation or not self._end(action.job)[0]):
            return Refused(reason=f"generation {before.generation} is not over")
        left = float(spec.environment.get("HOURS", "1.0"))
        if before is not None:
            left = self._left(before, self._end(action.job)[1])
        self._write(
            {
                "what": "start",
                "job": action.job,
                "generation": action.generation,
                "at": self._clock.now(),
                "speed": self._speed(spec.class_name, action.width),
                "left": left,
            }
        )
        return Accepted()

    def _left(self, run: _Run, at: float) -> float:
        """Return the work left at an instant; a killed generation did none."""
        if run.killed_at is not None:
            return run.left
        return max(run.left - run.speed * (at - run.began_at) / SECONDS_PER_HOUR, 0.0)

    def _end(self, job: JobId) -> tuple[bool, float]:
        """Return whether the newest generation is over, and when it ended or will end."""
        run, now = self._runs[job], self._clock.now()
        done_at = run.began_at + run.left / run.speed * SECONDS_PER_HOUR
        ends = [done_at]
        if run.stop_at is not None:
            ends.append(run.stop_at + self._checkpoint)
        if run.killed_at is not None:
            ends.append(run.killed_at)
        return min(ends) <= now, min(ends)

    def stop(self, action: StopJob) -> Accepted | Refused:
        """Order a checkpoint followed by the end of a generation."""
        return self._order("stop", action.job, action.generation)

    def kill(self, job: JobId, generation: int) -> Accepted | Refused:
        """End a generation at once."""
        return self._order("kill", job, generation)

    def _order(self, what: str, job: JobId, generation: int) -> Accepted:
        """Record an order, once."""
        run = self._runs.get(job)
        if run is None or run.generation != generation or self._end(job)[0]:
            return Accepted()
        if (run.stop_at if what == "stop" else run.killed_at) is None:
            self._write({"what": what, "job": job, "at": self._clock.now()})
        return Accepted()

    def poll(self) -> Mapping[JobId, RunReport]:
        """Return the newest generation of every job."""
        return {job: self._report(job) for job in self._runs if job not in self._forgotten}

    def _report(self, job: JobId) -> RunReport:
        run = self._runs[job]
        is_over, at = self._end(job)
        phase: Any = "running" if run.stop_at is None else "stopping"
        cause: Any = None
        if is_over:
            is_done = self._left(run, at) <= 1e-9
            phase = "finished" if is_done else "stopped"
            if run.killed_at is not None and not is_done:
                phase, cause = "failed", "killed"
            elif is_done and "FAILS" in (self._specs[job].environment if job in self._specs else {}):
                phase, cause = "failed", "error"
        return RunReport(job=job, generation=run.generation, phase=phase, cause=cause, evidence="simulated")

    def logs(
        self, job: JobId, *, since: int = 0, generation: int | None = None, node: int | None = None
    ) -> LogChunk:
        """Return no text: simulated jobs print nothing."""
        del job, generation, node
        return LogChunk(text="", next_offset=since)

    def reattach(self) -> Mapping[JobId, RunReport]:
        """Return the jobs in the journal."""
        return self.poll()

    def forget(self, job: JobId) -> None:
        """Leave a job out of `poll`."""
        if job in self._runs and job not in self._forgotten:
            self._write({"what": "forget", "job": job})
