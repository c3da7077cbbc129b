"""The desk: jobs that really run, as the controller sees them.

A tick knows jobs that hold GPUs or wait; a runner knows generations that start, run, stop and fail. The desk
keeps both together: it gives GPUs to a generation and takes them back when that has really ended, starts
nothing on GPUs that are held, applies the restart breaker, and turns what jobs report into samples of speed.
It implements `JobSource` and `Engine`, and wraps a `Cloud` so that its nodes name the jobs on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from boa_daemon.engines.breaker import Failure, GiveUp, RestartBreaker
from boa_daemon.learning.speedups import SpeedSample
from boa_daemon.tick.actions import LaunchNodes, StartJob, StopJob, TerminateNode
from boa_daemon.tick.offers import Offer
from boa_daemon.tick.ports import (
    Accepted,
    Clock,
    Cloud,
    JobSpec,
    Launched,
    Refused,
    Runner,
    RunReport,
    Unknown,
)
from boa_daemon.tick.state import JobState, NodeState
from policies.errors import InvalidProblem
from policies.model import GpuSlot, Job, JobId, NodeId, Width

SAMPLE_SECONDS = 1.0
"""A stretch of work that is shorter says little about the speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A job as it came: what to run, and what the plan may know of it.

    `phase_ends` are the steps after which its phases end, the last of them its whole length, and
    `phase_gpu_hours` the work in each; both are empty where nobody knows.
    """

    spec: JobSpec
    job: Job
    phase_ends: tuple[int, ...] = ()
    phase_gpu_hours: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.phase_ends) != len(self.phase_gpu_hours) or list(self.phase_ends) != sorted(
            self.phase_ends
        ):
            raise InvalidProblem(
                f"job {self.spec.job}: phase_ends must rise and match phase_gpu_hours; got {self.phase_ends} "
                f"and {self.phase_gpu_hours}"
            )

    def progress(self, step: int) -> tuple[int, float]:
        """Return (phase, work left in GPU-hours) after a step.

        Without known phases it is the first phase and the whole work: a job that says nothing is never
        nearly done.
        """
        if not self.phase_ends:
            return 0, self.job.remaining_gpu_hours
        left, begins = 0.0, 0
        for end, hours in zip(self.phase_ends, self.phase_gpu_hours, strict=True):
            left += hours * min(1.0, max(0.0, (end - step) / (end - begins)))
            begins = end
        phase = sum(step >= end for end in self.phase_ends)
        return min(phase, len(self.phase_ends) - 1), left


@dataclass(slots=True)
class _Entry:
    """A job at the desk."""

    ticket: Ticket
    slots: tuple[GpuSlot, ...] = ()
    width: Width | None = None
    generation: int = 0
    is_stopping: bool = False
    report: RunReport | None = None
    measured: RunReport | None = None
    step: int = 0
    loss: float | None = None
    failures: list[Failure] = field(default_factory=list)
    not_before: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A job that has left: done, or given up, with the reason in its last report or in `why`."""

    ticket: Ticket
    report: RunReport
    left_at: float
    is_finished: bool
    why: str


class JobDesk:
    """Implements `JobSource` and `Engine` over a runner."""

    def __init__(
        self,
        runner: Runner,
        clock: Clock,
        *,
        breaker: RestartBreaker | None = None,
    ) -> None:
        self.runner, self._clock = runner, clock
        self._breaker = breaker or RestartBreaker()
        self._entries: dict[JobId, _Entry] = {}
        self._freed_at: dict[NodeId, float] = {}
        self.left: list[Left] = []
        self.samples: list[SpeedSample] = []
        self.rescales = self.lost_steps = 0

    def take(self, ticket: Ticket) -> Accepted | Refused:
        """Take a job in; refused where its engine says that it could not run."""
        answer = self.runner.admit(ticket.spec)
        if isinstance(answer, Accepted):
            self._entries[ticket.spec.job] = _Entry(ticket=ticket)
        return answer

    def restore(
        self, ticket: Ticket, *, generation: int, slots: tuple[GpuSlot, ...], width: Width | None
    ) -> None:
        """Take in a job as a store remembers it; `refresh` then sees whether its generation still runs.

        Call `runner.reattach()` before.
        """
        self.runner.admit(ticket.spec)
        self._entries[ticket.spec.job] = _Entry(
            ticket=ticket, generation=generation, slots=slots, width=width
        )

    def jobs(self) -> Mapping[JobId, JobState]:
        """Return the jobs that are present, in order of arrival, but those that must wait a little."""
        self.refresh()
        now = self._clock.now()
        ready = (e for e in self._entries.values() if e.slots or e.not_before <= now)
        return {entry.ticket.spec.job: self._state(entry) for entry in ready}

    def _state(self, entry: _Entry) -> JobState:
        """Return what a tick may see of a job."""
        phase, remaining = entry.ticket.progress(entry.step)
        job = replace(entry.ticket.job, phase=phase, remaining_gpu_hours=remaining, width=entry.width)
        return JobState(
            job=job, slots=entry.slots, generation=entry.generation, is_stopping=entry.is_stopping
        )

    def refresh(self) -> None:
        """Look at everything that runs and act on what has ended; what nobody could look at goes on."""
        for job, report in self.runner.poll().items():
            entry = self._entries.get(job)
            if entry is None or report.generation != entry.generation or not entry.slots:
                continue
            if report.phase != "unknown":
                self._measure(entry, report)
                entry.report = self._with_memory(entry, report)
                if report.is_over:
                    self._end(entry, entry.report)

    def _with_memory(self, entry: _Entry, report: RunReport) -> RunReport:
        """Return a report with the step and the loss of the generation before, until this one has its own."""
        if report.step is not None:
            entry.step, entry.loss = report.step, report.loss
        if report.is_over and report.lost_steps:
            entry.step = report.manifest.step if report.manifest else 0
        return report if report.step is not None else replace(report, step=entry.step, loss=entry.loss)

    def _end(self, entry: _Entry, report: RunReport) -> None:
        """Take the GPUs back, and let the job wait, rest or leave."""
        now = self._clock.now()
        self._freed_at.update(dict.fromkeys((slot.node for slot in entry.slots), now))
        entry.slots, entry.width, entry.is_stopping, entry.measured = (), None, False, None
        self.lost_steps += report.lost_steps
        if report.phase == "finished":
            self._leave(entry, report, is_finished=True, why="")
        elif report.phase == "failed":
            step = report.manifest.step if report.manifest else 0
            entry.failures.append(Failure(at=now, step=step))
            verdict = self._breaker.judge(report, entry.failures)
            if isinstance(verdict, GiveUp):
                self._leave(entry, report, is_finished=False, why=verdict.reason)
            else:
                entry.not_before = verdict.not_before

    def _leave(self, entry: _Entry, report: RunReport, *, is_finished: bool, why: str) -> None:
        """Let a job go."""
        job = entry.ticket.spec.job
        del self._entries[job]
        self.left.append(
            Left(
                ticket=entry.ticket,
                report=report,
                left_at=self._clock.now(),
                is_finished=is_finished,
                why=why,
            )
        )
        self.runner.forget(job)

    def _measure(self, entry: _Entry, report: RunReport) -> None:
        """Turn the work since the last look into a sample of the speed at this width."""
        before = entry.measured
        if report.samples is None or report.seconds is None or report.step is None or entry.width is None:
            return
        if before is None or before.generation != report.generation:
            entry.measured = report
            return
        seconds = report.seconds - (before.seconds or 0.0)
        samples = report.samples - (before.samples or 0.0)
        steps = report.step - (before.step or 0)
        if seconds >= SAMPLE_SECONDS and samples > 0.0:
            entry.measured = report
            self.samples.append(
                SpeedSample(
                    class_name=entry.ticket.spec.class_name,
                    gpu_type=entry.width.gpu_type,
                    gpus=entry.width.gpus,
                    samples=samples,
                    seconds=seconds,
                    at=self._clock.now(),
                    batch=samples / steps if steps else None,
                    gradient_noise=report.gradient_noise,
                )
            )

    def start(self, action: StartJob) -> Accepted | Refused:
        """Start a generation, once its GPUs are free and the one before has ended."""
        entry = self._entries.get(action.job)
        if entry is None:
            return Refused(reason=f"job {action.job} is not here")
        if entry.slots:
            if entry.generation == action.generation:
                return Accepted()
            return Refused(reason=f"generation {entry.generation} of {action.job} has not let go yet")
        taken = {slot: job for job, other in self._entries.items() for slot in other.slots}
        holders = {taken[slot] for slot in action.slots if slot in taken}
        if holders:
            return Refused(reason=f"GPUs are still held by {', '.join(sorted(holders))}")
        answer = self.runner.start(action)
        if isinstance(answer, Accepted):
            self.rescales += entry.generation > 0
            entry.generation, entry.slots, entry.width = action.generation, action.slots, action.width
            entry.is_stopping = False
        return answer

    def stop(self, action: StopJob) -> Accepted | Refused:
        """Ask a generation to stop; it holds its GPUs until it has."""
        entry = self._entries.get(action.job)
        if entry is None or not entry.slots or entry.generation != action.generation:
            return Accepted()
        answer = self.runner.stop(action)
        entry.is_stopping = entry.is_stopping or isinstance(answer, Accepted)
        return answer

    def reports(self) -> Mapping[JobId, RunReport]:
        """Return the newest report of each job that is present and was started."""
        return {job: entry.report for job, entry in self._entries.items() if entry.report is not None}

    def used_nodes(self) -> frozenset[NodeId]:
        """Return the nodes that jobs hold GPUs of."""
        return frozenset(slot.node for entry in self._entries.values() for slot in entry.slots)

    def occupied(self, nodes: Sequence[NodeState]) -> Sequence[NodeState]:
        """Return nodes with the jobs that hold their GPUs, and since when they are idle."""
        held = {slot: job for job, entry in self._entries.items() for slot in entry.slots}
        return [self._occupied(node, held) for node in nodes]

    def _occupied(self, node: NodeState, held: Mapping[GpuSlot, JobId]) -> NodeState:
        """Return one node with the jobs on it."""
        gpus = tuple(held.get(GpuSlot(node.id, index)) for index in range(node.instance_type.gpus))
        is_empty = gpus.count(None) == len(gpus)
        idle_since = None
        if is_empty and node.phase == "ready":
            idle_since = max(
                self._freed_at.get(node.id, node.launched_at), node.idle_since or node.launched_at
            )
        return replace(node, gpus=gpus, idle_since=idle_since)


@dataclass(frozen=True, slots=True, kw_only=True)
class OccupiedCloud:
    """A cloud whose nodes name the jobs of a desk, and that keeps nodes on which jobs run."""

    cloud: Cloud
    desk: JobDesk

    def nodes(self) -> Sequence[NodeState]:
        """Return the nodes with the jobs on them; new ones are made ready for the engine."""
        nodes = self.cloud.nodes()
        ready = [node for node in nodes if node.phase == "ready"]
        able = self.desk.runner.prepare(ready) if ready else {}
        nodes = [
            replace(node, phase="requested", idle_since=None)
            if node.phase == "ready" and not isinstance(able.get(node.id), Accepted)
            else node
            for node in nodes
        ]
        return self.desk.occupied(nodes)

    def offers(self) -> Sequence[Offer]:
        """Return what the cloud offers."""
        return self.cloud.offers()

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Ask the cloud for nodes."""
        return self.cloud.launch(action)

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Give nodes back, but none on which a job still runs."""
        used = self.desk.used_nodes()
        refused: dict[NodeId, Accepted | Refused | Unknown] = {
            action.node: Refused(reason=f"jobs run on {action.node}")
            for action in actions
            if action.node in used
        }
        return refused | dict(self.cloud.terminate([a for a in actions if a.node not in used]))
