"""Gavel's traces: jobs of 26 kinds with measured steps per second on V100, P100 and K80 GPUs.

A class is a kind of job: a model at a batch per GPU. Gavel's jobs keep their width; here a job may use every
measured width, and its work, the steps of all workers together, is the same at each width. This counts
throughput, not statistical efficiency, which was not measured. Size is steps / (steps per second on one GPU
of the first type), speed at n is steps per second at n divided by steps per second on one GPU.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.inputs.tables import TableRow
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.lab.traces.step_rates import StepsPerSecond, class_from_step_rates
from boa_daemon.text_files import read_whole_text
from boa_daemon.traces.reader import TraceJob
from boa_daemon.traces.workload import GpuSource, Options, Workload, assemble, cut

FILES = ("*.trace", "physical_cluster/*.trace", "msr/*/*.trace")
THROUGHPUTS = "simulation_throughputs.json"
GPU_TYPES: Mapping[str, GpuSource] = {
    "v100": GpuSource(instance_type="p3.8xlarge"),
    # EC2 has no instances with these GPUs any more: Google Cloud's GPU list prices, as in Gavel's paper.
    "p100": GpuSource(usd_per_gpu_hour=1.46, gpus_per_instance=4),
    "k80": GpuSource(usd_per_gpu_hour=0.45, gpus_per_instance=4),
}
_COLUMNS = {10: (0, 5, 9), 7: (0, 4, 5)}
"""Columns in a line -> positions of the kind, the steps and the arrival."""
_KEY = re.compile(r"\('(.+)', (\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A job of the trace."""

    id: str
    kind: str
    steps: float
    arrived_at_seconds: float


def import_gavel(source: Path, options: Options) -> Workload:
    """Return the workload of one trace.

    Raises:
        InputError: when a file is missing, damaged or ambiguous, or no job's kind was measured.
    """
    path = pick_file(source, FILES, options.workload)
    measured = priced(read_throughputs(_throughputs_beside(source, path)), options)
    jobs = list(_jobs(path))
    dropped: Counter[str] = Counter()
    known = [job for job in jobs if job.kind in measured and job.steps > 0]
    dropped["of a kind that was not measured"] += sum(job.kind not in measured for job in jobs)
    dropped["without steps"] += sum(job.kind in measured and job.steps <= 0 for job in jobs)
    kept = cut(known, lambda job: job.arrived_at_seconds, options, dropped)
    steps: dict[str, list[float]] = defaultdict(list)
    for _, job in kept:
        steps[job.kind].append(job.steps)
    mean = {kind: sum(values) / len(values) for kind, values in sorted(steps.items())}
    return assemble(
        f"Gavel {path.name}",
        [
            TraceJob(job.id, seconds, class_name_of(job.kind), job.steps / mean[job.kind])
            for seconds, job in kept
        ],
        [
            class_from_step_rates(class_name_of(kind), count, measured[kind], options)
            for kind, count in mean.items()
        ],
        GPU_TYPES,
        path=path,
        options=options,
        dropped=dropped,
        notes=["jobs may change their width, which Gavel's do not; the widths in the trace are not used"],
    )


def read_throughputs(path: Path) -> dict[str, StepsPerSecond]:
    """Return the steps per second of each kind running alone, without widths that could not run.

    Raises:
        InputError: when the file cannot be read or is not such a table.
    """
    try:
        document: dict[str, Any] = json.loads(read_whole_text(path))
        found: dict[str, StepsPerSecond] = defaultdict(lambda: defaultdict(dict))
        for gpu_type, kinds in document.items():
            for key, partners in kinds.items():
                match = _KEY.fullmatch(key)
                rate = float(partners["null"])
                if match is not None and rate > 0.0 and not gpu_type.endswith("_unconsolidated"):
                    found[match[1]][gpu_type][int(match[2])] = rate
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"no table of throughputs: {error}", file=path, hint="Expected TYPE -> ('KIND', GPUS) -> 'null'"
        ) from error
    return {
        kind: {name: dict(sorted(w.items())) for name, w in rates.items()} for kind, rates in found.items()
    }


def _throughputs_beside(source: Path, path: Path) -> Path:
    """Return the table of throughputs in the source, or in a directory above the trace."""
    for home in (source, *path.parents[:3]):
        if (home / THROUGHPUTS).is_file():
            return home / THROUGHPUTS
    raise InputError(f"no {THROUGHPUTS} beside the trace", file=path)


def priced(measured: Mapping[str, StepsPerSecond], options: Options) -> dict[str, StepsPerSecond]:
    """Return the kinds that were measured on one GPU of the first type, on the priced types."""
    types = [*GPU_TYPES, *(name for name in options.gpu_types if name not in GPU_TYPES)]
    usable = {
        kind: {name: rates[name] for name in types if name in rates} for kind, rates in measured.items()
    }
    return {kind: rates for kind, rates in usable.items() if 1 in rates.get(types[0], {})}


def class_name_of(kind: str) -> str:
    """Return the class name of a kind: ``ResNet-18 (batch size 16)`` is ``resnet-18-b16``."""
    return re.sub(r" \(batch size (\d+)\)", r"-b\1", kind).lower()


def _jobs(path: Path) -> Iterator[_Job]:
    """Yield the jobs of the layout with ten columns or the older one with seven; ids are line numbers."""
    for number, line in enumerate(io.StringIO(read_whole_text(path)), 1):
        cells = line.rstrip("\n").split("\t")
        if len(cells) not in _COLUMNS:
            raise InputError(f"{len(cells)} columns where 10 or 7 are known", file=path, line=number)
        kind, steps, arrival = _COLUMNS[len(cells)]
        row = TableRow({"kind": cells[kind], "steps": cells[steps], "arrival": cells[arrival]}, path, number)
        yield _Job(
            id=str(number - 1),
            kind=row.text("kind"),
            steps=row.number("steps"),
            arrived_at_seconds=row.number("arrival"),
        )
