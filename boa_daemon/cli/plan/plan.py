"""``boa plan``: what a budget buys for a stream of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption
from boa_daemon.cli.common.daemon_status import show_live_plan
from boa_daemon.cli.common.open import OpenOption, PageOption, show_page
from boa_daemon.cli.common.output import (
    OutputFormat,
    OutputOption,
    print_json,
    print_text,
    show,
    stderr_console,
)
from boa_daemon.cli.common.planning_options import (
    BestEffortOption,
    ClassesOrTraceOption,
    CommitmentsOption,
    MarketNameOption,
    MarketOption,
    PricesOption,
    best_effort_is_named,
    chosen_market,
    commitments_today,
    curve_answers,
    money,
    price_document,
    read_problem,
    stretch_rows,
    with_budget_flag,
)
from boa_daemon.cli.common.report import ReportOption, assumptions, check_report, write_report
from boa_daemon.cli.plan.calendar import BOOT_SECONDS, calendar
from boa_daemon.cli.plan.plan_clouds import plan_clouds
from boa_daemon.cli.plan.plan_diff import DiffOption, saved_plan, show_difference
from boa_daemon.cli.plan.plan_stream import (
    plan_bad_news,
    plan_facts,
    plan_picture,
    plan_sentence,
    print_stream,
    show_best_effort,
)
from boa_daemon.cli.plan.solve import VersionName, VersionOption
from boa_daemon.errors import PARTLY_DONE, InputError, not_one_of
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.budget_plan import best_effort_plan, budget_plan, with_trace
from boa_daemon.planning.exports import EXPORT_KINDS, export
from boa_daemon.planning.plan_documents import infeasible_document
from boa_daemon.planning.promise_text import promise_sentence
from boa_daemon.planning.promises import pace_of, promise_rows
from boa_daemon.planning.spot_advice import advice_document, advice_sentence, spot_advice
from boa_daemon.sim.spot_market import on_both_markets, saves_of
from boa_daemon.traces.rates import work_of
from boa_daemon.traces.reader import Trace, check_classes, class_file_of, read_trace
from boa_daemon.units import per_of
from policies.errors import InfeasibleBudget
from policies.optimum.solution import Version

OF_A_LIST = typer.Option(hidden=True)
"""Flags of ``boa plan --jobs LIST``, which is `boa calendar LIST` now; they go with the next release."""


def plan(
    *,
    classes: ClassesOrTraceOption = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Trace whose arrivals give the rates, such as trace.csv of an import."
        ),
    ] = None,
    jobs: Annotated[Path | None, OF_A_LIST] = None,
    budget: Annotated[str | None, typer.Option(help="40/h, 900/day, 25000/month or gpus:48.")] = None,
    min_budget: Annotated[bool, OF_A_LIST] = False,
    quota: Annotated[list[str] | None, OF_A_LIST] = None,
    max_nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Most nodes at once: say what this limit takes from the plan."),
    ] = None,
    start: Annotated[str | None, OF_A_LIST] = None,
    off: Annotated[list[str] | None, OF_A_LIST] = None,
    blocks: Annotated[Path | None, OF_A_LIST] = None,
    boot_seconds: Annotated[float, OF_A_LIST] = BOOT_SECONDS,
    gantt: Annotated[Path | None, OF_A_LIST] = None,
    cloud: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Compare what the budget buys on these clouds of the price files; or all."
        ),
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option(metavar="REGION", help="With --cloud: only these regions; may be repeated."),
    ] = None,
    export_to: Annotated[
        str | None,
        typer.Option(
            "--export",
            metavar="KIND",
            help=f"Print the plan's widths and quotas for another scheduler: {', '.join(EXPORT_KINDS)}.",
        ),
    ] = None,
    best_effort: BestEffortOption = False,
    version: VersionOption = VersionName.mixed,
    prices: PricesOption = None,
    commitments: CommitmentsOption = None,
    market: MarketNameOption = None,
    world: MarketOption = None,
    spread: Annotated[float | None, OF_A_LIST] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Show what the daemon would do at its next tick; nothing is started."),
    ] = False,
    report: ReportOption = None,
    diff: DiffOption = None,
    opens: OpenOption = False,
    page: PageOption = None,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Plan a budget offline: GPUs, time and dollars per class, and what the next dollar would buy."""
    if live:
        show_live_plan(config, socket, output)
        return
    if jobs is None and (min_budget or quota or off or blocks or start is not None or gantt is not None):
        problem = "--min-budget, --quota, --start, --off, --blocks and --gantt are of a list of jobs"
        raise InputError(problem, hint="Plan it with boa calendar LIST")
    if jobs is not None and max_nodes is not None:
        raise InputError("--max-nodes is for a stream of jobs", hint="Give --quota TYPE=N for a list")
    if jobs is None and spread is not None:
        raise InputError("--spread is of the hours of a list's jobs", hint="Plan them with boa calendar LIST")
    check_report(report)
    old = saved_plan(diff)
    _check_export(export_to, is_list=jobs is not None or cloud is not None)
    if region and cloud is None:
        raise InputError("--region needs --cloud", hint="For example --cloud all")
    if cloud is not None:
        if jobs is not None or world is not None or commitments is not None or diff is not None:
            problem = "--cloud does not go with --jobs, --world, --commitments and --diff"
            raise InputError(problem, hint="It compares what a budget buys for a stream of jobs")
        # The prices of several places are no prices of one plan.
        file, _ = _read(classes, trace, None)
        _, asked = with_budget_flag(file, budget, is_plan=True)
        raise typer.Exit(
            plan_clouds(
                file,
                asked,
                _whole(version),
                clouds=cloud,
                regions=region or [],
                market=market,
                prices=prices or [],
                per=per_of(budget),
                output=output,
            )
        )
    if jobs is not None:
        _refuse_of_stream(
            {
                "--commitments": commitments is not None,
                "--trace": trace is not None,
                "--open": opens,
                "--page": page is not None,
                "--best-effort": best_effort,
            }
        )
        stderr_console().print("[yellow]note[/] boa plan --jobs FILE is now boa calendar FILE")
        calendar(
            jobs,
            classes=classes,
            budget=budget,
            min_budget=min_budget,
            quota=quota,
            start=start,
            off=off,
            blocks=blocks,
            boot_seconds=boot_seconds,
            gantt=gantt,
            spread=spread,
            prices=prices,
            market=market,
            world=world,
            report=report,
            diff=diff,
            output=output,
        )
        return
    file, arrivals = _read(classes, trace, prices)
    whole = _whole(version)
    terms = chosen_market(market, world, file)
    file = file if terms is None else on_both_markets(file, terms)
    file, asked = with_budget_flag(file, budget, is_plan=True)
    paid = None
    if commitments is not None:
        paid = commitments_today(file, asked, commitments)
        asked = replace(asked, amount=paid.planning_budget(file.problem, asked.amount))
    try:
        with best_effort_is_named(budget):
            result = budget_plan(file, asked, whole, max_nodes=max_nodes)
    except InfeasibleBudget as error:
        if best_effort:
            show_best_effort(best_effort_plan(file, asked), output, per_of(budget))
            return
        if output is OutputFormat.json:
            print_json(infeasible_document(error, asked.amount, file.problem, whole))
        raise
    if export_to is not None:
        text = export(export_to, result, Catalog.load(*(prices or ())))
        if output is OutputFormat.json:
            print_json({"export": export_to, "text": text})
        else:
            print_text(text)
        return
    if opens or page is not None:
        show_page(f"boa plan {Path(file.path).name}", curve_answers(file, asked), page=page, opens=opens)
    loads = None if arrivals is None else work_of(arrivals, file.problem.classes)
    promised = promise_rows(pace_of(file.problem, asked.amount), loads)
    said_of_pace = [promise_sentence(promised, is_seen=loads is not None)] if promised else []
    per = per_of(budget)
    bill = None if paid is None else paid.to_document(paid.load_of(file.problem, result.solution))
    saves = () if terms is None else spot_advice(result.solution, file.instance_types, terms)
    said_of_spot = [] if terms is None else [advice_sentence(saves, saves_of(terms))]
    document = (
        result.to_document()
        | price_document(file)
        | {"promises": promised}
        | ({} if bill is None else {"commitments": bill})
        | ({} if terms is None else {"checkpoints": advice_document(saves)})
    )
    write_report(
        report,
        f"Plan for {money(result.budget.amount, result.budget.unit, per)}",
        plan_sentence(result, per),
        document=document,
        table=lambda: print_stream(result, bill, [*said_of_pace, *said_of_spot], per=per),
        pictures=lambda: [plan_picture(result, per)],
        assumed=assumptions(file, budget=money(result.budget.amount, result.budget.unit, per)),
        bad=plan_bad_news(result, per),
        facts=plan_facts(result, per),
    )
    if old is not None:
        show_difference(old, document, output)
    else:
        show(
            output,
            document,
            rows=lambda: stretch_rows(result.solution, "spend_per_job"),
            table=lambda: print_stream(result, bill, [*said_of_pace, *said_of_spot], per=per),
        )
    if result.solution.status != "optimal":
        gap = f"{result.solution.gap:.3%}"
        stderr_console().print(f"[yellow]note[/] search stopped early; no plan is more than {gap} better")
        raise typer.Exit(PARTLY_DONE)


def _check_export(kind: str | None, *, is_list: bool) -> None:
    """Refuse an unknown kind of export, and one that has no plan of a stream.

    Raises:
        InputError: when it is one of these.
    """
    if kind is None:
        return
    if kind not in EXPORT_KINDS:
        raise InputError(f"--export {not_one_of(kind, EXPORT_KINDS)}")
    if is_list:
        raise InputError("--export does not go with --cloud and a list", hint="It is of one plan of a stream")


def _whole(version: VersionName) -> Version:
    """Return a version with whole widths.

    Raises:
        InputError: when it is the continuous one.
    """
    if version.value == "continuous":
        raise InputError(
            "boa plan gives whole GPUs", hint="For real widths use boa solve --version continuous"
        )
    return version.value


def _refuse_of_stream(given: Mapping[str, bool]) -> None:
    """Refuse flags that say something of a stream, where a list is planned.

    Raises:
        InputError: naming the first of them that is given.
    """
    for name, is_given in given.items():
        if is_given:
            raise InputError(f"{name} is for a stream of jobs, not for a list", hint=_FOR_A_LIST[name])


_FOR_A_LIST = {
    "--commitments": "A list ends long before a commitment does",
    "--trace": "A list of jobs has no arrivals: leave out --jobs or --trace",
    "--open": "A list has no such curve: use --report FILE.html or --gantt FILE.svg",
    "--page": "A list has no such curve: use --report FILE.html or --gantt FILE.svg",
    "--best-effort": "Leave jobs out of the list",
}


def _read(
    classes: Path | None, trace: Path | None, prices: list[Path] | None
) -> tuple[ProblemFile, Trace | None]:
    """Return the classes with their own rates, or with those of the trace, and the trace, read once."""
    if classes is None:
        if trace is None:
            raise InputError(
                "nothing to plan", hint="Give --classes FILE, or --trace FILE with classes.yaml beside it"
            )
        classes = class_file_of(trace, None)
    if trace is None:
        return read_problem(classes, prices), None
    file = read_problem(classes, prices, require_rates=False)
    arrivals = read_trace(trace)
    check_classes(arrivals, [job_class.name for job_class in file.problem.classes], trace)
    return with_trace(file, arrivals), arrivals
