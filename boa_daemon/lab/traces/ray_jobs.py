"""Ray's jobs: the dashboard's ``/api/jobs/``, ``ray list jobs --format json``, or ``ray job list``.

Ray's lists state no GPUs: a job's GPUs are those of its metadata (``num_gpus``), of its entry point, or the
number that the option `gpus` states for all others.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.json_records import Record, read_records
from boa_daemon.lab.traces.rigid import GPU_TYPE, RigidJob, rigid_workload
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.text_files import is_json, open_text, read_whole_text
from boa_daemon.traces.workload import Options, Workload

FILES = ("*jobs*.json", "*.json", "*.txt")
COMMAND = "curl http://HEAD:8265/api/jobs/ > jobs.json"
_METADATA = ("num_gpus", "gpus", "gpu_count", "world_size")
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_OPEN = {"RUNNING": "that still run", "PENDING": "that still wait"}
_ENUM = re.compile(r"<\w+\.\w+: ('[^']*')>")


def import_ray(source: Path, options: Options) -> Workload:
    """Return the workload of the jobs in a list.

    Raises:
        InputError: when the file is missing or damaged, or a job states no GPUs and the options neither.
    """
    path = pick_file(source, FILES, options.workload)
    dropped: Counter[str] = Counter()
    assumed: Counter[str] = Counter()
    jobs = list(_jobs(path, options, dropped, assumed))
    said = []
    if assumed["gpus"]:
        said.append(f"{assumed['gpus']} jobs state no GPUs: {options.gpus} each was assumed, as --gpus says")
    if assumed["failed"]:
        said.append(f"{assumed['failed']} jobs failed or were stopped: they count as they ran")
    return rigid_workload(f"Ray {path.name}", jobs, options, path=path, dropped=dropped, said=said)


def _jobs(path: Path, options: Options, dropped: Counter[str], assumed: Counter[str]) -> Iterator[RigidJob]:
    for one in _records(path):
        state = one.text("status").upper()
        if state in _OPEN:
            dropped[_OPEN[state]] += 1
            continue
        if state not in _ENDED:
            raise one.refuse(f"status {state!r} is none of {', '.join((*_ENDED, *_OPEN))}")
        start, end = one.seconds("start_time", zone=UTC), one.seconds("end_time", zone=UTC)
        if start is None:
            raise one.refuse("start_time is missing")
        gpus = _gpus(one)
        if gpus is None:
            if options.gpus is None:
                hint = (
                    "Give --gpus N for the jobs that state none; new jobs state them with "
                    """ray job submit --metadata-json '{"num_gpus": "8"}'"""
                )
                raise one.refuse("it states no GPUs", hint=hint)
            gpus = options.gpus
            assumed["gpus"] += 1
        seconds = one.run(start, end)
        assumed["failed"] += bool(state != "SUCCEEDED" and gpus and seconds)
        name = one.get("submission_id") or one.get("job_id")
        if not isinstance(name, str) or not name:
            raise one.refuse("it has neither submission_id nor job_id")
        kind = one.get("metadata", "gpu_type")
        yield RigidJob(
            id=name,
            submitted_at_seconds=start,
            gpus=gpus,
            gpu_seconds=seconds * gpus,
            gpu_type=str(kind).strip().lower() if kind else GPU_TYPE,
        )


def _gpus(one: Record) -> float | None:
    """Return the GPUs that a job states, or None."""
    for key in _METADATA:
        if one.get("metadata", key) is not None:
            return one.whole("metadata", key, default=0)
    found = one.get("entrypoint_num_gpus")
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e6:
        raise one.refuse(f"entrypoint_num_gpus must be a number; got {found!r}")
    # The entry point alone often has none, and starts workers that do.
    return float(found) or None


def _records(path: Path) -> Iterator[Record]:
    with open_text(path) as file:
        is_printed = "JobDetails(" in file.read(4096)
    if is_json(path) and not is_printed:
        hint = f"Write the file with {COMMAND}"
        for one in read_records(path, ("jobs", "result", "data"), noun="job", hint=hint):
            yield from _by_id(one)
        return
    yield from _printed(path)


def _by_id(one: Record) -> Iterator[Record]:
    """Yield a job, or the jobs of an older answer: an object of them by id."""
    if (
        one.get("status") is None
        and one.content
        and all(isinstance(job, dict) and "status" in job for job in one.content.values())
    ):
        for name, job in one.content.items():
            yield Record({"submission_id": name, **job}, one.path, f"job {name}")
    else:
        yield one


def _printed(path: Path) -> Iterator[Record]:
    """Yield the jobs of what ``ray job list`` prints: JobDetails as Python shows them."""
    text = read_whole_text(path)
    start = text.find("[JobDetails(")
    if start < 0:
        raise InputError("no list of Ray's jobs", file=path, hint=f"Write the file with {COMMAND}")
    try:
        shown = ast.parse(_ENUM.sub(r"\1", text[start : text.rindex("]") + 1]), mode="eval").body
        calls = shown.elts if isinstance(shown, ast.List) else [shown]
        found = [
            {str(word.arg): _value(word.value) for word in call.keywords}
            for call in calls
            if isinstance(call, ast.Call)
        ]
        if len(found) < len(calls):
            raise ValueError
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        problem = "what `ray job list` printed is not whole"
        raise InputError(problem, file=path, hint=f"Write the file with {COMMAND}") from None
    for number, content in enumerate(found):
        yield Record(content, path, f"job {number} ({content.get('submission_id') or content.get('job_id')})")


def _value(node: ast.expr) -> Any:
    """Return a value of a printed job; None for one that is no literal."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
