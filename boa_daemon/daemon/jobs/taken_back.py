"""Take back jobs that run but are not in the database, or not in this generation, from the engine's papers.

A restored or repaired database is older than the fleet. A job that was submitted or moved since then still
runs, and its engine knows on which GPUs: its record is made again, so that it is neither stopped nor started
twice. A job that the database knows to be over is no such job; it is stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from boa_daemon.errors import BoaError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.job_file import check_job
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import JobRecord
from boa_daemon.tick.facts.ports import JobPapers
from boa_daemon.tick.facts.state import NodeState
from policies.model import JobClass, NodeId, Width

Classify = Callable[[Mapping[str, Any]], JobClass]


def take_back(
    queue: JobQueue,
    papers: JobPapers,
    nodes: Mapping[NodeId, NodeState],
    *,
    classify: Classify,
    now: float,
) -> JobRecord | None:
    """Record that a job runs as its papers say; None if its GPUs are not there, or another job holds them.

    Raises:
        SQLAlchemyError: when the database cannot be written.
    """
    known = queue.active.get(papers.spec.job)
    if known is None and queue.job(papers.spec.job) is not None:
        return None
    held = queue.holders()
    for slot in papers.slots:
        holder = held.get(slot.node, {}).get(slot.index)
        if slot.node not in nodes or holder not in (None, papers.spec.job):
            return None
    if not papers.slots or not papers.spec.job.rpartition("-")[2].isdigit():
        return None
    if known is None:
        known = _record_of(papers, classify, now)
        if known is None:
            return None
    width = Width(nodes[papers.slots[0].node].instance_type.gpu_type, len(papers.slots))
    queue.take_back(known, papers.slots, width, generation=papers.generation, started_at=papers.started_at)
    return queue.active.get(papers.spec.job)


def _record_of(papers: JobPapers, classify: Classify, now: float) -> JobRecord | None:
    """Return a job's record as it was submitted; without one in the papers, as its specification says."""
    spec = papers.spec
    number = int(spec.job.rpartition("-")[2])
    try:
        said = json.loads(spec.record) if spec.record else {}
        content = said.get("content") or _content_of(papers)
        job_class = classify(content)
        size = float(said.get("size_gpu_hours") or job_class.size_gpu_hours * float(content["scale"]))
        return JobRecord(
            id=spec.job,
            seq=number,
            user=spec.user,
            class_name=job_class.name,
            content=content,
            arrived_at=float(said.get("arrived_at") or min(papers.started_at, now)),
            remaining_gpu_hours=size,
            size_gpu_hours=size,
        )
    except (BoaError, KeyError, TypeError, ValueError):
        # Papers that this version cannot read are worth as much as none.
        return None


def _content_of(papers: JobPapers) -> dict[str, Any]:
    """Return a job file that says what a specification of an earlier version says, at the present width."""
    spec, gpus = papers.spec, len(papers.slots)
    given = {
        "name": spec.name,
        "class": spec.class_name,
        "run": spec.run,
        "workdir": spec.workdir,
        "environment": {key: text for key, text in spec.environment.items() if not key.startswith("BOA_")},
        "stop_grace_seconds": spec.stop_grace_seconds,
        "gate": spec.gate,
        "weight": spec.weight,
        "min_gpus": gpus,
        "max_gpus": gpus,
    }
    content = dict(check_job(Document(name=spec.job, content=given, language="json")))
    # What the specification says besides goes back unchecked: an earlier version has checked it.
    kept = {key: value for key, value in spec.to_document().items() if key in content.keys() - given.keys()}
    kept["code"] = {"digest": spec.code} if spec.code else None
    return content | {
        key: list(value) if isinstance(value, tuple) else value for key, value in kept.items() if value
    }
