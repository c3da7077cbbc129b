"""``boa compare``: compare policies on the same jobs and for the same money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Annotated

import typer

from boa_daemon.cli.common.completion import complete_policies
from boa_daemon.cli.common.open import OpenOption, PageOption, show_page
from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.cli.common.planning_options import ClassesOrTraceOption, in_unit_asked
from boa_daemon.cli.common.simulation_options import (
    BootOption,
    BootSecondsOption,
    IdleHoldOption,
    SpotOption,
    TraceOption,
    WorldOption,
    settings_in_world,
)
from boa_daemon.cli.common.task_progress import OnOption, OutOption, tasks_with_progress
from boa_daemon.errors import InputError
from boa_daemon.lab.compare.cells import CellResult, Comparison
from boa_daemon.lab.compare.comparison_page import (
    HEADINGS,
    about,
    cap_text,
    decomposition_text,
    table_cells,
    write_comparison,
)
from boa_daemon.lab.compare.comparison_plots import MoneyPlot, save_money
from boa_daemon.lab.compare.comparison_summary import (
    LowerBounds,
    PolicyLine,
    at_cap,
    decompose,
    floor_of,
    leader,
    lines_of,
    with_ratios,
)
from boa_daemon.lab.compare.run_cells import run_all, whole_part
from boa_daemon.planning.plots import check_plot_path
from boa_daemon.tick.facts.state import IDLE_HOLD_SECONDS
from boa_daemon.units import Per, format_hours, parse_budget, per_of
from policies.model import Budget
from policies.optimum.frontier import MixedFrontier, infeasible_budget
from policies.optimum.hull import TIE
from policies.registry import DEFAULT_POLICY, POLICIES, find_policy

PAGE_SUFFIXES = (".html", ".htm")


def compare(  # noqa: PLR0917 - the parameters are the flags of the command
    trace: TraceOption,
    budget: Annotated[list[str], typer.Option(help="60/h, 900/day or gpus:48; may be repeated.")],
    classes: ClassesOrTraceOption = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Policy to compare with {DEFAULT_POLICY}; may be repeated. Default: {', '.join(POLICIES)}.",
            autocompletion=complete_policies,
        ),
    ] = None,
    told: Annotated[
        bool, typer.Option("--told", help="The reference knows true rates and sizes, and does not learn.")
    ] = False,
    max_nodes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N[,N...]",
            help="Most nodes: 12, or 8,12,16 to try each; may be repeated. Default: no cap.",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of traces: the trace itself, then its jobs in other orders.")
    ] = 1,
    world: WorldOption = None,
    spot: SpotOption = False,
    boot: BootOption = None,
    boot_seconds: BootSecondsOption = 180.0,
    idle_hold_seconds: IdleHoldOption = IDLE_HOLD_SECONDS,
    on: OnOption = None,
    out: OutOption = None,
    plot: Annotated[
        Path | None, typer.Option(help="Plot mean JCT against money: .svg, .png or .pdf.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Write an .html report; updated every minute while runs go on."),
    ] = None,
    opens: OpenOption = False,
    page: PageOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Compare policies on the same jobs, each tuned to spend what the daemon's default policy spends."""
    if plot is not None:
        check_plot_path(plot)
    if report is not None:
        check_plot_path(report, "--report", PAGE_SUFFIXES)
    budgets = tuple(parse_budget(text) for text in budget)
    comparison = Comparison(
        shared=replace(
            settings_in_world(trace, classes, budgets[0], world=world, spot=spot, boot=boot),
            boot_seconds=boot_seconds,
            idle_hold_seconds=idle_hold_seconds,
            learns=not told,
        ),
        reference=DEFAULT_POLICY,
        budgets=budgets,
        rivals=_rivals(policy or list(POLICIES)),
        seeds=seeds,
        caps=_caps(max_nodes or []),
        per=per_of(budget[0]),
    )
    for text in budget:
        with in_unit_asked(text):
            _check_budget(comparison, parse_budget(text))
    comparison.check()
    with tasks_with_progress(on, out, comparison.cells, "cells") as headway:
        seen: list[CellResult] = []

        def on_row(row: CellResult) -> None:
            seen.append(row)
            headway.step(leader(seen))

        def write(
            part: Comparison, rows: Sequence[CellResult]
        ) -> tuple[list[PolicyLine], LowerBounds, MoneyPlot]:
            lines, floor = lines_of(part, rows), floor_of(part, rows)
            left = (
                "" if len(rows) == comparison.cells else f": {len(rows)} of {comparison.cells} cells so far"
            )
            title = f"{_title(comparison)}{left}"
            picture = MoneyPlot(lines=lines, floor=floor, unit=budgets[0].unit, title=title)
            if report is not None:
                write_comparison(report, part, rows, lines, picture, tasks=headway.tasks)
            return lines, floor, picture

        def look() -> None:
            part = None if report is None else whole_part(comparison, list(seen))
            if part is not None:
                write(*part)

        headway.each_minute = look
        rows = run_all(comparison, headway.tasks, on_row=on_row)
        lines, floor, picture = write(comparison, rows)
    if plot is not None:
        save_money(picture, plot)
    if opens or page is not None:
        answers = {"page/compare": comparison_document(comparison, rows, lines)}
        show_page("boa compare", answers, page=page, opens=opens)
    show(
        output,
        _document(comparison, rows, lines, floor),
        rows=lambda: [row | {"knob": _knob(row["knob"])} for row in with_ratios(rows)],
        table=lambda: _print_tables(comparison, rows, lines),
    )


def comparison_document(
    comparison: Comparison, rows: Sequence[CellResult], lines: Sequence[PolicyLine]
) -> dict[str, object]:
    """Return the data of the page: a group of policies per budget and cap."""
    groups, sentences = [], [about(comparison)]
    for budget in comparison.budgets:
        for cap in comparison.caps:
            own = [line for line in at_cap(lines, cap) if line.budget == budget.amount]
            why = decompose(at_cap(rows, cap), own, budget.amount)
            sentences += [] if why is None else [decomposition_text(why)]
            groups.append(
                {
                    "name": f"Budget {budget}{cap_text(cap)}",
                    "bound": own[0].lower_bound_mean_jct_hours,
                    "rows": [
                        {
                            "policy": line.policy,
                            "isMine": line.policy == comparison.reference,
                            "mean_jct_hours": line.mean_jct_hours,
                            "p95_jct_hours": line.p95_jct_hours,
                            "usd_per_hour": line.mean_usd_per_hour,
                            "ratio": None if line.policy == comparison.reference else line.ratio.mean,
                        }
                        for line in own
                    ],
                }
            )
    unit = comparison.budgets[0].unit
    return {"title": _title(comparison), "sentences": sentences, "unit": unit, "groups": groups}


def _rivals(names: Sequence[str]) -> tuple[str, ...]:
    """Return the policies to compare with the reference, without duplicates.

    Raises:
        UnknownPolicy: when a name is no policy.
    """
    return tuple(dict.fromkeys(find_policy(name).name for name in names if name != DEFAULT_POLICY))


def _check_budget(comparison: Comparison, budget: Budget) -> None:
    """Raise `InfeasibleBudget` for a budget below the load: rivals could not be compared at its spend."""
    problem = comparison.shared.problem
    least = MixedFrontier.of(problem).cheapest_feasible_spend
    if budget.amount < least * (1.0 - TIE):
        raise infeasible_budget(budget.amount, least, problem)


def _caps(texts: Sequence[str]) -> tuple[int | None, ...]:
    """Return the caps on nodes; (None,), one comparison without a cap, when none is given.

    Raises:
        InputError: when a cap is not a positive whole number.
    """
    words = [word.strip() for text in texts for word in text.split(",")]
    for word in words:
        if not (word.isascii() and word.isdigit() and int(word) >= 1):
            raise InputError(
                f"--max-nodes takes positive whole numbers; got {word!r}", hint="--max-nodes 8,12,16"
            )
    return tuple(int(word) for word in words) or (None,)


def _title(comparison: Comparison) -> str:
    return f"Waiting against money, {len(comparison.shared.trace.jobs)} jobs"


def _document(
    comparison: Comparison, rows: Sequence[CellResult], lines: Sequence[PolicyLine], floor: LowerBounds
) -> dict[str, object]:
    """Return the JSON document."""
    return {
        "budget_unit": comparison.budgets[0].unit,
        "reference": comparison.reference,
        "learns": comparison.shared.learns,
        "seeds": comparison.seeds,
        "rows": with_ratios(rows),
        "summary": [line.to_document() for line in lines],
        "decomposition": [
            {"budget": budget.amount} | why.to_document() | {"max_nodes": cap}
            for budget in comparison.budgets
            for cap in comparison.caps
            if (why := decompose(at_cap(rows, cap), at_cap(lines, cap), budget.amount)) is not None
        ],
        "floor": floor.to_document(),
    }


def _knob(knob: dict[str, float]) -> str:
    """Return a policy's tuned settings as one CSV cell."""
    return " ".join(f"{name}={value:g}" for name, value in knob.items())


def _print_tables(comparison: Comparison, rows: Sequence[CellResult], lines: Sequence[PolicyLine]) -> None:
    for budget in comparison.budgets:
        for cap in comparison.caps:
            own = [line for line in at_cap(lines, cap) if line.budget == budget.amount]
            amount = str(budget) if budget.unit == "gpus" else comparison.per.usd(budget.amount)
            _print_table(f"Budget {amount}{cap_text(cap)}", own, budget.unit, comparison.per)
            why = decompose(at_cap(rows, cap), own, budget.amount)
            if why is not None:
                stdout_console().print(f"  {decomposition_text(why)}", soft_wrap=True)
            stdout_console().print()
    stdout_console().print(about(comparison))


def _print_table(title: str, lines: Sequence[PolicyLine], unit: str, per: Per) -> None:
    """Print the lines of one budget and cap; at a cap show p95, not the ratio: long waits matter there."""
    shown = [name != ("p95" if lines[0].max_nodes is None else "ratio") for name in HEADINGS]
    headings = tuple(compress(HEADINGS, shown))
    table = a_table(title, *headings, right=headings[2:])
    table.columns[0].no_wrap = True
    for line in lines:
        table.add_row(*compress(table_cells(line, unit, lines[0].policy, per), shown))
    stdout_console().print(table)
    bound = lines[0].lower_bound_mean_jct_hours
    stdout_console().print(
        f"  No policy can beat {format_hours(bound)} for the money of "
        f"{lines[0].policy}: it takes "
        f"{lines[0].mean_jct_hours / bound:.2f} times that.",
        soft_wrap=True,
    )
