"""What the `ssm` engine knows of its jobs: what was heard of each unit, and the file that keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from boa_daemon.engines.run_reports import Generation
from boa_daemon.job.unit import lost_end, read_json, write_json
from boa_daemon.tick.ports import JobSpec, Manifest, Refused, RunReport
from policies.model import JobId, NodeId

BEGIN_SECONDS = 10.0
"""What a unit takes to begin, once its node was told: SSM hands scripts over in seconds, in any order."""


@dataclass(slots=True)
class SsmRun:
    """A generation: where its units are, the key that seals what they say, and what was heard of them.

    `order` is its start while that is under way, and `refused` why it did not come about. `then` is what was
    ordered before its units were there to hear it, a kill or a stop; `told_at` is when they were last told.
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

    def can_hear(self, now: float) -> bool:
        """Whether its units are there for an order: each was heard of, or has had the time to begin.

        An order that comes first finds no unit, or ends a keeper that has not put its signals off yet.
        """
        if not self.is_started:
            return False
        return len(self.heard) == len(self.nodes) or now - self.started_at >= BEGIN_SECONDS

    @property
    def is_started(self) -> bool:
        """Whether its nodes were told, all of them."""
        return self.order is None and not self.refused

    def harvest(self, now: float) -> bool:
        """Take in what came of the start; return whether that is known now."""
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
        """Return the report of a generation whose start was refused: it has stopped, and did nothing."""
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
    """A job: its spec, its newest generation, and the manifest of the newest checkpoint that stands in S3."""

    spec: JobSpec
    run: SsmRun | None = None
    stands: dict[str, Any] | None = None

    def keep(self, found: Mapping[str, Any]) -> None:
        """Take in a checkpoint that stands in S3, unless a newer one does."""
        before = self.stands or {"generation": -1, "step": -1}
        if (found["generation"], found["step"]) > (before["generation"], before["step"]):
            self.stands = {name: found[name] for name in ("generation", "step", "sha256", "path")}


def starting(rank: int) -> dict[str, Any]:
    """Return the status of a unit that was ordered and has not been heard of yet."""
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
    """Return the status of a unit whose node is gone: what was heard last, and that it is lost."""
    end = lost_end(stop_asked=run.generation.is_stop_ordered)
    return {**(run.heard.get(rank) or starting(rank)), "was_kept": True, "is_kept": False, "exit": end}


def read_ssm_jobs(file: Path) -> dict[JobId, SsmJob]:
    """Return what was written down; nothing where there is no file."""
    document = read_json(file) or {"jobs": {}}
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
        )
    return known


def write_ssm_jobs(file: Path, known_jobs: Mapping[JobId, SsmJob]) -> None:
    """Write down what is known, whole or not at all.

    Raises:
        OSError: when it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {"jobs": {job: document_of(known) for job, known in known_jobs.items()}})


def document_of(known: SsmJob) -> dict[str, Any]:
    """Return a job as a document; a start that is under way is ordered again by whoever reads it."""
    run = known.run
    return {
        "spec": asdict(
            replace(
                known.spec,
                environment=dict(known.spec.environment),
                secrets=dict(known.spec.secrets),
                data=dict(known.spec.data),
            )
        ),
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
        },
    }
