"""What the `ssm` engine knows of its jobs: what was heard of each unit, and the file that keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from boa_daemon.engines.reading import Generation
from boa_daemon.job.unit import lost_end, read_json, write_json
from boa_daemon.tick.ports import JobSpec
from policies.model import JobId, NodeId


@dataclass(slots=True)
class Run:
    """A generation: where its units are, the key that seals what they say, and what was heard of them."""

    generation: Generation
    nodes: tuple[NodeId, ...]
    heard: dict[int, dict[str, Any]] = field(default_factory=dict)
    heard_at: dict[int, float] = field(default_factory=dict)
    probes: dict[int, tuple[str, float]] = field(default_factory=dict)
    failed_probes: dict[int, int] = field(default_factory=dict)
    started_at: float = 0.0
    is_ending: bool = False
    key: str = ""


@dataclass(slots=True)
class Known:
    """A job: its spec, its newest generation, and the manifest of the newest checkpoint that stands in S3."""

    spec: JobSpec
    run: Run | None = None
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


def lost(run: Run, rank: int) -> dict[str, Any]:
    """Return the status of a unit whose node is gone: what was heard last, and that it is lost."""
    end = lost_end(stop_asked=run.generation.is_stop_ordered)
    return {**(run.heard.get(rank) or starting(rank)), "was_kept": True, "is_kept": False, "exit": end}


def read_known(file: Path) -> dict[JobId, Known]:
    """Return what was written down; nothing where there is no file."""
    document = read_json(file) or {"jobs": {}}
    return {job: known_of(row) for job, row in document["jobs"].items() if not row.get("is_forgotten")}


def known_of(row: Mapping[str, Any]) -> Known:
    """Return a job from its document."""
    known = Known(spec=JobSpec(**row["spec"]), stands=row["stands"])
    run = row["run"]
    if run is not None:
        known.run = Run(
            generation=Generation(**run["generation"]),
            nodes=tuple(run["nodes"]),
            heard={int(rank): status for rank, status in run["heard"].items()},
            heard_at={int(rank): at for rank, at in run["heard_at"].items()},
            started_at=run["started_at"],
            key=run.get("key", ""),
        )
    return known


def write_known(file: Path, known_jobs: Mapping[JobId, Known]) -> None:
    """Write down what is known, whole or not at all.

    Raises:
        OSError: when it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {"jobs": {job: document_of(known) for job, known in known_jobs.items()}})


def document_of(known: Known) -> dict[str, Any]:
    """Return a job as a document."""
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
        if run is None
        else {
            "generation": asdict(run.generation),
            "nodes": run.nodes,
            "heard": run.heard,
            "heard_at": run.heard_at,
            "started_at": run.started_at,
            "key": run.key,
        },
    }
