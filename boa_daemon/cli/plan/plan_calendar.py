"""The calendar of a list: when each job of a list runs, under dates, a rate or a quota."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from boa_daemon.cli.common.output import OutputFormat, a_table, show, stderr_console, stdout_console
from boa_daemon.cli.common.planning_options import cell, indented_lines
from boa_daemon.cli.common.report import assumptions, check_report, write_report
from boa_daemon.cli.plan.plan_diff import show_difference
from boa_daemon.errors import INFEASIBLE, InputError, MissingPrice
from boa_daemon.inputs.blocks_file import read_blocks
from boa_daemon.inputs.jobs_file import JobsFile, parse_instant
from boa_daemon.inputs.off_hours import working_time
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.calendar_plan import (
    CalendarPlan,
    calendar_budget,
    calendar_plan,
    is_rate,
    read_quota,
)
from boa_daemon.planning.calendar_range import range_said
from boa_daemon.planning.gantt import draw_gantt, gantt_figure, gantt_words
from boa_daemon.planning.plots import as_picture, check_plot_path
from boa_daemon.planning.spot_list import terms_said
from boa_daemon.planning.timed_capacity import with_blocks
from boa_daemon.sim.spot_market import with_spot
from boa_daemon.sim.world_settings import WorldSettings
from boa_daemon.units import SECONDS_PER_HOUR

_ROWS = 60
"""Most jobs in the table; JSON and CSV have all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarFlags:
    """The flags of a calendar, besides its list and its classes."""

    budget: str | None
    quota: list[str]
    start: str | None
    gantt: Path | None
    boot_seconds: float
    report: Path | None = None
    old: Mapping[str, Any] | None = None
    off: tuple[str, ...] = ()
    blocks: Path | None = None
    market: WorldSettings | None = None
    spread: float | None = None

    @property
    def are_given(self) -> bool:
        """Whether some flag needs a calendar; a total budget alone does not."""
        has_rate = self.budget is not None and is_rate(self.budget)
        return (
            has_rate
            or bool(self.quota)
            or self.start is not None
            or self.gantt is not None
            or self.report is not None
            or self.old is not None
            or bool(self.off)
            or self.blocks is not None
            or self.market is not None
            or self.spread is not None
        )


def since(text: str | None) -> datetime | None:
    """Return the instant of `--start`; None if it is not given."""
    try:
        return None if text is None else parse_instant(text)
    except ValueError:
        hint = "Write 2026-12-01 or 2026-12-01T08:00"
        raise InputError(f"--start {text!r} is no date", hint=hint) from None


def plan_calendar(
    file: ProblemFile, path: Path, listed: JobsFile, flags: CalendarFlags, form: OutputFormat
) -> None:
    """Plan the calendar of a list, and draw and print it; exit with code 3 if a deadline is missed."""
    if flags.gantt is not None:
        check_plot_path(flags.gantt, "--gantt")
    check_report(flags.report)
    if not file.has_prices:
        raise MissingPrice(
            "a calendar needs prices of whole instances",
            file=file.path,
            hint="Add gpu_types: {a100: {instance_type: p4d.24xlarge}}",
        )
    if flags.budget is None and not flags.quota and flags.blocks is None:
        raise InputError(
            "no budget", hint="Give --budget 40000/month, 40/h or 1500 (total), or --quota TYPE=4"
        )
    boot_hours = flags.boot_seconds / SECONDS_PER_HOUR
    off = (*listed.off, *flags.off)
    if flags.market is not None and flags.blocks is not None:
        raise InputError("--market spot and --blocks exclude each other", hint="Plan with one of the two")
    start = listed.start or since(flags.start)
    working = working_time(off, start, boot_hours=boot_hours, file=path)
    timed = with_blocks(file, () if flags.blocks is None else read_blocks(flags.blocks), start, working)
    machines = file.instance_types if flags.market is None else with_spot(file, flags.market).instance_types
    with stderr_console().status(f"placing {len(listed.jobs)} jobs"):
        plan = calendar_plan(
            timed.file,
            listed.jobs,
            budget=None if flags.budget is None else calendar_budget(flags.budget),
            quota={**read_quota(flags.quota, machines), **timed.quota},
            start=start if timed.windows else listed.start,
            boot_hours=boot_hours,
            working=working,
            windows=timed.windows,
            market=flags.market,
            spread=flags.spread,
        )
    if flags.gantt is not None:
        draw_gantt(plan, flags.gantt, f"{path.name}: when each job runs")
        stderr_console().print(f"wrote {flags.gantt}")
    document = plan.to_document() | {"off": list(off)}
    if timed.windows:
        document |= {"blocks_usd": timed.usd}
        stderr_console().print(timed.sentence, markup=False)
    if flags.market is not None:
        document["spot"] = terms_said(flags.market)
    limits = {
        "list": path.name,
        "budget": "no limit of money" if plan.budget is None else plan.budget.said(),
        "quota": ", ".join(flags.quota) or "none",
        "boot": f"{flags.boot_seconds:g} seconds, waited for and paid",
        "hours off": "; ".join(off) or "none",
        "low and high": range_said(plan.between),
    } | ({} if flags.market is None else terms_said(flags.market))
    write_report(
        flags.report,
        f"{path.name}: when each job runs",
        _lead(plan),
        document=document,
        table=lambda: _print(plan, rows=len(plan.entries)),
        pictures=lambda: [as_picture(gantt_figure(plan, "When each job runs"), gantt_words(plan))],
        assumed=assumptions(file, is_list=True, **limits),
        bad=plan.verdict,
    )
    if flags.old is not None:
        show_difference(flags.old, document, form)
    else:
        show(form, document, rows=lambda: _rows(document), table=lambda: _print(plan))
    if not plan.is_met:
        raise typer.Exit(INFEASIBLE)


def _lead(plan: CalendarPlan) -> str:
    """Return the verdict in a sentence: whether all is well, when all is done, and for how much."""
    done = plan.sentences()[0]
    if plan.found.calendar.left_out:
        return f"Not every job has a place. {done}"
    return done if plan.is_met else f"Not every deadline is met. {done}"


def _rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    return list(document["jobs"])


def _print(plan: CalendarPlan, *, rows: int = _ROWS) -> None:
    """Print the calendar: when each job runs, which are late, and what would save their deadlines."""
    console = stdout_console()
    money = "no limit of money" if plan.budget is None else plan.budget.said()
    table = a_table(
        f"Calendar of {len(plan.entries)} jobs for {money}",
        *("job", "class", "on", "GPUs", "starts", "ends", "due", "$"),
        right=("GPUs", "$"),
        optional=("class", "on", "GPUs"),
    )
    for entry in plan.entries[:rows]:
        option, job = entry.option, entry.job
        due = "" if job.job.deadline_hours is None else plan.when(job.due_hours)
        table.add_row(
            cell(job.job.id),
            cell(job.job.class_name),
            cell(f"{option.instances} x {plan.machines[option.gpu_type].name}"),
            str(option.gpus),
            plan.when(entry.starts),
            plan.when(entry.ends),
            f"[red]{due} late[/]" if entry.is_late else due,
            f"{option.usd:,.2f}",
        )
    console.print(table)
    if len(plan.entries) > rows:
        console.print(f"  … and {len(plan.entries) - rows} more; -o csv shows all")
    console.print()
    console.print(indented_lines(plan.sentences()))
    if plan.changes:
        console.print()
        saves = a_table("Cheapest change found that would meet each deadline", "job", "due", "change")
        for job in plan.found.calendar.missed[:rows]:
            change = plan.said(plan.changes[job.job.id])
            saves.add_row(cell(job.job.id), plan.when(job.due_hours), cell(change))
        console.print(saves)
