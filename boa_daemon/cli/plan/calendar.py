"""``boa calendar``: when each job of a finite list runs, and what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boa_daemon.cli.common.output import OutputFormat, OutputOption
from boa_daemon.cli.common.planning_options import (
    MarketNameOption,
    MarketOption,
    PricesOption,
    chosen_market,
    read_problem,
)
from boa_daemon.cli.common.report import ReportOption, check_report
from boa_daemon.cli.plan.plan_calendar import CalendarFlags, plan_calendar, since
from boa_daemon.cli.plan.plan_diff import DiffOption, saved_plan
from boa_daemon.cli.plan.plan_list import plan_list
from boa_daemon.errors import InputError
from boa_daemon.inputs.jobs_file import read_list
from boa_daemon.traces.reader import class_file_of

BOOT_SECONDS = 180.0
"""Paid seconds of a boot, unless `--boot-seconds` says otherwise."""


def calendar(
    jobs: Annotated[
        Path, typer.Argument(metavar="FILE", help="The list of jobs: job_id,class_name and optional columns.")
    ],
    *,
    classes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Job classes and prices. Default: classes.yaml beside the list."),
    ] = None,
    budget: Annotated[str | None, typer.Option(help="1500 in total, or 40/h, 900/day, 25000/month.")] = None,
    min_budget: Annotated[
        bool, typer.Option("--min-budget", help="The cheapest budget that meets every deadline.")
    ] = False,
    quota: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=N", help="Most instances of a type; may be repeated.")
    ] = None,
    start: Annotated[str | None, typer.Option(metavar="DATE", help="The begin of the calendar.")] = None,
    off: Annotated[
        list[str] | None,
        typer.Option(metavar="WHEN", help="Times without work, 20:00-08:00 or sat-sun; may be repeated."),
    ] = None,
    blocks: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File of Capacity Blocks that you bought.")
    ] = None,
    boot_seconds: Annotated[
        float, typer.Option(min=0, help="With dates, a rate or a quota: paid seconds per boot.")
    ] = BOOT_SECONDS,
    gantt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw when each job runs; .svg, .png, .pdf.")
    ] = None,
    spread: Annotated[
        float | None,
        typer.Option(min=0, max=0.9, help="Hours are off by less than this fraction in 9 of 10 cases; 0.1."),
    ] = None,
    prices: PricesOption = None,
    market: MarketNameOption = None,
    world: MarketOption = None,
    report: ReportOption = None,
    diff: DiffOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Plan a list of jobs: when each runs, on how many GPUs, for how much, and which dates are missed."""
    check_report(report)
    old = saved_plan(diff)
    file = read_problem(class_file_of(jobs, classes, what="the list", other=""), prices, require_rates=False)
    flags = CalendarFlags(
        budget=budget,
        quota=quota or [],
        start=start,
        gantt=gantt,
        boot_seconds=boot_seconds,
        report=report,
        old=old,
        off=tuple(off or ()),
        blocks=blocks,
        market=chosen_market(market, world, file),
        spread=spread,
    )
    listed = read_list(jobs, [c.name for c in file.problem.classes], since(start))
    if not (flags.are_given or listed.has_arrivals or listed.off):
        plan_list(file, listed.jobs, budget, min_budget, output)
    elif min_budget:
        hint = "Give --budget: the answer says what would meet each deadline"
        raise InputError("--min-budget is for a list without dates, rates and quotas", hint=hint)
    else:
        plan_calendar(file, jobs, listed, flags, output)
