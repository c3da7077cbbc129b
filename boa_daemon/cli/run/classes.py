"""``boa classes``: the daemon's estimates of each class, beside the figures of the class file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption, a_client, age, say_as_of, say_next
from boa_daemon.cli.common.output import (
    OutputFormat,
    OutputOption,
    a_table,
    show,
    stderr_console,
    stdout_console,
)
from boa_daemon.cli.common.planning_options import cell
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.job.whole_files import write_whole
from boa_daemon.planning.class_file import gpu_types_text, learnt_classes
from policies.model import InstanceType


def classes(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Show one class, with all its widths. With --from: the file."),
    ] = None,
    *,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help="Make classes of a history instead, by clustering; formats of `boa trace import`.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="With --from: directory for trace.csv and classes.yaml.")
    ] = None,
    speedup: Annotated[
        str | None,
        typer.Option(
            metavar="FORM",
            help="With --from: speed-up to assume: amdahl:0.97 (default), power:EXPONENT, or rigid.",
        ),
    ] = None,
    most: Annotated[
        int | None, typer.Option(min=1, max=50, help="With --from: most classes of a GPU type. Default: 8.")
    ] = None,
    time_zone: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --from: zone of times without one. Default: UTC.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="With --from: GPUs of each job that states none.")
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE=USD", help="With --from: dollars per GPU-hour of a GPU type."),
    ] = None,
    instance_type: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE=NAME", help="With --from: instance type of a GPU type."),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE.yaml", help="Write the estimates as a class file.")
    ] = None,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show each class's arrival rate, job size and speed-up: configured, and measured with 95 % intervals."""
    if source is not None:
        # The laboratory is loaded by name, as its verbs are: nothing outside depends on it.
        made = import_module("boa_daemon.lab.verbs.classes_from")

        if name is None or out is None:
            raise InputError("--from needs a file and --out", hint="boa classes --from sacct FILE --out DIR")
        options = made.options_of(time_zone=time_zone, gpus=gpus, price=price, instance_type=instance_type)
        made.classes_from(source, Path(name), out, options, speedup=speedup, most=most, output=output)
        return
    if any(given is not None for given in (out, speedup, most, time_zone, gpus, price, instance_type)):
        problem = "--out, --speedup, --most, --time-zone, --gpus, --price and --instance-type need --from"
        raise InputError(problem, hint="boa classes --from sacct FILE --out DIR")
    with a_client(config, socket) as client:
        document = client.get("/classes")
    rows = document["classes"]
    if name is not None:
        rows = [row for row in rows if row["name"] == name]
        if not rows:
            names = [row["name"] for row in document["classes"]]
            raise InputError(f"no class {name!r}", hint=did_you_mean(name, names))
        document["classes"] = rows
    if export is not None:
        _export(document, export)
    show(
        output,
        document,
        table=lambda: _print(document, with_widths=name is not None),
        rows=lambda: [_flat(row) for row in rows],
    )


def _export(document: dict[str, Any], path: Path) -> None:
    """Write the classes as a file that `boa plan` reads.

    Raises:
        InputError: when the file exists already, or cannot be written.
    """
    if path.exists():
        raise InputError(f"{path} is there already", hint="Name another file, or move it away")
    machines = {
        row["gpu_type"]: InstanceType(
            name=row["instance_type"],
            gpu_type=row["gpu_type"],
            gpus=row["gpus"],
            usd_per_hour=row["usd_per_hour"],
        )
        for row in document["machines"]
    }
    try:
        write_whole(path, gpu_types_text(machines) + learnt_classes(document["classes"]))
    except OSError as error:
        raise InputError(f"cannot write the class file: {error.strerror}", file=path) from error
    stderr_console().print(f"wrote {path}", markup=False)


def _print(document: dict[str, Any], *, with_widths: bool) -> None:
    """Print three or four lines per class; `with_widths` adds the widths of the first class."""
    rows = document["classes"]
    titles = ("class", "figure", "estimate", "stated", "from")
    table = a_table("Classes: estimated and stated figures", *titles, right=("stated",), optional=titles[-1:])
    for row in rows:
        widest = row["speedups"][-1]
        figures = (
            ("jobs/h", row["arrivals_per_hour"]),
            ("GPU-hours a job", row["size_gpu_hours"]),
            (f"speed-up at {widest['gpus']} GPUs", widest),
            *((("sending / computing", row["sending"]),) if "sending" in row else ()),
        )
        for line, ((name, figure), behind) in enumerate(zip(figures, _behind(row), strict=True)):
            stated = "-" if figure["stated"] is None else f"{figure['stated']:.3g}"
            table.add_row(cell("" if line else row["name"]), name, _with_interval(figure), stated, behind)
    stdout_console().print(table)
    if with_widths:
        _print_widths(rows[0])
    if why := document["kappa"]["why"]:
        stdout_console().print(f"Placement: {why}.", markup=False)
    say_as_of(document)
    say_next(*([] if with_widths or not rows else [f"boa classes {rows[0]['name']}"]), "boa plan --live")


def _with_interval(figure: dict[str, Any]) -> str:
    """Return an estimate with its interval; a dash where there is no estimate yet."""
    if figure["estimate"] is None:
        return "-"
    return f"{figure['estimate']:.3g} [dim]({figure['low']:.2g} to {figure['high']:.2g})[/]"


def _behind(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the evidence for each estimate of a class: rate, size, speed-ups, links."""
    jobs, ended = row["arrivals_per_hour"]["jobs"], row["size_gpu_hours"]["ended"]
    seconds = sum(width["measured_seconds"] for width in row["speedups"])
    came = f"{jobs} arrived" if jobs else "[dim]no jobs yet[/]"
    return (
        f"{came}, {age(0.0, row['age_seconds'])} ago" if jobs else came,
        f"{ended} ended" if ended else "[dim]none ended yet[/]",
        f"{seconds / 3600.0:.1f} h measured" if seconds else "[dim]not measured yet[/]",
        *((f"links of {', '.join(row['sending']['machines'])}",) if "sending" in row else ()),
    )


def _print_widths(row: dict[str, Any]) -> None:
    titles = ("width", "speed-up", "stated", "samples/s", "measured")
    table = a_table(f"Speed-up of {row['name']} over its narrowest width", *titles, right=titles)
    for width in row["speedups"]:
        speed = width["samples_per_second"]
        table.add_row(
            cell(f"{width['gpus']} x {width['gpu_type']}"),
            _with_interval(width),
            f"{width['stated']:.3g}",
            "-" if speed is None else f"{speed:.4g}",
            "extrapolated" if width["is_extrapolated"] else f"{width['measured_seconds'] / 3600.0:.1f} h",
        )
    stdout_console().print(table)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return a class as one CSV row, without its widths."""
    return {
        "name": row["name"],
        **{f"arrivals_per_hour_{key}": value for key, value in row["arrivals_per_hour"].items()},
        **{f"size_gpu_hours_{key}": value for key, value in row["size_gpu_hours"].items()},
        "age_seconds": row["age_seconds"],
    }
