"""Write ``trace.csv`` and ``classes.yaml``, each completely or not at all.

Numbers in the class file have 6 significant digits, more than any measurement; times and scales in the trace
are written so that reading returns the same numbers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from boa_daemon.errors import BoaError
from boa_daemon.job.whole_files import flush, whole_file
from boa_daemon.traces.reader import COLUMNS, Trace
from boa_daemon.traces.workload import GpuSource, Workload
from policies.model import JobClass, Phase

TRACE_FILE = "trace.csv"
CLASSES_FILE = "classes.yaml"


class _Flow(dict[Any, Any]):
    """A mapping that is written on one line."""


class _Dumper(yaml.CSafeDumper):
    """Writes `_Flow` on one line and everything else in blocks."""


_Dumper.add_representer(
    _Flow,
    lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True),
)


def write_workload(workload: Workload, directory: Path) -> tuple[Path, Path]:
    """Write the trace and the class file into `directory`; return their paths.

    Both new files are complete before either replaces an old one.

    Raises:
        BoaError: when a file cannot be written.
    """
    trace, classes = directory / TRACE_FILE, directory / CLASSES_FILE
    _write({classes: classes_text(workload), trace: trace_text(workload.trace)})
    return trace, classes


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace without a class file, completely or not at all.

    Raises:
        BoaError: when it cannot be written.
    """
    _write({path: trace_text(trace)})


def _write(texts: Mapping[Path, str]) -> None:
    """Write texts to files; all new files are complete before any replaces an old one."""
    try:
        with ExitStack() as staged:
            for path, text in texts.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                part = staged.enter_context(whole_file(path, durable=False))
                part.write_text(text, encoding="utf-8", newline="")
                flush(part)
    except OSError as error:
        where = error.filename or next(iter(texts)).parent
        raise BoaError(f"cannot write {where}: {error.strerror}") from error


def trace_text(trace: Trace) -> str:
    """Return the trace as CSV; the column `scale` is left out if every scale is 1."""
    scaled = any(job.scale != 1.0 for job in trace.jobs)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS if scaled else COLUMNS[:3])
    for job in trace.jobs:
        row = [job.id, _shortest(job.arrived_at_seconds), job.class_name]
        writer.writerow([*row, _shortest(job.scale)] if scaled else row)
    return buffer.getvalue()


def classes_text(workload: Workload) -> str:
    """Return the classes and GPU types as the YAML of a problem file."""
    document: dict[str, Any] = {}
    if workload.gpu_types:
        document["gpu_types"] = {name: _gpu(gpu) for name, gpu in workload.gpu_types.items()}
    document["classes"] = [_class(job_class, workload.rates_known) for job_class in workload.classes]
    body = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100_000, allow_unicode=True)
    return f"# {workload.source}. Written by `boa trace`.\n{body}"


def _gpu(gpu: GpuSource) -> _Flow:
    """Return the entry of one GPU type."""
    if gpu.usd_per_gpu_hour is not None:
        entry = _Flow(usd_per_gpu_hour=gpu.usd_per_gpu_hour)
    else:
        entry = _Flow(instance_type=gpu.instance_type)
    for key in ("gpus_per_instance", "link_gigabits_per_second", "places_per_gpu"):
        if getattr(gpu, key) is not None:
            entry[key] = getattr(gpu, key)
    return entry


def _class(job_class: JobClass, rates_known: bool) -> dict[str, Any]:
    """Return the entry of one class, without an unknown rate."""
    entry: dict[str, Any] = {"name": job_class.name}
    if rates_known:
        entry["arrivals_per_hour"] = _round(job_class.arrivals_per_hour)
    if job_class.weight != 1.0:
        entry["weight"] = _round(job_class.weight)
    if job_class.startup_hours:
        entry["startup_hours"] = _round(job_class.startup_hours)
    if job_class.rescale_hours:
        entry["rescale_hours"] = _round(job_class.rescale_hours)
    if job_class.may_share:
        entry["shares_gpu"] = True
    entry["phases"] = [_phase(phase) for phase in job_class.phases]
    return entry


def _phase(phase: Phase) -> _Flow:
    """Return the entry of one phase: its size and a table per GPU type."""
    tables = {}
    for gpu_type, curve in phase.speedups.items():
        widths = curve.whole_widths()
        speeds = curve.speed_at(widths)
        pairs = zip(widths.tolist(), speeds.tolist(), strict=True)
        tables[gpu_type] = _Flow(table=_Flow({width: _round(speed) for width, speed in pairs}))
    return _Flow(size_gpu_hours=_round(phase.size_gpu_hours), speedup=_Flow(tables))


def _round(value: float) -> float:
    """Return the value at 6 significant digits."""
    return float(f"{value:.6g}")


def _shortest(value: float) -> str:
    """Return the shortest text that parses to the same number."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
