"""What a user may order of a job that is there: another width, and a rehearsal of an interruption.

A width that was ordered takes the place of the limits in the job's file, which are kept beside it: the policy
plans the job by its class at that width alone, caps and budgets hold as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from boa_daemon.daemon.loop import Daemon
from boa_daemon.errors import BoaError, InputError
from boa_daemon.store.records import JobRecord
from policies.model import NodeId

ORDERED, IN_FILE = "ordered_gpus", "gpus_in_file"


class CannotRehearse(BoaError):
    """Nothing of the job could be interrupted."""


def resize(daemon: Daemon, record: JobRecord, gpus: int | None) -> JobRecord | None:
    """Have a job run on so many GPUs, None for what its file allows; None where it is over by now.

    Raises:
        InputError: when its class has no such width, or it would begin anew.
    """
    if gpus is not None and record.is_rigid and record.slots:
        raise InputError(
            f"job {record.id} is not known to be elastic: it would begin anew on {gpus} GPUs",
            hint="Set elastic: true in its file if it saves and resumes at any width, or submit it again",
        )
    content = _with_width(record.content, gpus)
    # Refused before anything is changed, where no width is left.
    daemon.planner.class_for({**content, "elastic": not record.is_rigid})

    def how(job: JobRecord) -> JobRecord:
        found = daemon.planner.class_for({**content, "elastic": not job.is_rigid})
        return replace(job, content=content, class_name=found.name)

    return daemon.change(record.id, how)


def _with_width(content: Mapping[str, Any], gpus: int | None) -> Mapping[str, Any]:
    """Return the content of a job's file with a width that was ordered, or as it was submitted."""
    least, most = content.get(IN_FILE) or (content.get("min_gpus"), content.get("max_gpus"))
    plain = {key: value for key, value in content.items() if key not in (ORDERED, IN_FILE)}
    if gpus is None:
        return {**plain, "min_gpus": least, "max_gpus": most}
    return {**plain, "min_gpus": gpus, "max_gpus": gpus, ORDERED: gpus, IN_FILE: [least, most]}


def interrupt(daemon: Daemon, record: JobRecord) -> tuple[NodeId, float]:
    """Have the cloud announce that it takes back the first node of a job; return the node, and when.

    Raises:
        CannotRehearse: when the job is on no node, or the cloud cannot do that.
    """
    if not record.slots:
        raise CannotRehearse(f"job {record.id} is on no node now: there is nothing to interrupt")
    node = min(slot.node for slot in record.slots)
    at = daemon.rehearse_end(node)
    if at is None:
        raise CannotRehearse(f"the cloud cannot announce the end of {node}: it is gone, or only observed")
    return node, at


def others_on(daemon: Daemon, record: JobRecord) -> list[JobRecord]:
    """Return the jobs of others that share the first node of a job, and would be interrupted with it."""
    if daemon.books is None or not record.slots:
        return []
    queue, node = daemon.books.queue, min(slot.node for slot in record.slots)
    jobs = (queue.active.get(name) for name in queue.jobs_on(node))
    return [job for job in jobs if job is not None and job.user != record.user]
