"""``boa whatif``: compare a base with changes to it, in one table and one plot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption
from boa_daemon.cli.common.output import (
    OutputFormat,
    OutputOption,
    a_table,
    show,
    stderr_console,
    stdout_console,
)
from boa_daemon.cli.common.planning_options import (
    PricesOption,
    beyond_text,
    cell,
    indented_lines,
    money_up,
)
from boa_daemon.cli.common.report import ReportOption, check_report, write_report
from boa_daemon.cli.common.task_progress import OnOption, OutOption, tasks_with_progress
from boa_daemon.cli.plan.whatif_base import WhatIfFlags, of_history, of_plan, of_trace
from boa_daemon.errors import InputError
from boa_daemon.planning.curve import BeyondKnee
from boa_daemon.planning.plots import (
    as_picture,
    check_plot_path,
    draw_scenarios,
    scenario_figure,
    scenario_words,
)
from boa_daemon.planning.promise_text import second_limit_text
from boa_daemon.planning.scenario_runs import sentences
from boa_daemon.planning.whatif import BaseKind, why_later, with_differences
from boa_daemon.units import PER_HOUR, Per, counted, format_hours, per_of
from policies.money_text import in_dollars

Row = dict[str, Any]
MOST_NAMED = 5
"""Most jobs that a sentence names."""


def whatif(
    *,
    classes: Annotated[Path | None, typer.Option(metavar="FILE", help="Classes and prices.")] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Budget of the base: 40/h, 900/day, 25000/month; with --jobs also total dollars."),
    ] = None,
    change: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=VALUE",
            help="budget=60000/month, prices=+10%, load=x1.5, quota=a100:4, nodes=8, class=NAME:x2, "
            "market=spot, commit=FILE. Commas combine changes; repeat for more scenarios.",
        ),
    ],
    jobs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="List of jobs, planned as a calendar. Default: plan the stream."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Trace, simulated under the daemon's policy for each scenario."),
    ] = None,
    history: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS", min=0.01, max=366, help="Simulate the daemon's own last days for each scenario."
        ),
    ] = None,
    quota: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=N", help="Quota of the base; may be repeated.")
    ] = None,
    boot_seconds: Annotated[
        float, typer.Option(min=0, help="With --jobs or --trace: paid seconds per boot.")
    ] = 180.0,
    world: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="World file with the terms of market=spot; with --trace the whole world."
        ),
    ] = None,
    prices: PricesOption = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plot waiting against money: .svg, .png or .pdf.")
    ] = None,
    report: ReportOption = None,
    on: OnOption = "local:1",
    out: OutOption = None,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Compare what-if changes of budget, prices, quota or load with a base, in one table and plot."""
    if plot is not None:
        check_plot_path(plot)
    check_report(report)
    if sum(one is not None for one in (jobs, trace, history)) > 1:
        raise InputError("--jobs, --trace and --history exclude each other", hint="Compare one of them")
    flags = WhatIfFlags(
        classes=classes, budget=budget, quota=quota or [], boot_seconds=boot_seconds, world=world
    )
    if history is not None:
        asked = of_history(history, flags, config, socket)
    elif trace is not None:
        asked = of_trace(trace, flags)
    else:
        asked = of_plan(jobs, prices, flags)
    scenarios = [asked.base.scenario, *(asked.base.changed(text) for text in change)]
    with tasks_with_progress(on, out, len(scenarios), "scenarios") as headway:
        waiting = [asked.row(headway.tasks, scenario) for scenario in scenarios]
        rows = []
        for done in waiting:
            rows.append(done())
            headway.step()
    rows = with_differences(rows)
    unit = "usd_per_hour" if asked.base.kind == "stream" else "usd"
    document: Row = {"spend_unit": unit, "scenarios": rows, **asked.more(rows)}
    per = per_of(budget) if asked.base.kind == "stream" else None
    scale: dict[str, Any] = {"is_rate": per is not None, "per": per or PER_HOUR}
    if plot is not None:
        draw_scenarios(rows, plot, **scale)
        stderr_console().print(f"wrote {plot}", markup=False)
    lines = _lines(asked.base.kind, document, per)
    write_report(
        report,
        f"What if: {asked.name}",
        lines[0],
        document=document,
        table=lambda: _print(document, asked.base.kind, per),
        pictures=lambda: [as_picture(scenario_figure(rows, **scale), scenario_words(rows))],
        assumed=asked.assumed,
        bad=_bad_news(rows, per),
    )
    show(
        output,
        document,
        rows=lambda: [_flat(row) for row in rows],
        table=lambda: _print(document, asked.base.kind, per),
    )


def _flat(row: Row) -> Row:
    """Return a scenario as a CSV row: lists as words, and no objects."""
    return {
        key: " ".join(value) if isinstance(value, list) else value
        for key, value in row.items()
        if key not in {"knee", "beyond_knee", "second_limit"}
    }


def _lines(kind: BaseKind, document: Row, per: Per | None) -> list[str]:
    """Return the answer in sentences; the first one leads the report."""
    rows = document["scenarios"]
    lines = [_lead(rows, per), *(why_later(rows) if kind == "list" else [])]
    if kind == "stream":
        lines += _worth(rows, per or PER_HOUR)
    if kind == "trace":
        lines = sentences(rows)
    seen = document.get("happened")
    if seen is not None:
        lines.append(_agreement(seen, rows[0], document["days"]))
    return lines


def _worth(rows: list[Row], per: Per) -> list[str]:
    """Return what the last dollars of each scenario buy, and what of its budget buys nothing."""
    found = []
    for row in rows:
        beyond, name = row["beyond_knee"], row["scenario"]
        if beyond is None:
            continue
        if row["second_limit"] is not None:
            found.append(f"{name}: {second_limit_text(row['second_limit'], per=per)}")
            continue
        knee, most = row["knee"], row["largest_useful_spend"]
        if beyond["spend"] > 0.02 * knee["budget"]:
            bought = beyond_text(
                BeyondKnee(
                    spend=beyond["spend"],
                    saved_hours=beyond["saved_mean_jct_hours"],
                    saved_fraction=beyond["saved_fraction"],
                ),
                "usd",
                per,
            )
            at_knee = f"{per.usd(knee['budget'])}, jobs take {format_hours(knee['mean_jct_hours'])}"
            found.append(f"{name}: {bought[:1].lower()}{bought[1:]}: at the knee, {at_knee}.")
        if row["not_spent"] > 0.005 * most:
            unspent = per.usd(row["not_spent"])
            found.append(f"{name}: {unspent} is not spent: more than {per.usd(most)} buys nothing.")
    return found


def _agreement(seen: Row, base: Row, days: float) -> str:
    """Return a sentence that compares the simulated base with what really happened."""
    of = f"{counted(seen['jobs'], 'job')} of the last {days:g} days were simulated"
    if base["mean_jct_hours"] is None:
        return f"{of}."
    waits, spends = (
        "" if (ratio := seen[f"replayed_over_seen_{what}"]) is None else f" ({ratio - 1.0:+.0%})"
        for what in ("jct", "spend")
    )
    return (
        f"{of}: the base takes {format_hours(base['mean_jct_hours'])} from submission to end where "
        f"{format_hours(seen['mean_jct_hours'])} were measured{waits}, and {in_dollars(base['spend'])} where "
        f"{in_dollars(seen['spend'])} were spent{spends}."
    )


def _bad_news(rows: list[Row], per: Per | None) -> list[str]:
    """Return which scenarios are infeasible, and which miss dates or leave jobs out."""
    said = []
    for row in rows:
        name = row["scenario"]
        if row["mean_jct_hours"] is None:
            # Under a limit beside the budget another sentence says what is missing.
            least = None if row.get("second_limit") else row.get("cheapest_feasible_spend")
            unit = per or PER_HOUR
            said.append(
                f"{name} is infeasible."
                if least is None
                else f"{name} is infeasible: the jobs need {money_up(least, 'usd', unit)}."
            )
        for key, what in (("left_out", "has no place for"), ("missed", "misses the dates of")):
            names = [job for job in row.get(key) or () if key == "left_out" or job not in row["left_out"]]
            if names:
                more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
                said.append(f"{name} {what} {', '.join(names[:MOST_NAMED])}{more}.")
    return said


def _lead(rows: list[Row], per: Per | None) -> str:
    """Return a sentence about the scenario with the least waiting."""
    planned = [row for row in rows if row["mean_jct_hours"] is not None]
    if not planned:
        return "None of these budgets is feasible."
    best = min(planned, key=lambda row: float(row["mean_jct_hours"]))
    words = f"Of {len(rows)} scenarios, jobs wait least in {best['scenario']}"
    spend = in_dollars(best["spend"]) if per is None else per.usd(best["spend"])
    return f"{words}: {format_hours(best['mean_jct_hours'])} from submission to end, for {spend}."


def _print(document: Row, kind: BaseKind, per: Per | None) -> None:
    rows = document["scenarios"]
    spend, hours_in = ("$", 1.0) if per is None else (f"$/{per.name}", per.hours)
    others = {"list": ["all done", "missed"], "trace": ["p95 JCT", "$/h"], "stream": []}[kind]
    # A list has dates where others have the difference in dollars: with both it is wider than a terminal.
    columns = ["scenario", "mean JCT", "more", spend, *([] if kind == "list" else [f"more {spend}"])]
    table = a_table("What if", *columns, *others, right=[*columns[1:], *others])
    for row in rows:
        hours, more, usd = row["mean_jct_hours"], row["mean_jct_hours_more"], row["spend"]
        cells = ["[red]infeasible[/]", "", "", ""]
        if hours is not None:
            sign = "-" if (more or 0.0) < 0.0 else "+"
            delta = "" if more is None or row is rows[0] else f"{sign}{format_hours(abs(more))}"
            extra = row["spend_more"]
            dollars = "" if extra is None or row is rows[0] else f"{extra * hours_in:+,.2f}"
            cells = [format_hours(hours), delta, f"{usd * hours_in:,.2f}", dollars]
        if kind == "list":
            late = {*row["missed"], *row["left_out"]}
            done = row["all_done_at"] or format_hours(row["all_done_hours"])
            cells[3:] = [done[:16].replace("T", " "), f"[red]{len(late)}[/]" if late else "0"]
        elif kind == "trace":
            known = hours is not None
            cells += (
                [format_hours(row["p95_jct_hours"]), f"{row['usd_per_hour']:,.2f}"] if known else ["", ""]
            )
        table.add_row(cell(row["scenario"]), *cells)
    stdout_console().print(table)
    lines = [*_bad_news(rows, per), *_lines(kind, document, per)[0 if kind == "trace" else 1 :]]
    if lines:
        stdout_console().print()
        stdout_console().print(indented_lines(map(cell, lines)))
