"""``boa trace fit``: fit a load model to a trace, test it, and draw a new trace from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.lab.traces.goodness_of_fit import DRAWS, GoodnessOfFit, goodness_of_fit
from boa_daemon.lab.traces.load_model import TraceLoad, fit_load
from boa_daemon.traces.reader import Trace, read_trace
from boa_daemon.traces.writer import write_trace
from boa_daemon.units import counted, format_hours


def fit(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="Arrivals, as `boa simulate` reads them.")],
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a new trace and write it to this file.")
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(min=0.01, help="With --out: hours of the new trace. Default: as long as TRACE."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="With --out: random seed.")] = 0,
    load: Annotated[float, typer.Option(min=1e-6, help="With --out: factor on the arrival rates.")] = 1.0,
    bursts: Annotated[
        float | None,
        typer.Option(
            min=0, help="With --out: variance of the hourly rate over its mean squared. Default: as fitted."
        ),
    ] = None,
    draws: Annotated[
        int, typer.Option(min=200, max=100_000, help="Number of draws to compare with the trace.")
    ] = DRAWS,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Fit a load model to a trace, compare draws from it with the trace, and write one."""
    own = read_trace(trace)
    found = fit_load(own)
    is_like = goodness_of_fit(own, found, draws=draws)
    if out is not None:
        drawn = found.draw(hours or own.window_hours, seed=seed, load=load, bursts=bursts)
        write_trace(drawn, out)
    document: dict[str, Any] = {
        "trace": str(trace),
        "jobs": len(own.jobs),
        "window_hours": own.window_hours,
        "fit": fit_document(found),
        "likeness": is_like.to_document(),
        "file": None if out is None else str(out),
        "drawn_jobs": None if out is None else len(drawn.jobs),
    }
    show(
        output,
        document,
        rows=lambda: [
            {"group": group.name} | figure.to_document() | {"is_inside": figure.is_inside}
            for group in is_like.groups
            for figure in group.figures
        ],
        table=lambda: _print(own, found, is_like, document),
    )


def fit_document(load: TraceLoad) -> dict[str, Any]:
    """Return the fitted load model as JSON."""
    return {
        "burstiness": load.burstiness,
        "growth_per_week": load.growth_per_week,
        "growth_error": load.growth_error,
        "classes": [
            {
                "name": name,
                "submissions": len(load.submissions[name]),
                "jobs": sum(map(len, load.submissions[name])),
                "submissions_per_hour": list(load.rates[name]),
            }
            for name in load.class_names
        ],
    }


def _print(trace: Trace, load: TraceLoad, found: GoodnessOfFit, document: dict[str, Any]) -> None:
    """Print the fitted load, a line for each group of figures, and the conclusion."""
    console = stdout_console()
    numbers = ("outside", "seen", "95 % of draws", "chance")
    table = a_table(
        "The trace, and draws from the fitted load",
        *("group", "outside", "farthest off", *numbers[1:], ""),
        right=numbers,
    )
    for group in found.groups:
        worst = group.worst
        table.add_row(
            group.name,
            f"{group.outside} of {len(group.figures)}",
            worst.name,
            f"{worst.seen:.3g}",
            f"{worst.low:.3g} to {worst.high:.3g}",
            f"{group.chance:.2f}",
            "" if group.is_like else "NOT LIKE",
        )
    console.print(table)
    console.print()
    by_hour = [sum(rates) for rates in zip(*load.rates.values(), strict=True)]
    grows = (
        "growth is estimated from two weeks of trace on"
        if load.growth_error is None
        else f"growth {load.growth_per_week:+.1%} ± {load.growth_error:.1%} a week"
    )
    submissions = sum(map(len, load.submissions.values()))
    for words in (
        f"{counted(len(trace.jobs), 'job')} in {submissions} submissions over "
        f"{format_hours(trace.window_hours)}: {min(by_hour):.3g} to {max(by_hour):.3g} submissions an hour, "
        f"burstiness {load.burstiness:.2g}, {grows}.",
        found.sentence,
    ):
        console.print(words, markup=False)
    if document["file"] is not None:
        console.print(f"Wrote {counted(document['drawn_jobs'], 'job')} to {document['file']}", markup=False)
