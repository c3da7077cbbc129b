"""``boa network``: simulate jobs that share network cards, and measure a link's constants."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.errors import MissingExtra
from boa_daemon.extras import install_command
from boa_daemon.lab.network.case import read_case
from boa_daemon.lab.network.fit import fit_file
from boa_daemon.lab.network.simulate import simulate as run_experiment
from policies.links.contention import LinkFit

app = typer.Typer(
    name="network", help="Simulate jobs that share network cards, and measure links.", no_args_is_help=True
)

_ROWS_SHOWN = 20


class EngineName(StrEnum):
    """Implementation of the event loop; both give the same results."""

    auto = "auto"
    python = "python"
    compiled = "compiled"


@app.callback()
def _group() -> None:
    """Simulate jobs that share network cards, and measure links."""


@app.command()
def simulate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Network case, JSON.")],
    *,
    engine: Annotated[
        EngineName, typer.Option(help="'compiled' needs the extra 'fast'; 'auto' uses it for large cases.")
    ] = EngineName.auto,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="SRSF(n) to the letter: no message passes a better one that waits ('strict' of the case).",
        ),
    ] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Simulate training jobs iteration by iteration, and show when each finishes."""
    experiment = read_case(file, strict=strict)
    try:
        outcome = run_experiment(experiment, engine=engine.value)
    except ImportError as missing:
        raise MissingExtra(str(missing), hint=install_command("fast")) from None
    answer = outcome.as_json()
    show(
        output,
        answer,
        rows=lambda: answer["jobs"],
        table=lambda: _print_outcome(answer),
    )


@app.command()
def fit(
    file: Annotated[
        Path,
        typer.Argument(metavar="SAMPLES", help="CSV with messages_at_once,message_bytes,seconds."),
    ],
    *,
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.999, help="Confidence level of the intervals.")
    ] = 0.95,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Estimate a link's latency, bandwidth and contention from timed all-reduces, with intervals."""
    fitted = fit_file(file, confidence=confidence)
    rows = _fit_rows(fitted)
    show(
        output,
        _fit_answer(fitted),
        rows=lambda: rows,
        table=lambda: _print_fit(fitted, rows),
    )


def _print_outcome(answer: dict[str, Any]) -> None:
    """Print a summary, and the jobs in the order in which they finish."""
    console = stdout_console()
    table = a_table("Network simulation", "figure", "value", right=("value",))
    for name, unit in (
        ("mean_jct_seconds", " s"),
        ("median_jct_seconds", " s"),
        ("p95_jct_seconds", " s"),
        ("makespan_seconds", " s"),
    ):
        table.add_row(
            name.removesuffix("_seconds").replace("_", " ").replace("jct", "JCT"),
            f"{answer[name]:,.3f}{unit}",
        )
    table.add_row("GPU utilisation", f"{answer['gpu_utilisation_fraction']:.1%}")
    table.add_row("events", f"{answer['events']:,}")
    console.print(table)
    console.print()
    jobs = sorted(answer["jobs"], key=lambda job: float(job["finished_at_seconds"]))
    listed = a_table("Jobs", "id", "finished at (s)", "JCT (s)", right=("finished at (s)", "JCT (s)"))
    for job in jobs[-_ROWS_SHOWN:]:
        listed.add_row(str(job["id"]), f"{job['finished_at_seconds']:,.3f}", f"{job['jct_seconds']:,.3f}")
    console.print(listed)
    if len(jobs) > _ROWS_SHOWN:
        console.print(f"The {_ROWS_SHOWN} last of {len(jobs)} jobs; -o json or -o csv has all.")


def _fit_rows(fitted: LinkFit) -> list[dict[str, object]]:
    return [
        {"constant": name, "value": estimate.value, "low": estimate.low, "high": estimate.high}
        for name, estimate in (
            ("latency_seconds", fitted.latency_seconds),
            ("seconds_per_byte", fitted.seconds_per_byte),
            ("contention_seconds_per_byte", fitted.contention_seconds_per_byte),
        )
    ]


def _fit_answer(fitted: LinkFit) -> dict[str, Any]:
    """Return the document of `boa network fit`; its `link` can be pasted into a network case."""
    return {
        "link": {str(row["constant"]): row["value"] for row in _fit_rows(fitted)},
        "intervals": {str(row["constant"]): [row["low"], row["high"]] for row in _fit_rows(fitted)},
        "confidence": fitted.confidence,
        "adadual_threshold": fitted.adadual_threshold,
        "samples": fitted.samples,
        "median_relative_error": fitted.median_relative_error,
        "at_bound": list(fitted.at_bound),
    }


def _print_fit(fitted: LinkFit, rows: list[dict[str, object]]) -> None:
    console = stdout_console()
    low, high = f"{fitted.confidence:.0%} low", f"{fitted.confidence:.0%} high"
    table = a_table("Link", "constant", "value", low, high, right=("value", low, high))
    for row in rows:
        table.add_row(str(row["constant"]), *(f"{row[column]:.4g}" for column in ("value", "low", "high")))
    console.print(table)
    console.print(
        f"{fitted.samples} samples; the model is off by {fitted.median_relative_error:.1%} in the median. "
        f"AdaDUAL threshold {fitted.adadual_threshold:.4f}."
    )
    for name in fitted.at_bound:
        console.print(f"{name} would be negative and is set to zero.")
