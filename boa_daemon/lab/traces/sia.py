"""Sia: profiles like Pollux's on several GPU types, and jobs of different flexibility.

The column `category` says what a job lets the scheduler change: `adaptive` (GPUs and batch; also the default
without the column), `scale-gpus` (GPUs) or `rigid` (neither). A class's reference type is its first type in
the order below.

    suffix         type   instance type     why
    aws            t4     g4dn.12xlarge     measured there
    azure          v100   p3dn.24xlarge     8 V100 of 32 GB, as Azure's ND40rs_v2
    dgx-ext, dgx   a100   p4d.24xlarge      8 A100 of 40 GB, as a DGX A100
    quad           quad   none              4 RTX 6000
    rtx            rtx    none              8 RTX 2080 Ti
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from boa_daemon.errors import InputError
from boa_daemon.inputs.tables import TableRow
from boa_daemon.lab.traces.elastic import (
    ADAPTIVE,
    ApplicationProfile,
    JobShape,
    profile_directory,
    read_profile,
)
from boa_daemon.lab.traces.pollux import read_arrivals
from boa_daemon.lab.traces.profiles import POLLUX_FACTS, ApplicationFacts
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.traces.reader import TraceJob
from boa_daemon.traces.workload import RESTART_SECONDS, GpuSource, Options, Workload, assemble
from policies.model import JobClass

WORKLOADS = ("workload-*.csv", "workloads*/workload-*.csv", "workloads*/*/workload-*.csv")
GPU_TYPES: Mapping[str, GpuSource] = {
    "t4": GpuSource(instance_type="g4dn.12xlarge"),
    "v100": GpuSource(instance_type="p3dn.24xlarge"),
    "a100": GpuSource(instance_type="p4d.24xlarge"),
}
SUFFIXES = {
    "t4": ("-aws",),
    "v100": ("-azure",),
    "a100": ("-dgx-ext", "-dgx"),
    "quad": ("-quad",),
    "rtx": ("-rtx",),
}
"""Type -> file suffixes, the preferred one first: dgx-ext has measurements at more batches."""
FACTS = {**POLLUX_FACTS, "yolov3": ApplicationFacts(epochs=50)}
RESTARTS_SECONDS = {"cifar10": 50, "deepspeech2": 25, "bert": 120, "yolov3": 80, "imagenet": 250, "ncf": 15}
"""Seconds of a restart in Sia's simulator; other applications: `RESTART_SECONDS`."""
PIPELINED = "gpt_pmp"
"""An application that runs in pipelines of several GPUs: its profile counts stages, not workers."""


def import_sia(source: Path, options: Options) -> Workload:
    """Return one workload with a class per application and shape.

    Raises:
        InputError: when files are missing, damaged or ambiguous, or no type has a price.
    """
    path = pick_file(source, WORKLOADS, options.workload)
    home = profile_directory(source if source.is_dir() else path.parent.parent)
    dropped: Counter[str] = Counter()
    profiles: dict[str, ApplicationProfile] = {}
    classes: dict[str, JobClass | None] = {}
    jobs = []
    for seconds, row in read_arrivals(path, options, dropped):
        application = row.text("application")
        if application == PIPELINED:
            dropped["in pipelines"] += 1
            continue
        name, shape = _shape(row, application)
        if name not in classes:
            if application not in profiles:
                profiles[application] = _profile(home, application, options)
            classes[name] = _class(profiles[application], name, shape, options)
        if classes[name] is None:
            dropped["of a shape that was not measured"] += 1
        else:
            jobs.append(TraceJob(row.text("name"), seconds, name))
    return assemble(
        f"Sia {path.parent.name}/{path.name}",
        jobs,
        [found for _, found in sorted(classes.items()) if found is not None],
        GPU_TYPES,
        path=path,
        options=options,
        dropped=dropped,
        notes=_unpriced(home, options),
    )


def _shape(row: TableRow, application: str) -> tuple[str, JobShape]:
    """Return the class name and the shape of a row, from its category."""
    category = row.cells.get("category", "").strip() or "adaptive"
    if category == "adaptive":
        return application, ADAPTIVE
    if category not in ("scale-gpus", "rigid"):
        raise row.refuse(f"category must be adaptive, scale-gpus or rigid; got {category!r}")
    for column in ("batch_size", "num_replicas"):
        if column not in row.cells:
            raise row.refuse(f"a {category} job needs the column {column!r}")
    batch = row.whole("batch_size", least=1)
    if category == "scale-gpus":
        return f"{application}-b{batch}", JobShape(batch=batch)
    gpus = row.whole("num_replicas", least=1)
    return f"{application}-b{batch}-x{gpus}", JobShape(batch=batch, gpus=gpus)


def _profile(home: Path, application: str, options: Options) -> ApplicationProfile:
    """Return the profile on every type with measurements and a price."""
    priced = {**GPU_TYPES, **options.gpu_types}
    types = {}
    for gpu_type, suffixes in SUFFIXES.items():
        found = [suffix for suffix in suffixes if (home / application / f"placements{suffix}.csv").exists()]
        if found and gpu_type in priced:
            types[gpu_type] = found[0]
    if not types:
        raise InputError(
            f"{application} was measured on no type that has a price",
            file=home / application,
            hint=f"Give one, such as --price rtx=1.2; types are {', '.join(SUFFIXES)}",
        )
    return read_profile(home, application, types, FACTS)


def _class(profile: ApplicationProfile, name: str, shape: JobShape, options: Options) -> JobClass | None:
    """Return the class, or None if no measurement fits the shape."""
    restart = RESTARTS_SECONDS.get(profile.name, RESTART_SECONDS)
    return profile.job_class(
        name,
        shape=shape,
        startup_hours=options.startup_hours(restart),
        rescale_hours=options.rescale_hours(restart),
    )


def _unpriced(home: Path, options: Options) -> list[str]:
    """Return a note for each measured type that is left out because it has no price."""
    return [
        f"{gpu_type} was measured but has no AWS instance type: left out without --price {gpu_type}=USD"
        for gpu_type, suffixes in SUFFIXES.items()
        if gpu_type not in GPU_TYPES
        and gpu_type not in options.gpu_types
        and any(next(home.glob(f"*/placements{suffix}.csv"), None) for suffix in suffixes)
    ]
