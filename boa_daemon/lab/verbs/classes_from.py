"""``boa classes --from KIND FILE``: classes for a plan from the history of another scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boa_daemon.cli.common.byte_progress import byte_progress
from boa_daemon.cli.common.daemon_client import say_next
from boa_daemon.cli.common.output import OutputFormat, a_table, show, stdout_console
from boa_daemon.cli.common.planning_options import cell
from boa_daemon.errors import InputError
from boa_daemon.lab.traces.clustering import DEFAULT, MOST_CLASSES, Clustered, cluster
from boa_daemon.lab.traces.goodness_of_fit import goodness_of_fit
from boa_daemon.lab.traces.importers import import_source, many_objects
from boa_daemon.lab.traces.load_model import fit_load
from boa_daemon.lab.verbs.trace import gpu_sources
from boa_daemon.text_files import shown_by
from boa_daemon.traces.workload import Options
from boa_daemon.traces.writer import write_workload

MOST_FITTED = 20_000
"""Most jobs whose arrivals are fitted: the test draws the load 300 times."""


def options_of(
    *, time_zone: str | None, gpus: int | None, price: list[str] | None, instance_type: list[str] | None
) -> Options:
    """Return the options of an import from the flags of the command line.

    Raises:
        InputError: when a price or a machine is not TYPE=VALUE.
    """
    sources = gpu_sources(price or [], instance_type or [])
    return Options(time_zone=time_zone, gpus=gpus, gpu_types=sources)


def classes_from(
    kind: str,
    source: Path,
    out: Path,
    options: Options,
    *,
    speedup: str | None,
    most: int | None,
    output: OutputFormat,
) -> None:
    """Cluster a history, write trace.csv and classes.yaml, and say how good the classes are.

    Raises:
        InputError: when the history cannot be read, or has classes of its own.
    """
    with many_objects():
        with byte_progress(f"reading {source}") as told, shown_by(told):
            found = import_source(kind, source, options)
        clustered = cluster(found, speedup=speedup or DEFAULT, most=most or MOST_CLASSES)
        files = write_workload(clustered.workload, out)
    document: dict[str, Any] = {
        "source": clustered.workload.source,
        "jobs": len(clustered.workload.trace.jobs),
        "window_hours": clustered.workload.trace.window_hours,
        "assumed_speedup": clustered.assumed,
        "classes": [
            fit.to_document() | {"size_gpu_hours": job_class.size_gpu_hours}
            for fit in clustered.fits
            for job_class in clustered.workload.classes
            if job_class.name == fit.name
        ],
        "explained_hours_fraction": clustered.explained_hours,
        "explained_gpus_fraction": clustered.explained_gpus,
        "arrivals": _arrivals(clustered),
        "dropped": dict(clustered.workload.dropped),
        "notes": list(clustered.workload.notes),
        "files": [str(path) for path in files],
    }
    show(
        output,
        document,
        rows=lambda: document["classes"],
        table=lambda: _print(document, files),
    )


def _arrivals(clustered: Clustered) -> str:
    """Return how well the fitted load explains the arrivals."""
    trace = clustered.workload.trace
    if len(trace.jobs) > MOST_FITTED:
        return f"not tested: `boa trace fit` tests more than {MOST_FITTED:,} jobs"
    try:
        return goodness_of_fit(trace, fit_load(trace)).sentence
    except InputError as error:
        return f"not tested: {error.problem}"


def _print(document: dict[str, Any], files: Sequence[Path]) -> None:
    numbers = ("jobs", "GPUs", "median", "9 of 10 within", "size, GPU-h")
    title = f"{document['source']}: {document['jobs']} jobs over {document['window_hours']:.2f} h"
    table = a_table(title, "class", *numbers, right=numbers)
    for row in document["classes"]:
        low, high = row["min_gpus"], row["max_gpus"]
        table.add_row(
            cell(row["name"]),
            str(row["jobs"]),
            str(low) if low == high else f"{low} to {high}",
            f"{row['median_hours']:.3g} h",
            f"x {row['spread_factor']:.3g}",
            f"{row['size_gpu_hours']:.4g}",
        )
    console = stdout_console()
    console.print(table)
    console.print(
        f"The classes explain {document['explained_hours_fraction']:.0%} of the differences in run time and "
        f"{document['explained_gpus_fraction']:.0%} of those in GPUs (variance of the logarithms).",
        soft_wrap=True,
    )
    console.print(f"Arrivals: {document['arrivals']}", markup=False, soft_wrap=True)
    for reason, count in document["dropped"].items():
        console.print(f"Left out: {count} jobs {reason}.")
    for note in document["notes"]:
        console.print(f"Note: {note}.", markup=False, soft_wrap=True)
    for path in document["files"]:
        console.print(f"Wrote {path}", markup=False, soft_wrap=True)
    say_next(f"boa frontier {files[1]}", f"boa plan --classes {files[1]} --budget 40/h")
