"""Production traces of job durations on fixed numbers of GPUs, without data on other widths.

By default nothing else is assumed: jobs of n GPUs are one class whose only width is n, at speed n. With
size = duration x n GPU-hours, a job alone takes exactly its measured duration. With profiles, each job gets a
measured application, drawn by its GPU-time as the Pollux authors did, and scaled so that its work is the
trace's GPU-time. In both cases a class has the mean size of its jobs.

    GPU-time, h      drawn from
    under 1          cifar10, ncf
    1 to 10          deepspeech2, bert
    10 to 100        yolov3
    100 or more      imagenet
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.elastic import applications_in, profile_directory
from boa_daemon.lab.traces.pollux import GPU_TYPES, application_classes
from boa_daemon.traces.reader import TraceJob
from boa_daemon.traces.workload import GpuSource, Options, Workload, assemble, cut
from policies.model import JobClass, Phase
from policies.speedup import Table

GPU_TYPE = "gpu"
"""The GPU type of traces that name none; a budget in GPUs counts these."""
CATEGORIES = (
    (1.0, ("cifar10", "ncf")),
    (10.0, ("deepspeech2", "bert")),
    (100.0, ("yolov3",)),
    (float("inf"), ("imagenet",)),
)
"""(Upper limit of GPU-hours, applications)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RigidJob:
    """A job that ran on GPUs of one type: `gpu_seconds` is its run time multiplied by its GPUs."""

    id: str
    submitted_at_seconds: float
    gpus: int
    gpu_seconds: float
    gpu_type: str = GPU_TYPE

    @property
    def class_name(self) -> str:
        """The class of jobs of its type and width: ``gpus-4``, or ``a100-4`` where the type is known."""
        return f"{'gpus' if self.gpu_type == GPU_TYPE else self.gpu_type}-{self.gpus}"


def rigid_workload(
    source: str,
    jobs: Iterable[RigidJob],
    options: Options,
    *,
    path: Path,
    dropped: Counter[str],
    said: Sequence[str] = (),
) -> Workload:
    """Return the workload of rigid jobs; time starts at the first submission of a job that ran.

    `said` are notes of the importer; sequences are read after the jobs.

    Raises:
        InputError: when no job is left, or a profile is missing.
    """
    ran = []
    for job in jobs:
        if job.gpus == 0:
            dropped["without GPUs"] += 1
        elif job.gpu_seconds == 0:
            dropped["without run time"] += 1
        else:
            ran.append(job)
    zero = min((job.submitted_at_seconds for job in ran), default=0.0)
    kept = cut(ran, lambda job: job.submitted_at_seconds - zero, options, dropped)
    if options.profiles is None:
        return _as_measured(source, kept, options=options, path=path, dropped=dropped, said=said)
    return _with_profiles(
        source, kept, profiles=options.profiles, options=options, path=path, dropped=dropped, said=said
    )


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
    work: dict[tuple[str, int], list[float]] = defaultdict(list)
    for _, job in kept:
        work[job.gpu_type, job.gpus].append(job.gpu_seconds)
    mean = {key: sum(values) / len(values) for key, values in sorted(work.items())}
    names = {(job.gpu_type, job.gpus): job.class_name for _, job in kept}
    classes = [
        JobClass(
            name=names[gpu_type, gpus],
            phases=(
                Phase(
                    size_gpu_hours=gpu_seconds / 3600.0,
                    speedups={gpu_type: Table(gpus=(gpus,), speeds=(float(gpus),))},
                ),
            ),
            startup_hours=options.startup_hours(0.0),
            rescale_hours=options.rescale_hours(0.0),
        )
        for (gpu_type, gpus), gpu_seconds in mean.items()
    ]
    jobs = [
        TraceJob(job.id, seconds, job.class_name, job.gpu_seconds / mean[job.gpu_type, job.gpus])
        for seconds, job in kept
    ]
    notes = ["speed-ups are not known: every job keeps its GPU count. Give --profiles to draw measured ones"]
    if open_types := sorted({gpu_type for gpu_type, _ in mean} - options.gpu_types.keys()):
        known = [name for name in open_types if name != GPU_TYPE]
        if GPU_TYPE in open_types:
            notes.append("the GPU type is not known: give --instance-type gpu=NAME, or a budget in GPUs")
        if known:
            flags = " ".join(f"--instance-type {name}=NAME" for name in known)
            notes.append(f"the prices of {', '.join(known)} are not known: give {flags}, or a budget in GPUs")
    notes += said
    return assemble(
        source,
        jobs,
        classes,
        dict[str, GpuSource](),
        path=path,
        options=options,
        dropped=dropped,
        notes=notes,
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
