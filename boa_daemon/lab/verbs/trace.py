"""``boa trace``: import public traces, export the daemon's history, fit and draw load."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.cli.common.byte_progress import byte_progress
from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption, a_client
from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.errors import InputError, not_one_of
from boa_daemon.lab.traces.importers import HISTORIES, import_source, many_objects, source_names
from boa_daemon.lab.verbs.trace_fit import fit
from boa_daemon.number_text import NotOneNumber, number_of, without_dollars
from boa_daemon.text_files import shown_by
from boa_daemon.traces.workload import GpuSource, Options, Workload
from boa_daemon.traces.writer import write_workload

app = typer.Typer(
    name="trace", help="Import traces of training jobs, and draw similar ones.", no_args_is_help=True
)
app.command("fit")(fit)


@app.callback()
def _group() -> None:
    """Import traces of training jobs, and draw similar ones."""


@app.command("history")
def write_history(
    *,
    days: Annotated[float, typer.Option(metavar="DAYS", min=0.01, max=366, help="Days of history.")] = 30.0,
    out: Annotated[Path, typer.Option("--out", help="Directory for trace.csv and classes.yaml.")],
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Write the daemon's own history as a trace and classes."""
    from boa_daemon.daemon.service.backtest import past_workload  # noqa: PLC0415 - slow to import, and few ask

    with a_client(config, socket) as client:
        found = past_workload(client.past(days=days))
    _show(output, _summary(found, write_workload(found, out)))


def _known(name: str) -> str:
    """Return the name of a format, or raise an error that lists the formats."""
    if name not in source_names():
        raise typer.BadParameter(not_one_of(name, source_names()))
    return name


@app.command("import")
def import_trace(
    sources: Annotated[list[Path], typer.Argument(metavar="SRC", help="File or directory of the source.")],
    *,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="FORMAT",
            callback=_known,
            help=f"Format of the source: {', '.join(HISTORIES)}, or one of a plug-in.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Directory for trace.csv and classes.yaml.")],
    workload: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of SRC to read, if it has several.")
    ] = None,
    apps: Annotated[str | None, typer.Option(metavar="A,B", help="Only jobs of these applications.")] = None,
    profiles: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Measured speed-ups, for a trace without any.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed for drawing from --profiles. Default: 0.")] = None,
    startup_seconds: Annotated[float | None, typer.Option(help="Paid seconds of a job's start-up.")] = None,
    rescale_seconds: Annotated[float | None, typer.Option(help="Paid seconds at a change of width.")] = None,
    from_hours: Annotated[float | None, typer.Option(help="Leave out arrivals before this hour.")] = None,
    to_hours: Annotated[float | None, typer.Option(help="Leave out arrivals from this hour on.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many jobs, the earliest.")] = None,
    time_zone: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Zone of times without one, such as Europe/Berlin. Default: UTC."),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="GPUs of each job that states none, for ray and wandb.")
    ] = None,
    price: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=USD", help="Dollars per GPU-hour of a GPU type.")
    ] = None,
    instance_type: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=NAME", help="Instance type of a GPU type.")
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Convert a public trace into trace.csv and classes.yaml for the simulator and the planner."""
    src = one_source(sources)
    options = Options(
        workload=workload,
        apps=None if apps is None else tuple(name.strip() for name in apps.split(",") if name.strip()),
        profiles=profiles,
        seed=seed,
        startup_seconds=_seconds("--startup-seconds", startup_seconds),
        rescale_seconds=_seconds("--rescale-seconds", rescale_seconds),
        from_hours=_seconds("--from-hours", from_hours),
        to_hours=_seconds("--to-hours", to_hours),
        limit=limit,
        time_zone=time_zone,
        gpus=gpus,
        gpu_types=gpu_sources(price or [], instance_type or []),
    )
    with many_objects():
        with byte_progress(f"reading {src}") as told, shown_by(told):
            found = import_source(source, src, options)
        files = write_workload(found, out)
    _show(output, _summary(found, files))


def one_source(sources: Sequence[Path]) -> Path:
    """Return the only source.

    Raises:
        InputError: when there are several.
    """
    if len(sources) > 1:
        hint = f"Join them: (cat {sources[0]}; tail -qn +2 {sources[1]} ...) > all.csv, or import one"
        raise InputError(f"{len(sources)} files, and a history is one", hint=hint)
    return sources[0]


def _show(output: OutputFormat, summary: dict[str, Any]) -> None:
    show(output, summary, rows=lambda: summary["classes"], table=lambda: _print_table(summary))


def _seconds(flag: str, value: float | None) -> float | None:
    """Return the value if it is a finite number, zero or more."""
    if value is not None and not (math.isfinite(value) and value >= 0.0):
        raise InputError(f"{flag} must be a finite number, zero or more; got {value!r}")
    return value


def gpu_sources(prices: Sequence[str], instance_types: Sequence[str]) -> dict[str, GpuSource]:
    """Return the source of the price by GPU type, from the repeated flags."""
    found = {}
    for text in instance_types:
        name, value = _pair("--instance-type", text, "a100=p4d.24xlarge")
        found[name] = GpuSource(instance_type=value)
    for text in prices:
        name, value = _pair("--price", text, "rtx=1.2")
        usd, reason, hint = math.nan, "", ""
        try:
            usd = number_of(without_dollars(value))
        except NotOneNumber as error:
            reason, hint = error.reason, error.hint
        if not (math.isfinite(usd) and usd > 0.0):
            problem = f"--price {text!r}: {value!r} is not a positive number of dollars{reason}"
            raise InputError(problem, hint=hint)
        if name in found:
            raise InputError(f"--price and --instance-type both price {name!r}", hint="Give one of them")
        found[name] = GpuSource(usd_per_gpu_hour=usd)
    return found


def _pair(flag: str, text: str, example: str) -> tuple[str, str]:
    """Return the two sides of ``TYPE=VALUE``."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise InputError(f"{flag} {text!r} is not TYPE=VALUE", hint=f"Write it as {flag} {example}")
    return name.strip(), value.strip()


def _summary(found: Workload, files: Sequence[Path]) -> dict[str, Any]:
    """Return a summary of the import; load is the work per hour of the window, in reference GPUs."""
    hours = found.trace.window_hours
    work = found.work_gpu_hours()
    jobs = Counter(job.class_name for job in found.trace.jobs)
    classes = [
        {
            "name": job_class.name,
            "jobs": jobs[job_class.name],
            "arrivals_per_hour": job_class.arrivals_per_hour if found.rates_known else None,
            "phases": len(job_class.phases),
            "size_gpu_hours": job_class.size_gpu_hours,
            "load_gpus": work[job_class.name] / hours if found.rates_known else None,
        }
        for job_class in found.classes
    ]
    return {
        "source": found.source,
        "jobs": len(found.trace.jobs),
        "window_hours": hours,
        "load_gpus": sum(work.values()) / hours if found.rates_known else None,
        "classes": classes,
        "gpu_types": list(found.gpu_types),
        "dropped": dict(found.dropped),
        "notes": list(found.notes),
        "files": [str(path) for path in files],
    }


def _print_table(summary: dict[str, Any]) -> None:
    numbers = ("jobs", "per hour", "phases", "size, GPU-h", "load, GPUs")
    title = f"{summary['source']}: {summary['jobs']} jobs over {summary['window_hours']:.2f} h"
    table = a_table(title, "class", *numbers, right=numbers)
    for row in summary["classes"]:
        table.add_row(
            row["name"],
            str(row["jobs"]),
            _number(row["arrivals_per_hour"]),
            str(row["phases"]),
            _number(row["size_gpu_hours"]),
            _number(row["load_gpus"]),
        )
    table.add_row("all", str(summary["jobs"]), "", "", "", _number(summary["load_gpus"]), style="bold")
    console = stdout_console()
    console.print(table)
    for reason, count in summary["dropped"].items():
        console.print(f"Left out: {count} jobs {reason}.")
    for note in summary["notes"]:
        console.print(f"Note: {note}.", markup=False, soft_wrap=True)
    for path in summary["files"]:
        console.print(f"Wrote {path}", markup=False, soft_wrap=True)


def _number(value: float | None) -> str:
    """Return a number with 4 significant digits; empty for None."""
    return "" if value is None else f"{value:.4g}"
