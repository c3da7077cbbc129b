"""Orders of a user for an active job: another width or weight, a hold, or a rehearsed interruption.

An ordered width replaces the limits in the job's file, which are stored beside it. The policy then plans the
job at that width only; caps and budgets still apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.errors import BoaError, InputError
from boa_daemon.store.records import JobRecord
from policies.model import NodeId

ORDERED, IN_FILE, HELD_BY = "ordered_gpus", "gpus_in_file", "held_by"
MOST_WEIGHT = 1e6
Note = Callable[[JobRecord], None]
"""Notes the order in the log of orders, in the transaction that changes the job."""


class CannotRehearse(BoaError):
    """The job has no node that could be interrupted."""


def resize(
    daemon: Daemon, record: JobRecord, gpus: int | None, *, note: Note = lambda _job: None
) -> JobRecord | None:
    """Make a job run on `gpus` GPUs, or, with None, within the limits of its file.

    Return the changed job, or None when it is over.

    Raises:
        InputError: when its class has no such width, or the job would start over.
    """
    if gpus is not None and record.is_rigid and record.slots:
        raise InputError(
            f"job {record.id} is not known to be elastic: it would start over on {gpus} GPUs",
            hint="Set elastic: true in its file if it saves and resumes at any width, or submit it again",
        )
    content = _with_width(record.content, gpus)
    # Raise before anything is changed if no width is left.
    daemon.planner.class_for({**content, "elastic": not record.is_rigid})

    def how(job: JobRecord) -> JobRecord:
        found = daemon.planner.class_for({**content, "elastic": not job.is_rigid})
        return replace(job, content=content, class_name=found.name)

    return daemon.change(record.id, how, note)


def _with_width(content: Mapping[str, Any], gpus: int | None) -> Mapping[str, Any]:
    """Return a job file's content with an ordered width, or as submitted when `gpus` is None."""
    least, most = content.get(IN_FILE) or (content.get("min_gpus"), content.get("max_gpus"))
    plain = {key: value for key, value in content.items() if key not in (ORDERED, IN_FILE)}
    if gpus is None:
        return {**plain, "min_gpus": least, "max_gpus": most}
    return {**plain, "min_gpus": gpus, "max_gpus": gpus, ORDERED: gpus, IN_FILE: [least, most]}


def hold(daemon: Daemon, record: JobRecord, *, user: str, note: Note = lambda _job: None) -> JobRecord | None:
    """Make a job wait until it is released; a running one saves and stops first. None when it is over.

    Raises:
        InputError: when it runs and would lose its work.
    """
    if record.is_rigid and record.slots:
        raise InputError(
            f"job {record.id} is not known to be elastic: it would lose its work",
            hint="Set elastic: true in its file if it saves and resumes, or cancel it",
        )
    return daemon.change(record.id, lambda job: replace(job, content={**job.content, HELD_BY: user}), note)


def release(daemon: Daemon, record: JobRecord, *, note: Note = lambda _job: None) -> JobRecord | None:
    """End a hold; None when the job is over."""

    def how(job: JobRecord) -> JobRecord:
        return replace(job, content={key: value for key, value in job.content.items() if key != HELD_BY})

    return daemon.change(record.id, how, note)


def weigh(
    daemon: Daemon, record: JobRecord, weight: float, *, note: Note = lambda _job: None
) -> JobRecord | None:
    """Set the worth of an hour of a job's time, as `weight` in its file; None when it is over."""
    return daemon.change(record.id, lambda job: replace(job, content={**job.content, "weight": weight}), note)


def interrupt(daemon: Daemon, record: JobRecord) -> tuple[NodeId, float]:
    """Rehearse a spot interruption of a job's first node; return the node and the instant of its end.

    Raises:
        CannotRehearse: when the job is on no node, or the cloud cannot rehearse.
    """
    if not record.slots:
        raise CannotRehearse(f"job {record.id} is on no node now: there is nothing to interrupt")
    node = min(slot.node for slot in record.slots)
    at = daemon.rehearse_end(node)
    if at is None:
        raise CannotRehearse(f"the cloud cannot interrupt {node}: it is gone, or only observed")
    return node, at


def others_on(daemon: Daemon, record: JobRecord) -> list[JobRecord]:
    """Return other users' jobs on the first node of a job, which would be interrupted with it."""
    if daemon.storage is None or not record.slots:
        return []
    queue, node = daemon.storage.queue, min(slot.node for slot in record.slots)
    jobs = (queue.active.get(name) for name in queue.jobs_on(node))
    return [job for job in jobs if job is not None and job.user != record.user]
