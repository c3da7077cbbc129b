"""The state of the `ssm` engine: its jobs with the last status of each unit, and the file that stores it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from boa_daemon.engines.run_reports import Generation
from boa_daemon.job.unit import lost_end, read_json, write_json
from boa_daemon.tick.facts.job_spec import JobSpec
from boa_daemon.tick.facts.ports import Manifest, Refused, RunReport
from policies.model import JobId, NodeId

BEGIN_SECONDS = 10.0
"""Time for a unit to begin after its node was told; SSM delivers scripts within seconds, in any order."""


@dataclass(slots=True)
class SsmRun:
    """A generation: the nodes of its units, the key of its seal, and the last status of each unit.

    `heard` and `heard_at` are the last status and its time by rank. `order` is the pending start; `refused`
    is why the start failed. `then` is a stop or kill that was ordered before the units could receive it;
    `told_at` is when an order was last sent to them. `slots` are its GPUs, for a database that lost the job.
    """

    generation: Generation
    nodes: tuple[NodeId, ...]
    heard: dict[int, dict[str, Any]] = field(default_factory=dict)
    heard_at: dict[int, float] = field(default_factory=dict)
    probes: dict[int, tuple[str, float]] = field(default_factory=dict)
    failed_probes: dict[int, int] = field(default_factory=dict)
    started_at: float = 0.0
    is_ending: bool = False
    key: str = ""
    order: Future[Refused | None] | None = None
    then: Literal["stop", "kill"] | None = None
    refused: str = ""
    told_at: float = 0.0
    slots: tuple[tuple[NodeId, int], ...] = ()

    def can_hear(self, now: float) -> bool:
        """Return whether its units can receive an order: all have reported, or have had time to begin.

        An earlier order would find no unit, or would kill a keeper that does not handle signals yet.
        """
        if not self.is_started:
            return False
        return len(self.heard) == len(self.nodes) or now - self.started_at >= BEGIN_SECONDS

    @property
    def is_started(self) -> bool:
        """Whether all of its nodes have been told to start."""
        return self.order is None and not self.refused

    def harvest(self, now: float) -> bool:
        """Record the outcome of the start if it is known; return whether it is new."""
        if self.order is None or not self.order.done():
            return False
        try:
            refused = self.order.result()
        except Exception as error:
            refused = Refused(reason=f"the start could not be ordered: {type(error).__name__}: {error}")
        self.order, self.started_at = None, now
        if refused is not None:
            self.refused, self.then = refused.reason, None
        return True

    def never_started(self, stands: Mapping[str, Any] | None) -> RunReport:
        """Return the report of a generation whose start was refused: stopped, without any work."""
        return RunReport(
            job=self.generation.job,
            generation=self.generation.number,
            phase="stopped",
            seconds=0.0,
            evidence=self.refused,
            was_refused=True,
            manifest=None if stands is None else Manifest(**stands),
            gpus=self.generation.gpus,
        )


@dataclass(slots=True)
class SsmJob:
    """A job: its specification, its newest generation, and the manifest of its newest checkpoint in S3."""

    spec: JobSpec
    run: SsmRun | None = None
    stands: dict[str, Any] | None = None

    def keep(self, found: Mapping[str, Any]) -> None:
        """Record a checkpoint in S3 if it is newer than the known one."""
        before = self.stands or {"generation": -1, "step": -1}
        if (found["generation"], found["step"]) > (before["generation"], before["step"]):
            self.stands = {name: found[name] for name in ("generation", "step", "sha256", "path")}


def starting(rank: int) -> dict[str, Any]:
    """Return the status of a unit that was ordered and has not reported yet."""
    return {
        "rank": rank,
        "is_kept": False,
        "was_kept": False,
        "progress": None,
        "exit": None,
        "manifest": None,
        "wrong_manifest": "",
        "last_lines": [],
        "kept": [],
    }


def lost(run: SsmRun, rank: int) -> dict[str, Any]:
    """Return the status of a lost unit: its last status, with an end that says that it is lost."""
    end = lost_end(stop_asked=run.generation.is_stop_ordered)
    return {**(run.heard.get(rank) or starting(rank)), "was_kept": True, "is_kept": False, "exit": end}


def read_ssm_jobs(file: Path) -> dict[JobId, SsmJob]:
    """Return the jobs from a state file; none if there is no file."""
    document = read_json(file, must_be_read=True) or {"jobs": {}}
    return {job: ssm_job_from(row) for job, row in document["jobs"].items()}


def ssm_job_from(row: Mapping[str, Any]) -> SsmJob:
    """Return a job from its document."""
    known = SsmJob(spec=JobSpec(**row["spec"]), stands=row["stands"])
    run = row["run"]
    if run is not None:
        known.run = SsmRun(
            generation=Generation(**run["generation"]),
            nodes=tuple(run["nodes"]),
            heard={int(rank): status for rank, status in run["heard"].items()},
            heard_at={int(rank): at for rank, at in run["heard_at"].items()},
            started_at=run["started_at"],
            key=run.get("key", ""),
            slots=tuple((node, index) for node, index in run.get("slots", ())),
        )
    return known


def write_ssm_jobs(file: Path, known_jobs: Mapping[JobId, SsmJob]) -> None:
    """Write the jobs to the state file atomically.

    Raises:
        OSError: when the file cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {"jobs": {job: document_of(known) for job, known in known_jobs.items()}})


def document_of(known: SsmJob) -> dict[str, Any]:
    """Return a job as a document, without a pending start: a process that reads it orders the start again."""
    run = known.run
    return {
        "spec": known.spec.to_document(),
        "stands": known.stands,
        "run": None
        if run is None or not run.is_started
        else {
            "generation": asdict(run.generation),
            "nodes": run.nodes,
            "heard": run.heard,
            "heard_at": run.heard_at,
            "started_at": run.started_at,
            "key": run.key,
            "slots": run.slots,
        },
    }
