"""``boa calendar``: when each job of a finite list runs, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from boa_daemon.cli.common.output import OutputFormat, OutputOption
from boa_daemon.cli.common.planning_options import (
    MarketName,
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
from boa_daemon.inputs.problem_file import ProblemFile

ListBudgetOption: TypeAlias = Annotated[
    str | None, typer.Option("--budget", help="1500 in total, or 40/h, 900/day, 25000/month.")
]
MinBudgetOption: TypeAlias = Annotated[
    bool, typer.Option("--min-budget", help="The cheapest budget that meets every deadline.")
]
QuotaOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--quota", metavar="TYPE=N", help="Most instances of a type; may be repeated."),
]
StartOption: TypeAlias = Annotated[
    str | None, typer.Option("--start", metavar="DATE", help="The begin of the calendar.")
]
OffOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--off", metavar="WHEN", help="Times without work, 20:00-08:00 or sat-sun; may be repeated."
    ),
]
BlocksOption: TypeAlias = Annotated[
    Path | None, typer.Option("--blocks", metavar="FILE", help="File of Capacity Blocks that you bought.")
]
BootOption: TypeAlias = Annotated[
    float, typer.Option("--boot-seconds", min=0, help="With dates, a rate or a quota: paid seconds per boot.")
]
GanttOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--gantt", metavar="FILE", help="Draw when each job runs; .svg, .png, .pdf."),
]
SpreadOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--spread", min=0, max=0.9, help="Hours are off by less than this fraction in 9 of 10 cases; 0.1."
    ),
]
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
    budget: ListBudgetOption = None,
    min_budget: MinBudgetOption = False,
    quota: QuotaOption = None,
    start: StartOption = None,
    off: OffOption = None,
    blocks: BlocksOption = None,
    boot_seconds: BootOption = BOOT_SECONDS,
    gantt: GanttOption = None,
    spread: SpreadOption = None,
    prices: PricesOption = None,
    market: Annotated[
        MarketName | None,
        typer.Option(
            help="spot: plan on spot as well, with default terms or those of --world.", show_default=False
        ),
    ] = None,
    world: MarketOption = None,
    report: ReportOption = None,
    diff: DiffOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Plan a list of jobs: when each runs, on how many GPUs, for how much, and which dates are missed."""
    check_report(report)
    flags = CalendarFlags(
        budget=budget,
        quota=quota or [],
        start=start,
        gantt=gantt,
        boot_seconds=boot_seconds,
        report=report,
        old=saved_plan(diff),
        off=tuple(off or ()),
        blocks=blocks,
        spread=spread,
    )
    file = read_problem(class_file_of_list(jobs, classes), prices, require_rates=False)
    plan_jobs(file, jobs, flags, market, world, min_budget=min_budget, output=output)


def plan_jobs(
    file: ProblemFile,
    jobs: Path,
    flags: CalendarFlags,
    market: MarketName | None,
    world: Path | None,
    *,
    min_budget: bool,
    output: OutputFormat,
) -> None:
    """Plan a list of jobs as a calendar if it has dates, a rate or a quota, else by its total alone."""
    flags = replace(flags, market=chosen_market(market, world, file))
    listed = read_list(jobs, [c.name for c in file.problem.classes], since(flags.start))
    if not (flags.are_given or listed.has_arrivals or listed.off):
        plan_list(file, listed.jobs, flags.budget, min_budget, output)
    elif min_budget:
        hint = "Give --budget: the answer says what would meet each deadline"
        raise InputError("--min-budget is for a list without dates, rates and quotas", hint=hint)
    else:
        plan_calendar(file, jobs, listed, flags, output)


def class_file_of_list(jobs: Path, classes: Path | None) -> Path:
    """Return the class file: `classes` if given, else ``classes.yaml`` beside the list.

    Raises:
        InputError: when there is neither.
    """
    beside = jobs.with_name("classes.yaml")
    if classes is None and not beside.is_file():
        raise InputError(
            f"there is no {beside} that says how large the jobs of {jobs.name} are and how they scale",
            hint="Give --classes FILE",
        )
    return classes or beside
