"""``boa plan``: what a budget buys for a stream of jobs, or for a finite list of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boa_daemon.cli.calendar import CalendarFlags, plan_calendar, since
from boa_daemon.cli.open import OpenOption, PageOption, show_page
from boa_daemon.cli.output import (
    OutputFormat,
    OutputOption,
    a_table,
    print_json,
    show,
    stderr_console,
    stdout_console,
)
from boa_daemon.cli.plan_diff import DiffOption, saved_plan, show_difference
from boa_daemon.cli.planning import (
    BestEffortOption,
    ClassesOrTraceOption,
    CommitmentsOption,
    MarketName,
    MarketOption,
    PricesOption,
    best_effort_is_named,
    budgeted,
    cell,
    chosen_market,
    committed,
    curve_answers,
    money,
    phases_text,
    read_problem,
    runs,
    said,
    share_text,
    width_text,
)
from boa_daemon.cli.report import ReportOption, assumptions, check_report, write_report
from boa_daemon.cli.solve import VersionName, VersionOption
from boa_daemon.cli.state import show_live_plan
from boa_daemon.cli.talking import ConfigOption, SocketOption
from boa_daemon.errors import PARTLY_DONE, InputError
from boa_daemon.inputs.jobs_file import read_list
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.answers import has_weights, infeasible_document
from boa_daemon.planning.budget_plan import (
    BestEffortPlan,
    BudgetPlan,
    Packing,
    best_effort_plan,
    budget_plan,
    with_trace,
)
from boa_daemon.planning.curve import Curve
from boa_daemon.planning.paid_anyway import paid_sentence
from boa_daemon.planning.plots import curve_figure, curve_plot
from boa_daemon.planning.spot_advice import advice_document, advice_sentence, spot_advice
from boa_daemon.sim.spot_market import on_both_markets, saves_of
from boa_daemon.tick.shortfall import shortfall_sentence
from boa_daemon.traces.reader import check_classes, read_trace
from boa_daemon.units import HOURS_PER_MONTH, format_hours, parse_dollars
from policies.errors import InfeasibleBudget, InfeasibleDeadline
from policies.optimum.job_list import JobList, JobPlan, ListedJob, ListSolution
from policies.optimum.solution import Version

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROWS = 60
"""Jobs of a list that the table shows; JSON and CSV show all."""


def plan(
    *,
    classes: ClassesOrTraceOption = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Arrivals that give the rates: trace.csv of an import."),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A finite list instead: job_id,class_name and any of the other columns."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="40/h, 900/day, 25000/month or gpus:48; with --jobs also dollars in all."),
    ] = None,
    min_budget: Annotated[
        bool, typer.Option("--min-budget", help="With --jobs: the cheapest budget that meets every deadline.")
    ] = False,
    quota: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE=N", help="With --jobs: so many instances of a type; may be repeated."),
    ] = None,
    start: Annotated[
        str | None, typer.Option(metavar="DATE", help="With --jobs: the instant from which hours count.")
    ] = None,
    off: Annotated[
        list[str] | None,
        typer.Option(metavar="WHEN", help="With --jobs: hours off, 20:00-08:00 or sat-sun; may be repeated."),
    ] = None,
    blocks: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --jobs: Capacity Blocks that were bought.")
    ] = None,
    boot_seconds: Annotated[
        float, typer.Option(min=0, help="With --jobs and dates, a rate or a quota: seconds of a boot, paid.")
    ] = 180.0,
    gantt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --jobs: draw when each job runs; .svg, .png, .pdf."),
    ] = None,
    best_effort: BestEffortOption = False,
    version: VersionOption = VersionName.mixed,
    prices: PricesOption = None,
    commitments: CommitmentsOption = None,
    market: Annotated[
        MarketName | None,
        typer.Option(help="Plan on spot as well: default terms, or those of --world.", show_default=False),
    ] = None,
    world: MarketOption = None,
    spread: Annotated[
        float | None,
        typer.Option(
            min=0, max=0.9, help="With --jobs: hours differ by this part in nine of ten cases; 0.1 if unsaid."
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="What the daemon would do at its next tick; nothing is started.")
    ] = False,
    report: ReportOption = None,
    diff: DiffOption = None,
    opens: OpenOption = False,
    page: PageOption = None,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Plan a budget offline: widths, waiting and dollars per class, and what the next dollar would buy."""
    if live:
        show_live_plan(config, socket, output)
        return
    if jobs is None and (quota or off or blocks or start is not None or gantt is not None):
        problem = "--quota, --start, --off and --gantt need --jobs"
        raise InputError(problem, hint="They are about a list of jobs")
    if jobs is None and spread is not None:
        raise InputError("--spread needs --jobs", hint="It is about the hours of a list's jobs")
    check_report(report)
    old = saved_plan(diff)
    file = _read(classes, trace, jobs, prices)
    if jobs is not None:
        if commitments is not None:
            raise InputError("--commitments is for a stream of jobs", hint="A list ends long before a term")
        if trace is not None:
            raise InputError("--trace and --jobs exclude each other", hint="A list of jobs has no arrivals")
        if opens or page is not None:
            raise InputError("--open draws a stream of jobs", hint="A list has no curve of this kind")
        if best_effort:
            raise InputError(
                "--best-effort is for a stream of jobs", hint="A list has an end: leave jobs out"
            )
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
            _plan_list(file, listed.jobs, budget, min_budget, output)
        elif min_budget:
            hint = "Give a budget: the answer says which one saves each deadline"
            raise InputError("--min-budget is for a list without dates, rates and quotas", hint=hint)
        else:
            plan_calendar(file, jobs, listed, flags, output)
        return
    if min_budget:
        raise InputError(
            "--min-budget needs --jobs", hint="For a stream see cheapest_feasible_spend in the answer"
        )
    whole: Version = version.value
    if whole == "continuous":
        raise InputError(
            "boa plan gives whole GPUs", hint="For real widths use boa solve --version continuous"
        )
    terms = chosen_market(market, world, file)
    file = file if terms is None else on_both_markets(file, terms)
    file, asked = budgeted(file, budget, is_plan=True)
    paid = None
    if commitments is not None:
        paid = committed(file, asked, commitments)
        asked = replace(asked, amount=paid.planning_budget(file.problem, asked.amount))
    try:
        with best_effort_is_named():
            result = budget_plan(file, asked, whole)
    except InfeasibleBudget as error:
        if best_effort:
            _show_best_effort(best_effort_plan(file, asked), output)
            return
        if output is OutputFormat.json:
            print_json(infeasible_document(error, asked.amount, file.problem, whole))
        raise
    if opens or page is not None:
        show_page(f"boa plan {file.path}", curve_answers(file, asked), page=page, opens=opens)
    bill = None if paid is None else paid.to_document(paid.load_of(file.problem, result.solution))
    saves = () if terms is None else spot_advice(result.solution, file.instance_types, terms)
    said_of_spot = [] if terms is None else [advice_sentence(saves, saves_of(terms))]
    document = (
        result.to_document()
        | _price_document(file)
        | ({} if bill is None else {"commitments": bill})
        | ({} if terms is None else {"checkpoints": advice_document(saves)})
    )
    write_report(
        report,
        f"Plan for {money(result.budget.amount, result.budget.unit)}",
        _sentence(result),
        document=document,
        table=lambda: _print_stream(result, bill, said_of_spot),
        figures=lambda: [_figure(result)],
        assumed=assumptions(file, budget=money(result.budget.amount, result.budget.unit)),
    )
    if old is not None:
        show_difference(old, document, output)
    else:
        show(
            output,
            document,
            rows=lambda: _stream_rows(result),
            table=lambda: _print_stream(result, bill, said_of_spot),
        )
    if result.solution.status != "optimal":
        gap = f"{result.solution.gap:.3%}"
        stderr_console().print(f"[yellow]note[/] search stopped early; no plan is more than {gap} better")
        raise typer.Exit(PARTLY_DONE)


def _sentence(result: BudgetPlan) -> str:
    unit, solution = result.budget.unit, result.solution
    month = "" if unit == "gpus" else f", ${HOURS_PER_MONTH * solution.mean_spend:,.0f} a month"
    return (
        f"{money(result.budget.amount, unit)} brings jobs from submission to end in "
        f"{format_hours(solution.mean_jct_hours)} on average; planned are "
        f"{money(solution.mean_spend, unit)}{month}."
    )


def _figure(result: BudgetPlan) -> Figure:
    """Return the curve with the budget of a plan marked on it."""
    curve = Curve.of(result.problem, "integer-mixed")
    return curve_figure(curve_plot(curve, "What a budget buys", result.budget))


def _read(
    classes: Path | None, trace: Path | None, jobs: Path | None, prices: list[Path] | None
) -> ProblemFile:
    """Return the classes with rates: their own, or those of the trace."""
    if classes is None:
        if trace is None:
            raise InputError(
                "nothing to plan", hint="Give --classes FILE, or --trace FILE with classes.yaml beside it"
            )
        classes = trace.with_name("classes.yaml")
        if not classes.is_file():
            raise InputError(
                f"there is no {classes} that says how large the jobs of {trace.name} are and how they scale",
                hint="Give --classes FILE, or have `boa trace import` write both",
            )
    if trace is None:
        return read_problem(classes, prices, require_rates=jobs is None)
    file = read_problem(classes, prices, require_rates=False)
    arrivals = read_trace(trace)
    check_classes(arrivals, [job_class.name for job_class in file.problem.classes], trace)
    return with_trace(file, arrivals)


def _price_document(file: ProblemFile) -> dict[str, Any]:
    """Return of which day the prices of a plan are."""
    return {"prices": [note.to_document() for note in file.prices]}


def _stream_rows(result: BudgetPlan) -> list[dict[str, Any]]:
    """Return one row per class and stretch of phases."""
    return [
        {
            "class": answer.name,
            "job_fraction": share.job_fraction,
            "first_phase": first,
            "last_phase": last,
            "gpu_type": step.gpu_type,
            "gpus": step.gpus,
            "hours": step.hours,
            "spend_per_job": step.spend,
        }
        for answer in result.solution.classes
        for share in answer.plans
        for first, last, step in runs(share.steps)
    ]


def _print_stream(result: BudgetPlan, bill: dict[str, Any] | None, of_spot: Sequence[str] = ()) -> None:
    """Print the plan: who gets what, the totals, the curve around it, the swing, what is paid anyway."""
    console = stdout_console()
    unit = result.budget.unit
    per_job = "GPU-h/job" if unit == "gpus" else "$/job"
    per_hour = "GPUs" if unit == "gpus" else "$/h"
    right = ("jobs/h", "phases", "width", "JCT", per_job, per_hour)
    table = a_table(
        f"Plan for {money(result.budget.amount, unit)}",
        *("class", "jobs/h", "share", "phases", "width", "JCT", per_job, per_hour),
        right=right,
    )
    for job_class, answer in zip(result.problem.classes, result.solution.classes, strict=True):
        spend = job_class.arrivals_per_hour * answer.mean_spend
        table.add_row(
            f"[bold]{cell(job_class.name)}[/]",
            f"{job_class.arrivals_per_hour:.3g}",
            *("", "", ""),
            format_hours(answer.mean_jct_hours),
            f"{answer.mean_spend:,.4g}",
            f"{spend:,.2f}",
        )
        for share in answer.plans:
            part = share_text(share)
            for first, last, step in runs(share.steps):
                table.add_row(
                    *("", "", part, phases_text(first, last, len(share.steps)), cell(width_text(step))),
                    f"[dim]{format_hours(step.hours)}[/]",
                    f"[dim]{step.spend:,.4g}[/]",
                )
                part = ""
    table.add_section()
    table.add_row(
        *("[bold]all[/]", f"{sum(c.arrivals_per_hour for c in result.problem.classes):.3g}", "", "", ""),
        f"[bold]{format_hours(result.solution.mean_jct_hours)}[/]",
        "",
        f"[bold]{result.solution.mean_spend:,.2f}[/]",
    )
    console.print(table)
    console.print()
    console.print(said(stream_sentences(result)))
    console.print()
    console.print(_swing_table(result.packing))
    console.print()
    if result.without:
        console.print(said(one.sentence for one in result.without))
    month = "" if unit == "gpus" else f" (${HOURS_PER_MONTH * result.solution.mean_spend:,.0f} a month)"
    console.print(f"  Planned spend {money(result.solution.mean_spend, unit)}{month}.")
    if of_spot:
        console.print(said(of_spot))
    if bill is not None:
        console.print(said([paid_sentence(bill)]))
    console.print("[dim]  Next: boa frontier FILE --plot curve.svg, and boa simulate --help[/]")


def stream_sentences(result: BudgetPlan) -> list[str]:
    """Return what surrounds the plan on the curve, in words."""
    unit, knee, spent = result.budget.unit, result.knee, result.solution.mean_spend
    one = "GPU" if unit == "gpus" else "dollar per hour"
    mean = "weighted mean JCT" if has_weights(result.problem) else "mean JCT"
    found = []
    if result.next_unit_saves_hours > 0.0:
        found.append(f"One more {one} would cut the {mean} by {format_hours(result.next_unit_saves_hours)}.")
    else:
        found.append(f"One more {one} would buy nothing: every job already has its fastest width.")
    bend = f"the knee ({money(knee.budget, unit)}, {mean} {format_hours(knee.hours)})"
    if spent < 0.98 * knee.budget:
        found.append(f"You are left of {bend}: more money pays well.")
    elif spent > 1.02 * knee.budget:
        each = "GPU" if unit == "gpus" else "dollar"
        found.append(f"You are right of {bend}: each further {each} saves less than its share.")
    else:
        found.append(f"You are at {bend}: a good place to stop.")
    least, most = result.waste
    found.append(
        f"Whole instances add {least:.0%} to the planned spend with perfect packing, {most:.0%} if no two "
        "jobs share a node; leave that part of the budget out of the plan."
    )
    if result.not_spent > 0.005 * result.budget.amount:
        month = "" if unit == "gpus" else f", ${HOURS_PER_MONTH * result.not_spent:,.0f} a month"
        found.append(f"Of the budget {money(result.not_spent, unit)}{month} is not spent.")
    found += [one.sentence for one in result.unused]
    return found + [one.sentence for one in result.edges]


def _show_best_effort(result: BestEffortPlan, form: OutputFormat) -> None:
    """Show what a budget below the least does."""
    show(
        form,
        result.to_document(),
        rows=lambda: list(result.rows),
        table=lambda: _print_best_effort(result),
    )


def _print_best_effort(result: BestEffortPlan) -> None:
    """Print for people who is served at which width, and how the queue grows."""
    unit = result.shortfall.unit
    per_job, per_hour = ("GPU-h/job", "GPUs") if unit == "gpus" else ("$/job", "$/h")
    columns = ("class", "jobs/h", "served", "width", per_job, per_hour)
    table = a_table(f"Best effort for {money(result.shortfall.budget, unit)}", *columns, right=columns[1:])
    for row in result.rows:
        table.add_row(
            cell(row["class"]),
            f"{row['arrivals_per_hour']:.3g}",
            f"{row['served_fraction']:.0%}",
            cell(row["widths"]),
            f"{row['spend_per_job']:,.4g}",
            f"{row['spend_per_hour']:,.2f}",
        )
    stdout_console().print(table)
    stdout_console().print()
    sentence = shortfall_sentence(result.shortfall)
    stdout_console().print(said([f"{sentence[0].upper()}{sentence[1:]}."]))


def _swing_table(packing: tuple[Packing, ...]) -> Any:
    """Return how many GPUs and instances are held, so that quotas can be asked for."""
    table = a_table(
        "How wide the cluster swings",
        *("GPU type", "instance", "GPUs", "mean GPUs", "± sd", "99 % of time", "to ask for"),
        right=("GPUs", "mean GPUs", "± sd", "99 % of time", "to ask for"),
    )
    for part in packing:
        table.add_row(
            cell(part.gpu_type),
            cell(part.instance_type.name),
            f"{part.instance_type.gpus}",
            f"{part.swing.mean_gpus:.1f}",
            f"{part.swing.sd_gpus:.1f}",
            f"{part.quota_gpus} GPUs",
            f"{part.quota_nodes} nodes" if part.quota_nodes != 1 else "1 node",
        )
    return table


def _plan_list(
    file: ProblemFile,
    listed: Sequence[ListedJob],
    budget: str | None,
    min_budget: bool,
    form: OutputFormat,
) -> None:
    """Plan a finite list of jobs and print it."""
    if (budget is None) is not min_budget:
        problem = "no budget" if budget is None else "--budget and --min-budget exclude each other"
        raise InputError(problem, hint="Give --budget DOLLARS in all, or --min-budget")
    amount = None if budget is None else _in_all(budget)
    try:
        with stderr_console().status(f"weighing the plans of {len(listed)} jobs"):
            jobs = JobList.of(file.problem, listed)
            solution = jobs.solution_at(jobs.frontier.cheapest_feasible_spend if amount is None else amount)
    except (InfeasibleBudget, InfeasibleDeadline) as error:
        if form is OutputFormat.json:
            print_json(_infeasible_list_document(error, amount, file))
        raise
    show(
        form,
        _list_document(solution, file) | _price_document(file),
        rows=lambda: [_job_row(job_plan) for job_plan in solution.jobs],
        table=lambda: _print_list(solution, file, min_budget),
    )


def _in_all(text: str) -> float:
    """Return the sum of money that a flag says; so many GPUs make no sense for a list."""
    if ":" in text:
        raise InputError(
            f"--budget {text!r}: a list of jobs has dollars, and a quota of instances",
            hint="Give dollars in all, such as 1500, or 40000/month; instances by --quota TYPE=4",
        )
    return parse_dollars(text)


def _infeasible_list_document(
    error: InfeasibleBudget | InfeasibleDeadline, amount: float | None, file: ProblemFile
) -> dict[str, Any]:
    """Return the answer where no plan does: the least money, or the least time of the job that is late."""
    document = {
        "status": "infeasible",
        "budget_unit": _list_unit(file),
        "budget": amount,
        "message": str(error),
    }
    if isinstance(error, InfeasibleBudget):
        return document | {"cheapest_feasible_spend": error.least_spend}
    return document | {"least_hours": error.least_hours}


def _list_unit(file: ProblemFile) -> str:
    """Return what a list's budget counts."""
    return "gpu_hours" if file.problem.budget_unit == "gpus" else "usd"


def _list_document(solution: ListSolution, file: ProblemFile) -> dict[str, Any]:
    """Return the plan of a list as JSON."""
    return {
        "status": "optimal" if solution.gap <= 1e-9 else "feasible",
        "budget_unit": _list_unit(file),
        "budget": solution.budget,
        "spend": solution.spend,
        "mean_jct_hours": solution.mean_jct_hours,
        "weighted_mean_jct_hours": solution.weighted_mean_jct_hours,
        "dual_bound_hours": solution.bound_weighted_mean_jct_hours,
        "gap": solution.gap,
        "multiplier": solution.multiplier,
        "cheapest_feasible_spend": solution.cheapest_feasible_spend,
        "largest_useful_spend": solution.largest_useful_spend,
        "jobs": [
            {
                "job_id": job_plan.job.id,
                "class_name": job_plan.job.class_name,
                "jct_hours": job_plan.plan.hours,
                "deadline_hours": job_plan.job.deadline_hours,
                "spend": job_plan.plan.spend,
                "phases": [{"gpu_type": step.gpu_type, "gpus": step.gpus} for step in job_plan.plan.steps],
            }
            for job_plan in solution.jobs
        ],
    }


def _job_row(job_plan: JobPlan) -> dict[str, Any]:
    return {
        "job_id": job_plan.job.id,
        "class_name": job_plan.job.class_name,
        "jct_hours": job_plan.plan.hours,
        "deadline_hours": "" if job_plan.job.deadline_hours is None else job_plan.job.deadline_hours,
        "spend": job_plan.plan.spend,
        "widths": _widths_text(job_plan),
    }


def _widths_text(job_plan: JobPlan) -> str:
    """Return the widths in order: ``4 x t4, then 16 x t4``."""
    return ", then ".join(width_text(step) for _, _, step in runs(job_plan.plan.steps))


def _print_list(solution: ListSolution, file: ProblemFile, min_budget: bool) -> None:
    """Print the plan of a list for people."""
    console = stdout_console()
    counted = file.problem.budget_unit == "gpus"
    unit = "GPU-h" if counted else "$"
    table = a_table(
        f"Plan for {len(solution.jobs)} jobs",
        *("job", "class", "width", "done in", "deadline", unit),
        right=("done in", "deadline", unit),
    )
    for job_plan in solution.jobs[:_ROWS]:
        deadline = job_plan.job.deadline_hours
        table.add_row(
            cell(job_plan.job.id),
            cell(job_plan.job.class_name),
            cell(_widths_text(job_plan)),
            format_hours(job_plan.plan.hours),
            "" if deadline is None else format_hours(deadline),
            f"{job_plan.plan.spend:,.2f}",
        )
    console.print(table)
    if len(solution.jobs) > _ROWS:
        console.print(f"  … and {len(solution.jobs) - _ROWS} more; -o csv shows all")
    console.print()
    total = f"{solution.spend:,.2f} GPU-hours" if counted else f"${solution.spend:,.2f}"
    mean = f"Mean JCT {format_hours(solution.mean_jct_hours)}"
    if any(job_plan.job.weight != 1.0 for job_plan in solution.jobs):
        mean += f", weighted {format_hours(solution.weighted_mean_jct_hours)},"
    # Rounded up, so that it is enough when it is typed back in.
    cents = math.ceil(100.0 * solution.cheapest_feasible_spend * (1.0 - 1e-12)) / 100.0
    least = f"{cents:,.2f} GPU-hours" if counted else f"${cents:,.2f}"
    console.print(
        said(
            [
                f"{mean} for {total}; no plan is more than {solution.gap:.2%} better.",
                f"The cheapest budget that runs every job in time is {least}."
                if min_budget
                else f"The least that would do is {least}.",
            ]
        )
    )
