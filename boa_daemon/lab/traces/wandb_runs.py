"""Runs of Weights & Biases: a CSV export of a table of runs, or JSON as ``wandb.Api().runs()`` gives them.

A run is a job. It was created at `Created` (`created_at`) and ran for `Runtime` (`_runtime`) seconds; its
GPUs are `GPU Count` (`gpu_count`, also of the metadata or the config), or the number that the option `gpus`
states.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from pathlib import Path
from typing import Any

from boa_daemon.inputs.tables import TableRow, read_rows
from boa_daemon.lab.traces.instants import row_seconds, zone_of
from boa_daemon.lab.traces.json_records import read_records
from boa_daemon.lab.traces.kubernetes import gpu_name
from boa_daemon.lab.traces.rigid import GPU_TYPE, RigidJob, rigid_workload
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.text_files import is_json, is_parquet
from boa_daemon.traces.workload import Options, Workload

FILES = ("wandb*.csv", "wandb*.json", "*.csv", "*.json")
_OPEN = {"running": "that still run", "pending": "that still wait", "preempting": "that still run"}
_CREATED = ("createdat", "created", "createdtimestamp", "startedat", "starttime", "timestamp")
_RUNTIME = (
    *("runtime", "duration", "summaryruntime", "summarywandbruntime", "summarymetricsruntime"),
    *("computeseconds", "runtimeseconds"),
)
_GPUS = (
    "gpucount",
    "numgpus",
    "gpus",
    "ngpus",
    "metadatagpucount",
    "confignumgpus",
    "configworldsize",
    "worldsize",
)
_TYPE = ("gputype", "gpu", "metadatagpu", "systemgpu")
_ID = ("id", "runid", "path", "name")


def import_wandb(source: Path, options: Options) -> Workload:
    """Return the workload of the runs in an export.

    Raises:
        InputError: when the file is missing or damaged, or a run states no GPUs and the options neither.
    """
    path = pick_file(source, FILES, options.workload)
    zone = zone_of(options.time_zone)
    dropped: Counter[str] = Counter()
    assumed: Counter[str] = Counter()
    rows = _of_json(path) if not is_parquet(path) and is_json(path) else _of_csv(path)
    jobs = [job for row in rows if (job := _job(row, zone, options, dropped, assumed))]
    said = []
    if assumed["gpus"]:
        said.append(f"{assumed['gpus']} runs state no GPUs: {options.gpus} each was assumed, as --gpus says")
    if assumed["failed"]:
        said.append(f"{assumed['failed']} runs crashed, failed or were killed: they count as they ran")
    said.append("a run counts as a job: where every rank logs a run of its own, a job counts once per rank")
    return rigid_workload(f"W&B {path.name}", jobs, options, path=path, dropped=dropped, said=said)


def _of_csv(path: Path) -> Iterator[TableRow]:
    """Yield the rows with plain names of columns."""
    for row in read_rows(path, ()):
        cells: dict[str, str] = {}
        for name, cell in row.cells.items():
            # Of the columns that mean the same, the first with a value counts.
            plain = _plain(name)
            cells[plain] = cells.get(plain) or cell
        yield TableRow(cells, path, row.line)


def _of_json(path: Path) -> Iterator[TableRow]:
    """Yield the runs as rows: nested keys become one, such as ``metadatagpucount``."""
    hint = "Write a list of objects with created_at, runtime, state and gpu_count"
    for one in read_records(path, ("runs", "data"), noun="run", hint=hint):
        yield TableRow(dict(_flat(one.content)), path, 0, one.where)


def _flat(content: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        name = before + _plain(str(key))
        if isinstance(value, Mapping):
            if depth < 3:
                yield from _flat(value, name, depth + 1)
        elif value is not None and not isinstance(value, list):
            yield name, str(value)


def _plain(name: str) -> str:
    """Return the name of a column without marks: ``gpucount`` for ``GPU Count``."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _job(
    row: TableRow, zone: tzinfo, options: Options, dropped: Counter[str], assumed: Counter[str]
) -> RigidJob | None:
    """Return the job of a run, or None for one that is left out."""
    state = row.cells.get("state", "finished").strip().lower()
    if state in _OPEN:
        dropped[_OPEN[state]] += 1
        return None
    created = _column(row, _CREATED, "Created")
    runtime = _column(row, _RUNTIME, "Runtime")
    gpus = next((name for name in _GPUS if row.cells.get(name, "").strip()), None)
    if gpus is None and options.gpus is None:
        hint = "Add the column GPU Count to the table before the export, or give --gpus N for all runs"
        raise row.refuse("the run states no GPUs", hint=hint)
    number = (options.gpus or 0) if gpus is None else row.whole(gpus)
    assumed["gpus"] += gpus is None
    seconds = row.duration(runtime) if row.cells[runtime].strip() else 0.0
    assumed["failed"] += bool(state in ("crashed", "failed", "killed") and number and seconds)
    kind = next((row.cells[name].strip() for name in _TYPE if row.cells.get(name, "").strip()), "")
    return RigidJob(
        id=row.text(_column(row, _ID, "ID")),
        submitted_at_seconds=row_seconds(row, created, zone),
        gpus=number,
        gpu_seconds=seconds * number,
        gpu_type=gpu_name(kind) if kind else GPU_TYPE,
    )


def _column(row: TableRow, names: tuple[str, ...], spoken: str) -> str:
    """Return the first of some columns that the row has a value in, else the first that it has."""
    filled = next((name for name in names if row.cells.get(name, "").strip()), None)
    found = filled or next((name for name in names if name in row.cells), None)
    if found is None:
        raise row.refuse(f"the run has no {spoken}", hint="Add the column to the table before the export")
    return found
