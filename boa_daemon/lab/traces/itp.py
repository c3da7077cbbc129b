"""Microsoft's ITP trace: raw (width and duration), or with the models that ElasticFlow's authors drew.

With models and ElasticFlow's throughputs, a class is a model at a global batch, which is the same at every
width. Size is iterations / (steps per second on one GPU), speed at n is steps per second at n divided by
steps per second on one GPU. Without throughputs a job keeps its width.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from boa_daemon.errors import InputError
from boa_daemon.inputs.tables import TableRow, header_of, read_rows
from boa_daemon.lab.traces.rigid import RigidJob, rigid_workload
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.lab.traces.step_rates import StepsPerSecond, class_from_step_rates
from boa_daemon.traces.reader import TraceJob
from boa_daemon.traces.workload import GpuSource, Options, Workload, assemble, cut

FILES = ("*.csv", "elasticflow/*.csv", "raw/*.csv")
GPU_TYPES: Mapping[str, GpuSource] = {
    "t4": GpuSource(instance_type="g4dn.12xlarge"),
    "a100": GpuSource(instance_type="p4d.24xlarge"),
}
Model: TypeAlias = tuple[str, int]
"""A model's name and its global batch, samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrainingJob:
    """A job with a model; `iterations` are its optimizer steps."""

    id: str
    submitted_at_seconds: float
    model: Model
    iterations: float


def import_itp(source: Path, options: Options) -> Workload:
    """Return the workload of one cluster.

    Raises:
        InputError: when a file is missing, damaged or ambiguous, or no job's model was measured.
    """
    path = pick_file(source, FILES, options.workload)
    if options.profiles is None:
        return rigid_workload(f"ITP {path.name}", _raw_jobs(path), options, path=path, dropped=Counter())
    if "model_name" not in header_of(path):
        raise InputError(
            "this trace names no models, so --profiles cannot apply",
            file=path,
            hint="Leave --profiles out, or take the trace with model_name, num_iteration and batch_size",
        )
    dropped: Counter[str] = Counter()
    measured = _priced(read_throughputs(options.profiles), options)
    jobs = list(_training_jobs(path))
    zero = min(job.submitted_at_seconds for job in jobs)
    known = [job for job in jobs if job.model in measured and job.iterations > 0]
    dropped["without iterations"] += sum(job.iterations == 0 for job in jobs)
    dropped["of a model and batch that were not measured"] += sum(job.model not in measured for job in jobs)
    kept = cut(known, lambda job: job.submitted_at_seconds - zero, options, dropped)
    iterations: dict[Model, list[float]] = defaultdict(list)
    for _, job in kept:
        iterations[job.model].append(job.iterations)
    mean = {model: sum(values) / len(values) for model, values in sorted(iterations.items())}
    return assemble(
        f"ITP {path.name} with ElasticFlow's throughputs",
        [
            TraceJob(job.id, seconds, _name(job.model), job.iterations / mean[job.model])
            for seconds, job in kept
        ],
        [
            class_from_step_rates(_name(model), steps, measured[model], options)
            for model, steps in mean.items()
        ],
        GPU_TYPES,
        path=path,
        options=options,
        dropped=dropped,
    )


def read_throughputs(directory: Path) -> dict[Model, StepsPerSecond]:
    """Return the steps per second in ``throughputs_TYPE/MODEL.csv``.

    An empty, nan or zero cell is a width without a measurement, and is left out.

    Raises:
        InputError: when there is no such file, or one is damaged.
    """
    found: dict[Model, StepsPerSecond] = defaultdict(dict)
    for path in sorted(directory.glob("throughputs_*/*.csv")):
        gpu_type = path.parent.name.removeprefix("throughputs_").lower()
        for row in read_rows(path, ("global_batch_size", "1")):
            widths = {int(column): _measured(row, column) for column in row.cells if column.isdigit()}
            steps = {gpus: value for gpus, value in sorted(widths.items()) if value > 0}
            if steps:
                found[path.stem, row.whole("global_batch_size", least=1)][gpu_type] = steps
    if not found:
        raise InputError("no throughputs_TYPE/MODEL.csv here", file=directory)
    return dict(found)


def _measured(row: TableRow, column: str) -> float:
    """Return the steps per second in a cell, or 0 without a measurement."""
    cell = row.cells[column].strip()
    return 0.0 if not cell or cell.lower() == "nan" else row.number(column)


def _priced(measured: Mapping[Model, StepsPerSecond], options: Options) -> dict[Model, StepsPerSecond]:
    """Return the measurements on priced types that include one GPU, in the order of the types."""
    types = [*GPU_TYPES, *(name for name in options.gpu_types if name not in GPU_TYPES)]
    usable = {
        model: {name: by_type[name] for name in types if 1 in by_type.get(name, {})}
        for model, by_type in measured.items()
    }
    return {model: by_type for model, by_type in usable.items() if by_type}


def _name(model: Model) -> str:
    return f"{model[0]}-b{model[1]}"


def _training_jobs(path: Path) -> Iterator[_TrainingJob]:
    for row in read_rows(path, ("job_id", "submission_time", "num_iteration", "model_name", "batch_size")):
        yield _TrainingJob(
            id=row.text("job_id"),
            submitted_at_seconds=row.number("submission_time"),
            model=(row.text("model_name"), row.whole("batch_size", least=1)),
            iterations=row.number("num_iteration"),
        )


def _raw_jobs(path: Path) -> Iterator[RigidJob]:
    """Yield the jobs with their widths and run times."""
    for row in read_rows(path, ("job_id", "submission_time", "duration", "num_gpu")):
        gpus = row.whole("num_gpu")
        yield RigidJob(
            id=row.text("job_id"),
            submitted_at_seconds=row.number("submission_time"),
            gpus=gpus,
            gpu_seconds=row.duration("duration") * gpus,
        )
