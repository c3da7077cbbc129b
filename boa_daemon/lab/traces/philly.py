"""Microsoft's Philly trace: the original job log (JSON), and the extract in Pollux's repository (CSV).

Times are local and without a zone; across a daylight-saving change they are off by an hour. Offsets are
honoured where a file has them. The original log lists attempts: a job's GPU-time is their sum, and its width
is that of the widest. Jobs without a finished attempt are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.inputs.tables import read_batches
from boa_daemon.lab.traces.instants import column_seconds, run_seconds
from boa_daemon.lab.traces.rigid import RigidJob, rigid_jobs, rigid_workload
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.text_files import read_whole_text
from boa_daemon.time_text import instant_seconds
from boa_daemon.traces.workload import Options, Workload

FILES = ("cluster_job_log*", "philly*.csv", "*.csv", "*.json")
_UNKNOWN = (None, "", "None")


def import_philly(source: Path, options: Options) -> Workload:
    """Return the workload of either form of the trace.

    Raises:
        InputError: when the file is missing or damaged.
    """
    path = pick_file(source, FILES, options.workload)
    dropped: Counter[str] = Counter()
    is_json = path.suffix != ".csv" and read_whole_text(path).lstrip().startswith("[")
    jobs = _log_jobs(path) if is_json else _extract_jobs(path)
    return rigid_workload(f"Philly {path.name}", jobs, options, path=path, dropped=dropped)


def _extract_jobs(path: Path) -> Iterator[RigidJob]:
    """Yield the jobs of Pollux's extract; it has no ids, so the line number is the id."""
    for rows in read_batches(path, ("timestamp", "duration", "num_gpus")):
        yield from rigid_jobs(
            [f"philly-{line}" for line in rows.lines],
            column_seconds(rows, "timestamp"),
            rows.wholes("num_gpus"),
            rows.durations("duration"),
        )


def _log_jobs(path: Path) -> Iterator[RigidJob]:
    """Yield the jobs of the original log."""
    try:
        entries = json.loads(read_whole_text(path))
    except json.JSONDecodeError as error:
        raise InputError(
            f"not JSON: {error.msg}", file=path, line=error.lineno, hint="The file may be cut short"
        ) from error
    for number, entry in enumerate(entries):
        try:
            yield _log_job(entry)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            said = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            raise InputError(
                f"entry {number} is not a job of Philly's log: {said}",
                file=path,
                hint="Needed: jobid, submitted_time, attempts of start_time, end_time, detail of gpus",
            ) from error


def _log_job(entry: dict[str, Any]) -> RigidJob:
    widest, gpu_seconds = 0, 0.0
    for attempt in entry["attempts"]:
        gpus = sum(len(node["gpus"]) for node in attempt["detail"])
        widest = max(widest, gpus)
        started, ended = attempt["start_time"], attempt["end_time"]
        if started not in _UNKNOWN and ended not in _UNKNOWN:
            gpu_seconds += run_seconds(started, ended) * gpus
    return RigidJob(
        id=str(entry["jobid"]),
        submitted_at_seconds=instant_seconds(entry["submitted_time"]),
        gpus=widest,
        gpu_seconds=gpu_seconds,
    )
