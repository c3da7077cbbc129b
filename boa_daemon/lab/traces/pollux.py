"""Pollux (AdaptDL): measured profiles on nodes of 4 NVIDIA T4, and workloads of arrivals over 8 hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.tables import TableRow, read_rows
from boa_daemon.lab.traces.elastic import profile_directory, read_profile
from boa_daemon.lab.traces.profiles import POLLUX_FACTS
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.traces.reader import TraceJob
from boa_daemon.traces.workload import RESTART_SECONDS, GpuSource, Options, Workload, assemble, cut
from policies.model import JobClass

WORKLOADS = ("workload-*.csv", "workloads*/workload-*.csv")
GPU_TYPE = "t4"
GPU_TYPES: Mapping[str, GpuSource] = {GPU_TYPE: GpuSource(instance_type="g4dn.12xlarge")}


def import_pollux(source: Path, options: Options) -> Workload:
    """Return one workload with a class per application.

    Raises:
        InputError: when files are missing, damaged or ambiguous.
    """
    path = pick_file(source, WORKLOADS, options.workload)
    dropped: Counter[str] = Counter()
    kept = read_arrivals(path, options, dropped)
    jobs = [TraceJob(row.text("name"), seconds, row.text("application")) for seconds, row in kept]
    home = profile_directory(source if source.is_dir() else path.parent.parent)
    return assemble(
        f"Pollux {path.parent.name}/{path.name}",
        jobs,
        application_classes(home, {job.class_name for job in jobs}, options),
        GPU_TYPES,
        path=path,
        options=options,
        dropped=dropped,
    )


def read_arrivals(path: Path, options: Options, dropped: Counter[str]) -> list[tuple[float, TableRow]]:
    """Return (seconds, row) of the jobs in a workload file that the options select, in order of time.

    Raises:
        InputError: when the file is damaged, or a filter names an application that it does not have.
    """
    rows = list(read_rows(path, ("name", "time", "application")))
    if options.apps is not None:
        present = {row.text("application") for row in rows}
        for application in options.apps:
            if application not in present:
                hint = did_you_mean(application, present)
                raise InputError(f"--apps: no job of {application!r}", file=path, hint=hint)
        wanted = [row for row in rows if row.text("application") in options.apps]
        dropped["of other applications"] += len(rows) - len(wanted)
        rows = wanted
    return cut(rows, lambda row: row.number("time"), options, dropped)


def application_classes(home: Path, applications: Iterable[str], options: Options) -> list[JobClass]:
    """Return the class of each application from the T4 profiles in `home`, sorted by name.

    Raises:
        InputError: when an application has no profile, or no measured width fits its limits.
    """
    classes = []
    for application in sorted(applications):
        found = read_profile(home, application, {GPU_TYPE: ""}, POLLUX_FACTS).job_class(
            application,
            startup_hours=options.startup_hours(RESTART_SECONDS),
            rescale_hours=options.rescale_hours(RESTART_SECONDS),
        )
        if found is None:
            raise InputError(f"no measured width of {application} fits its limits", file=home / application)
        classes.append(found)
    return classes
