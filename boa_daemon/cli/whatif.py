"""``boa whatif``: a base and changes to it, as one table and one plot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.cli.output import (
    JsonOption,
    OutputFormat,
    OutputOption,
    a_table,
    chosen_format,
    show,
    stderr_console,
    stdout_console,
)
from boa_daemon.cli.planning import PricesOption, cell, read_problem
from boa_daemon.cli.report import ReportOption, assumptions, check_report, write_report
from boa_daemon.cli.working import OnOption, OutOption, working
from boa_daemon.errors import InputError, MissingPrice
from boa_daemon.inputs.jobs_file import read_list
from boa_daemon.planning.calendar_plan import read_quota
from boa_daemon.planning.plots import check_plot_path, draw_scenarios, scenario_figure
from boa_daemon.planning.whatif import Scenario, changed, compared, planned
from boa_daemon.units import SECONDS_PER_HOUR, format_hours


def whatif(
    *,
    classes: Annotated[Path, typer.Option(metavar="FILE", help="Classes and prices.")],
    budget: Annotated[
        str, typer.Option(help="The base: 40/h, 900/day, 25000/month; with --jobs also in all.")
    ],
    change: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=VALUE",
            help="budget=60000/month, prices=+10%, load=x1.5, quota=a100:4, class=NAME:x2; commas join, "
            "and it may be repeated.",
        ),
    ],
    jobs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A list, planned as a calendar; else the stream.")
    ] = None,
    quota: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=N", help="The base's quota; may be repeated.")
    ] = None,
    boot_seconds: Annotated[float, typer.Option(min=0, help="With --jobs: seconds of a boot, paid.")] = 180.0,
    prices: PricesOption = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw waiting against money; .svg, .png or .pdf.")
    ] = None,
    report: ReportOption = None,
    on: OnOption = "local:1",
    out: OutOption = None,
    output: OutputOption = OutputFormat.table,
    as_json: JsonOption = False,
) -> None:
    """Compare a base with changes of money, prices, quota or load, in one table and one plot."""
    if plot is not None:
        check_plot_path(plot)
    check_report(report)
    file = read_problem(classes, prices, require_rates=jobs is None)
    if not file.has_prices:
        hint = "Add gpu_types: {a100: {instance_type: p4d.24xlarge}}"
        raise MissingPrice("boa whatif compares dollars", file=file.path, hint=hint)
    if jobs is None and (quota or any("quota" in text for text in change)):
        raise InputError(
            "a quota is for a list", hint="Add --jobs FILE; for a stream see boa simulate --world"
        )
    listed = None if jobs is None else read_list(jobs, [c.name for c in file.problem.classes])
    base = Scenario(name="base", budget=budget, quota=read_quota(quota or [], file.instance_types))
    scenarios = [base, *(changed(base, text, file) for text in change)]
    with working(on, out, len(scenarios), "scenarios") as headway:
        tasks, boot_hours = headway.tasks, boot_seconds / SECONDS_PER_HOUR
        asked = [tasks.submit(planned, file, scenario, listed, boot_hours) for scenario in scenarios]
        rows = compared([future.result() for future in asked])
    if plot is not None:
        draw_scenarios(rows, plot, "dollars in all" if listed else "dollars per hour")
        stderr_console().print(f"wrote {plot}")
    document = {"spend_unit": "usd" if listed else "usd_per_hour", "scenarios": rows}
    more = {"list": str(jobs), "boot": f"{boot_seconds:g} seconds"} if listed else {}
    write_report(
        report,
        f"What if: {classes.name}",
        _lead(rows),
        document=document,
        table=lambda: _print(rows, is_list=listed is not None),
        figures=lambda: [scenario_figure(rows, "dollars in all" if listed else "dollars per hour")],
        assumed=assumptions(file, is_list=listed is not None, **{"the base's budget": budget}, **more),
    )
    show(
        chosen_format(output, as_json),
        document,
        rows=lambda: [{k: " ".join(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows],
        table=lambda: _print(rows, is_list=listed is not None),
    )


def _lead(rows: list[dict[str, Any]]) -> str:
    """Return what the changes do, in a sentence."""
    planned = [row for row in rows if row["mean_jct_hours"] is not None]
    if not planned:
        return "None of these budgets is enough."
    best = min(planned, key=lambda row: float(row["mean_jct_hours"]))
    said = f"Of {len(rows)} scenarios jobs wait the least with {best['scenario']}"
    return (
        f"{said}: {format_hours(best['mean_jct_hours'])} from submission to end, for ${best['spend']:,.2f}."
    )


def _print(rows: list[dict[str, Any]], *, is_list: bool) -> None:
    """Print one line for each scenario."""
    spend = "$" if is_list else "$/h"
    columns = ["scenario", "mean JCT", "more", spend, f"more {spend}"]
    table = a_table("What if", *columns, *(["all done", "missed"] if is_list else []), right=columns[1:])
    for row in rows:
        hours, more, usd = row["mean_jct_hours"], row["mean_jct_hours_more"], row["spend"]
        cells = ["infeasible", "", "", ""]
        if hours is not None:
            sign = "-" if (more or 0.0) < 0.0 else "+"
            delta = "" if more is None or row is rows[0] else f"{sign}{format_hours(abs(more))}"
            extra = row["spend_more"]
            dollars = "" if extra is None or row is rows[0] else f"{extra:+,.2f}"
            cells = [format_hours(hours), delta, f"{usd:,.2f}", dollars]
        if is_list:
            done = row["all_done_at"] or format_hours(row["all_done_hours"])
            late = [*row["missed"], *(job for job in row["left_out"] if job not in row["missed"])]
            cells += [
                done[:16].replace("T", " "),
                cell(", ".join(late[:5]) + (" …" if len(late) > 5 else "")),
            ]
        elif hours is None:
            cells[0] = f"infeasible below {row['cheapest_feasible_spend']:,.2f}"
        table.add_row(cell(row["scenario"]), *cells)
    stdout_console().print(table)
