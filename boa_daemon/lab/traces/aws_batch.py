"""AWS Batch's jobs: the answer of ``aws batch describe-jobs``, also several answers in one file.

A job's width is the GPUs of its container, x its nodes for jobs of several nodes. It ran from `startedAt` to
`stoppedAt`, or for the sum of its attempts where they say so. The parent of an array is no job of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

from boa_daemon.lab.traces.json_records import Record, read_records
from boa_daemon.lab.traces.rigid import GPU_TYPE, RigidJob, rigid_workload
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.traces.workload import Options, Workload

FILES = ("*batch*.json", "*jobs*.json", "*.json")
COMMAND = "aws batch describe-jobs --jobs ID ID > batch.json"
_ENDED = ("SUCCEEDED", "FAILED")
_STATES = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING", *_ENDED)
_KUBERNETES = "nvidia.com/gpu"


def import_aws_batch(source: Path, options: Options) -> Workload:
    """Return the workload of the jobs in a file.

    Raises:
        InputError: when the file is missing or damaged, or states no GPUs, as `list-jobs` does.
    """
    path = pick_file(source, FILES, options.workload)
    dropped: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    jobs = list(_jobs(path, dropped, failed))
    said = [f"{failed['jobs']} jobs failed: they count as they ran"] if failed["jobs"] else []
    return rigid_workload(f"AWS Batch {path.name}", jobs, options, path=path, dropped=dropped, said=said)


def _jobs(path: Path, dropped: Counter[str], failed: Counter[str]) -> Iterator[RigidJob]:
    keys = ("jobs", "jobSummaryList", "jobDetails")
    for one in read_records(path, keys, noun="job", hint=f"Write the file with {COMMAND}"):
        if one.get("jobDefinition") is None and one.get("container") is None:
            hint = f"Lists of jobs state no GPUs: write the file with {COMMAND}"
            raise one.refuse("it has neither jobDefinition nor container", hint=hint)
        state = one.text("status")
        if state not in _STATES:
            raise one.refuse(f"status {state!r} is none of AWS Batch's")
        if one.get("arrayProperties", "size") is not None:
            dropped["that are parents of arrays"] += 1
            continue
        if one.get("nodeProperties") is None and one.get("nodeDetails", "isMainNode") is not None:
            dropped["that are nodes of a job"] += 1
            continue
        if state not in _ENDED:
            dropped["that still run" if state in ("STARTING", "RUNNING") else "that still wait"] += 1
            continue
        gpus = _gpus(one)
        seconds = _seconds(one)
        if state == "FAILED" and gpus and seconds:
            failed["jobs"] += 1
        created = one.seconds("createdAt", zone=UTC)
        if created is None:
            raise one.refuse("createdAt is missing")
        yield RigidJob(
            id=one.text("jobId"),
            submitted_at_seconds=created,
            gpus=gpus,
            gpu_seconds=seconds * gpus,
            gpu_type=_type_of(one),
        )


def _gpus(one: Record) -> int:
    """Return the GPUs of a job: those of its container, or of its nodes together."""
    if one.get("nodeProperties") is None:
        return _of_containers(one)
    nodes = one.whole("nodeProperties", "numNodes", default=1)
    total = 0
    for part in one.objects("nodeProperties", "nodeRangeProperties"):
        first, _, last = part.text("targetNodes").partition(":")
        try:
            low = int(first) if first else 0
            high = (int(last) if last else nodes - 1) if ":" in part.text("targetNodes") else low
        except ValueError:
            raise one.refuse(f"targetNodes {part.text('targetNodes')!r} is no range of nodes") from None
        total += max(0, min(high, nodes - 1) - low + 1) * _of_containers(part)
    return total


def _of_containers(one: Record) -> int:
    """Return the GPUs of the containers of a job, on ECS or on EKS."""
    found = _of_resources(one, "container")
    for task in one.objects("ecsProperties", "taskProperties"):
        found += sum(_of_resources(part) for part in task.objects("containers"))
    for part in one.objects("eksProperties", "podProperties", "containers"):
        for key in ("limits", "requests"):
            if part.get("resources", key, _KUBERNETES) is not None:
                found += part.whole("resources", key, _KUBERNETES, default=0)
                break
    return found


def _of_resources(one: Record, *at: str) -> int:
    return sum(
        part.whole("value", default=0)
        for part in one.objects(*at, "resourceRequirements")
        if part.get("type") == "GPU"
    )


def _type_of(one: Record) -> str:
    """Return the machine that a job of several nodes names; other jobs do not say it."""
    kinds = {
        str(part.get("container", "instanceType"))
        for part in one.objects("nodeProperties", "nodeRangeProperties")
        if part.get("container", "instanceType")
    }
    return next(iter(kinds)) if len(kinds) == 1 else GPU_TYPE


def _seconds(one: Record) -> float:
    """Return the run time of all attempts together."""
    attempts = [
        (part.seconds("startedAt", zone=UTC), part.seconds("stoppedAt", zone=UTC))
        for part in one.objects("attempts")
    ]
    if attempts and all(start is not None and end is not None for start, end in attempts):
        return sum(one.run(start, end) for start, end in attempts)
    return one.run(one.seconds("startedAt", zone=UTC), one.seconds("stoppedAt", zone=UTC))
