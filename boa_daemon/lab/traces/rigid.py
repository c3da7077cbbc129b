"""Production traces of job durations on fixed numbers of GPUs, without data on other widths.

By default nothing else is assumed: jobs of n GPUs are one class whose only width is n, at speed n. With
size = duration x n GPU-hours, a job alone takes exactly its measured duration. With profiles, each job gets a
measured application, drawn by its GPU-time as the Pollux authors did, and scaled so that its work is the
trace's GPU-time. In both cases a class has the mean size of its jobs.

Parts of GPUs become places: a GPU type has as many places per GPU (2 to 8) as round the parts up least, and a
job of 0.3 GPUs on a type of 4 places is of a class whose only width is 2 places, at the speed of half a GPU.
A slice of a GPU (MIG) is neither: its size depends on the card, so jobs on slices are left out, and counted.

    GPU-time, h      drawn from
    under 1          cifar10, ncf
    1 to 10          deepspeech2, bert
    10 to 100        yolov3
    100 or more      imagenet
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path

from boa_daemon.errors import InputError
from boa_daemon.inputs.tables import read_rows
from boa_daemon.lab.traces.elastic import applications_in, profile_directory
from boa_daemon.lab.traces.pollux import GPU_TYPES, application_classes
from boa_daemon.slurm.resources import SLICE
from boa_daemon.traces.reader import TraceJob
from boa_daemon.traces.workload import GpuSource, Options, Workload, assemble, cut
from policies.fast_dataclasses import fast_init
from policies.kinds import kind_of
from policies.model import JobClass, Phase
from policies.speedup import MAX_GPUS, Table

GPU_TYPE = "gpu"
"""The GPU type of traces that name none; a budget in GPUs counts these."""
ON_SLICES = "on slices of GPUs (MIG)"
MOST_PLACES = 8
"""Most places of a GPU."""
CATEGORIES = (
    (1.0, ("cifar10", "ncf")),
    (10.0, ("deepspeech2", "bert")),
    (100.0, ("yolov3",)),
    (float("inf"), ("imagenet",)),
)
"""(Upper limit of GPU-hours, applications)."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class RigidJob:
    """A job that ran on GPUs of one type: `gpu_seconds` is its run time multiplied by its GPUs.

    `gpus` is not whole if the job had a part of a GPU.
    """

    id: str
    submitted_at_seconds: float
    gpus: float
    gpu_seconds: float
    gpu_type: str = GPU_TYPE

    @property
    def class_name(self) -> str:
        """The class of jobs of its type and width: ``gpus-4``, or ``a100-4`` where the type is known."""
        return f"{'gpus' if self.gpu_type == GPU_TYPE else self.gpu_type}-{self.gpus:.6g}"

    @property
    def is_part(self) -> bool:
        """Whether the job had a part of a GPU."""
        return self.gpus != int(self.gpus)


def rigid_jobs(
    ids: Iterable[str],
    submitted_at_seconds: Iterable[float],
    gpus: Iterable[float],
    run_seconds: Iterable[float],
    *,
    gpu_type: str | Iterable[str] = GPU_TYPE,
) -> Iterator[RigidJob]:
    """Yield the jobs of columns; `gpu_type` is one for all, or a column."""
    types = repeat(gpu_type) if isinstance(gpu_type, str) else gpu_type
    for name, at, width, seconds, own in zip(
        ids, submitted_at_seconds, gpus, run_seconds, types, strict=False
    ):
        yield RigidJob(
            id=name, submitted_at_seconds=at, gpus=width, gpu_seconds=seconds * width, gpu_type=own
        )


def rigid_workload(
    source: str,
    jobs: Iterable[RigidJob],
    options: Options,
    *,
    path: Path,
    dropped: Counter[str],
    said: Sequence[str] = (),
    id_column: str = "",
) -> Workload:
    """Return the workload of rigid jobs; time starts at the first submission of a job that ran.

    `said` are notes of the importer; sequences are read after the jobs. `id_column` is that of a table with a
    row for each job: two rows of one job are refused with both lines.

    Raises:
        InputError: when a job has too many GPUs, no job is left, or a profile is missing.
    """
    everything = list(jobs)
    slices = {kind for kind in {job.gpu_type for job in everything} if SLICE.search(kind)}
    if slices:
        whole = [job for job in everything if job.gpu_type not in slices]
        dropped[ON_SLICES] += len(everything) - len(whole)
        everything = whole
    if max((job.gpus for job in everything), default=0) > MAX_GPUS:
        job = next(job for job in everything if job.gpus > MAX_GPUS)
        raise InputError(f"job {job.id} has {job.gpus:g} GPUs, more than {MAX_GPUS:,}", file=path)
    with_gpus = [job for job in everything if job.gpus]
    ran = [job for job in with_gpus if job.gpu_seconds]
    dropped["without GPUs"] += len(everything) - len(with_gpus)
    dropped["without run time"] += len(with_gpus) - len(ran)
    zero = min((job.submitted_at_seconds for job in ran), default=0.0)
    del everything, with_gpus
    if id_column and len({job.id for job in ran}) < len(ran):
        raise _second_row(path, id_column, [job.id for job in ran])
    kept = cut(ran, lambda job: job.submitted_at_seconds - zero, options, dropped)
    del ran
    if options.profiles is None:
        return _as_measured(source, kept, options=options, path=path, dropped=dropped, said=said)
    return _with_profiles(
        source, kept, profiles=options.profiles, options=options, path=path, dropped=dropped, said=said
    )


def _second_row(path: Path, column: str, ids: Sequence[str]) -> InputError:
    """Return the error for the first id that occurs twice, with the lines of both of its rows."""
    twice = {name for name, number in Counter(ids).items() if number > 1}
    first: dict[str, int] = {}
    for row in read_rows(path, (column,)):
        name = row.cells[column]
        if name in first:
            problem = f"{column} {name!r} occurs twice; the first is on line {first[name]}"
            return row.refuse(problem, "Every job needs its own id")
        if name in twice:
            first[name] = row.line
    return InputError(f"job {next(iter(twice))} occurs twice", file=path)


def _as_measured(
    source: str,
    kept: list[tuple[float, RigidJob]],
    *,
    options: Options,
    path: Path,
    dropped: Counter[str],
    said: Sequence[str],
) -> Workload:
    """Return one class per GPU count, with that count as its only width."""
    has_parts = any(gpus != int(gpus) for gpus in {job.gpus for _, job in kept})
    places = _places([job for _, job in kept]) if has_parts else {}
    if places:
        for index, (seconds, job) in enumerate(kept):
            # In place: two lists of a million jobs would take twice the memory.
            kept[index] = (seconds, _on_places(job, places))
    work: dict[tuple[str, float], list[float]] = defaultdict(list)
    for _, job in kept:
        work[job.gpu_type, job.gpus].append(job.gpu_seconds)
    mean = {key: sum(values) / len(values) for key, values in sorted(work.items())}
    names = {key: job.class_name for key, job in {(job.gpu_type, job.gpus): job for _, job in kept}.items()}
    sources = {name: _with_places(options.gpu_types.get(name), number) for name, number in places.items()}
    classes = [
        JobClass(
            name=names[gpu_type, gpus],
            phases=(
                Phase(
                    size_gpu_hours=gpu_seconds / 3600.0,
                    speedups=_only_width(gpu_type, gpus, places.get(gpu_type, 1), sources.get(gpu_type)),
                ),
            ),
            startup_hours=options.startup_hours(0.0),
            rescale_hours=options.rescale_hours(0.0),
            may_share=gpus != int(gpus),
        )
        for (gpu_type, gpus), gpu_seconds in mean.items()
    ]
    notes = ["speed-ups are not known: every job keeps its GPU count. Give --profiles to draw measured ones"]
    # A budget in GPUs counts a place as a GPU.
    instead = "for its price" if places else "or a budget in GPUs"
    if open_types := sorted({gpu_type for gpu_type, _ in mean} - options.gpu_types.keys()):
        known = [name for name in open_types if name != GPU_TYPE]
        if GPU_TYPE in open_types:
            notes.append(f"the GPU type is not known: give --instance-type gpu=NAME, {instead}")
        if known:
            flags = " ".join(f"--instance-type {name}=NAME" for name in known)
            notes.append(f"the prices of {', '.join(known)} are not known: give {flags}, {instead}")
    priced = options.gpu_types
    notes += [_said_of_places(name, number, kept, options) for name, number in places.items()]
    notes += said
    if places:
        # Where one type has places, every type needs a row.
        own = {name: _with_places(priced.get(name), places.get(name)) for name, _ in mean}
        options = replace(options, gpu_types={**priced, **own})
    return assemble(
        source,
        _consumed(kept, names, mean),
        classes,
        dict[str, GpuSource](),
        path=path,
        options=options,
        dropped=dropped,
        notes=notes,
    )


def _consumed(
    kept: list[tuple[float, RigidJob]],
    names: Mapping[tuple[str, float], str],
    mean: Mapping[tuple[str, float], float],
) -> Iterator[TraceJob]:
    """Yield the jobs of a trace in order, and empty `kept`: both would take twice the memory."""
    kept.reverse()
    while kept:
        seconds, job = kept.pop()
        key = (job.gpu_type, job.gpus)
        yield TraceJob(job.id, seconds, names[key], job.gpu_seconds / mean[key])


def _places(jobs: Sequence[RigidJob]) -> dict[str, int]:
    """Return the places per GPU of each type of which a job had a part: the number that rounds up least."""
    parts: dict[str, list[RigidJob]] = defaultdict(list)
    for job in jobs:
        if job.is_part:
            parts[job.gpu_type].append(job)

    def rounded(number: int, some: Sequence[RigidJob]) -> float:
        return sum(job.gpu_seconds * (_up(job.gpus, number) / job.gpus - 1.0) for job in some)

    found = {}
    for name, some in sorted(parts.items()):
        waste = {number: round(rounded(number, some), 6) for number in range(2, MOST_PLACES + 1)}
        found[name] = min(waste, key=lambda number: (waste[number], number))
    return found


def _up(gpus: float, places: int) -> float:
    """Return GPUs rounded up to whole places."""
    return math.ceil(gpus * places - 1e-9) / places


def _on_places(job: RigidJob, places: Mapping[str, int]) -> RigidJob:
    """Return a job on whole places, with the run time that it had."""
    if not job.is_part:
        return job
    gpus = _up(job.gpus, places[job.gpu_type])
    return replace(job, gpus=gpus, gpu_seconds=job.gpu_seconds * gpus / job.gpus)


def _only_width(gpu_type: str, gpus: float, places: int, source: GpuSource | None) -> dict[str, Table]:
    """Return the speed-up of jobs with one width: GPUs, or places of a machine with several on each GPU."""
    if gpus == int(gpus):
        return {gpu_type: Table(gpus=(int(gpus),), speeds=(float(gpus),))}
    machine = (source.instance_type if source else None) or gpu_type
    kind = str(kind_of(gpu_type).on(machine, places=places))
    return {kind: Table(gpus=(round(gpus * places),), speeds=(gpus,))}


def _with_places(source: GpuSource | None, places: int | None) -> GpuSource:
    """Return the source of a price with places; a dollar for a GPU-hour of unknown price."""
    return replace(source or GpuSource(usd_per_gpu_hour=1.0), places_per_gpu=places)


def _said_of_places(
    gpu_type: str, places: int, kept: Sequence[tuple[float, RigidJob]], options: Options
) -> str:
    """Return what was assumed of the jobs that had parts of a GPU."""
    number = sum(job.is_part and job.gpu_type == gpu_type for _, job in kept)
    price = "" if gpu_type in options.gpu_types else "; a GPU-hour stands at $1.00, so that 40/h is 40 GPUs"
    return (
        f"{number} jobs had a part of a GPU: {gpu_type} has {places} places per GPU, parts are rounded up to "
        f"them, and in a simulation a job alone on its GPU is faster than it was{price}"
    )


def _with_profiles(
    source: str,
    kept: list[tuple[float, RigidJob]],
    *,
    profiles: Path,
    options: Options,
    path: Path,
    dropped: Counter[str],
    said: Sequence[str],
) -> Workload:
    """Return the jobs as measured applications, drawn with the options' seed."""
    home = profile_directory(profiles)
    seed = options.seed or 0
    drawn = _draw(kept, frozenset(applications_in(home)), seed, home)
    work: dict[str, list[float]] = defaultdict(list)
    for (_, job), application in zip(kept, drawn, strict=True):
        work[application].append(job.gpu_seconds / 3600.0)
    mean = {application: sum(values) / len(values) for application, values in work.items()}
    jobs = [
        TraceJob(job.id, seconds, application, job.gpu_seconds / 3600.0 / mean[application])
        for (seconds, job), application in zip(kept, drawn, strict=True)
    ]
    classes = [
        _resized(job_class, mean[job_class.name])
        for job_class in application_classes(home, set(drawn), options)
    ]
    notes = [
        f"applications are drawn by GPU-time with seed {seed}; their speed-ups are not those of the jobs",
        *said,
    ]
    return assemble(
        source, jobs, classes, GPU_TYPES, path=path, options=options, dropped=dropped, notes=notes
    )


def _resized(job_class: JobClass, size_gpu_hours: float) -> JobClass:
    """Return the class with all phases scaled by one factor, so that its work is `size_gpu_hours`."""
    factor = size_gpu_hours / job_class.size_gpu_hours
    phases = tuple(replace(phase, size_gpu_hours=phase.size_gpu_hours * factor) for phase in job_class.phases)
    return replace(job_class, phases=phases)


def _draw(kept: list[tuple[float, RigidJob]], known: frozenset[str], seed: int, home: Path) -> list[str]:
    """Return an application for each job, in the order of the jobs."""
    chance = random.Random(seed)
    drawn = []
    for _, job in kept:
        names = next(names for most, names in CATEGORIES if job.gpu_seconds / 3600.0 < most)
        choices = [name for name in names if name in known]
        if not choices:
            raise InputError(
                f"job {job.id} took {job.gpu_seconds / 3600.0:.3g} GPU-hours and needs a profile of "
                f"{' or '.join(names)}",
                file=home,
            )
        drawn.append(chance.choice(choices))
    return drawn
