"""``boa solve``: the exact optimum of a problem file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from boa_daemon.cli.common.output import (
    OutputFormat,
    OutputOption,
    a_table,
    print_csv,
    print_json,
    stderr_console,
    stdout_console,
)
from boa_daemon.cli.common.planning_options import (
    MarketOption,
    PricesOption,
    cell,
    indented_lines,
    last_dollars,
    money,
    money_up,
    phases_text,
    print_heading,
    read_problem,
    runs,
    said_in,
    share_text,
    stretch_rows,
    width_text,
    with_budget_flag,
)
from boa_daemon.errors import INFEASIBLE, PARTLY_DONE
from boa_daemon.planning.curve import Curve
from boa_daemon.planning.plan_documents import has_weights, infeasible_document, solution_document
from boa_daemon.units import Per, format_hours, per_of
from policies.errors import InfeasibleBudget
from policies.model import Budget, Problem
from policies.money_text import in_dollars
from policies.optimum.boa import solve as solve_problem
from policies.optimum.solution import ProblemTooLarge, Solution


class VersionName(StrEnum):
    """Kind of optimum: whole widths with at most one phase mixed, with none mixed, or real widths."""

    mixed = "integer-mixed"
    pure = "integer-pure"
    continuous = "continuous"


VersionOption = Annotated[
    VersionName,
    typer.Option(
        "--version",
        help="Whole widths with one phase mixed, with none mixed, or real widths.",
        case_sensitive=False,
    ),
]


def solve(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Problem files, YAML, JSON or TOML.")
    ],
    *,
    version: VersionOption = VersionName.mixed,
    budget: Annotated[
        str | None,
        typer.Option(help="40/h, 900/day, gpus:48, or a number in the file's unit. Default: the file's."),
    ] = None,
    prices: PricesOption = None,
    world: MarketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Compute the GPU counts with the least mean job time within a budget, with a proof of optimality."""
    cases = [with_budget_flag(read_problem(path, prices, market=world), budget) for path in files]
    per = per_of(budget)
    code = 0
    rows: list[dict[str, Any]] = []
    for file, asked in cases:
        if output is OutputFormat.table and file is not cases[0][0]:
            stdout_console().print()
        own_code, solution = _solve_one(file.path, file.problem, asked, version, output, per)
        code = max(code, own_code)
        if solution is not None:
            name = {"file": file.path} if len(cases) > 1 else {}
            rows += [name | row for row in stretch_rows(solution, "spend")]
    if output is OutputFormat.csv:
        print_csv(rows)
    if code:
        raise typer.Exit(code)


def _solve_one(  # noqa: PLR0917 - each is a part of the question
    path: str, problem: Problem, budget: Budget, version: VersionName, form: OutputFormat, per: Per
) -> tuple[int, Solution | None]:
    """Print one answer and return its exit code; CSV is printed at the end for all files."""
    try:
        solution = solve_problem(problem, budget.amount, version=version.value)
        code = 0
    except InfeasibleBudget as error:
        if form is OutputFormat.json:
            print_json(infeasible_document(error, budget.amount, problem, version.value))
        _say("InfeasibleBudget", "red", path, said_in(error, per))
        return INFEASIBLE, None
    except ProblemTooLarge as error:
        _say("ProblemTooLarge", "yellow", path, error)
        solution, code = error.best, PARTLY_DONE
    if form is OutputFormat.json:
        print_json(solution_document(solution, problem))
    elif form is OutputFormat.table:
        _print_tables(path, solution, problem, per)
    return code, solution


def _say(name: str, colour: str, path: str, error: Exception) -> None:
    """Print an error about one file on standard error."""
    stderr_console().print(f"[bold {colour}]{name}[/]: {escape(f'{path}: {error}')}")


def _print_tables(path: str, solution: Solution, problem: Problem, per: Per) -> None:
    console = stdout_console()
    print_heading(console, f"{path}: {solution.version}, {solution.status}")
    console.print(class_table(solution))
    unit = solution.budget_unit
    facts = [
        ("mean JCT", format_hours(solution.mean_jct_hours)),
        ("spend", f"{money(solution.mean_spend, unit, per)} of {money(solution.budget, unit, per)}"),
        ("cheapest feasible", money_up(solution.cheapest_feasible_spend, unit, per)),
        ("more buys nothing above", money(solution.largest_useful_spend, unit, per)),
        ("lower bound, any policy", format_hours(solution.lower_bound_mean_jct_hours)),
        ("multiplier", f"{solution.multiplier:.6g}"),
        ("gap to the bound", f"{solution.gap:.2%}"),
    ]
    if has_weights(problem):
        facts.insert(1, ("weighted mean JCT", format_hours(solution.weighted_mean_jct_hours)))
    console.print()
    for name, value in facts:
        console.print(f"  {name:<26}{value}")
    if worth := last_dollars(Curve.of(problem, solution.version), solution.mean_spend, per):
        console.print(indented_lines(worth))


def class_table(solution: Solution) -> Any:
    """Return the table of widths by class and run of phases."""
    spend = "GPU-hours" if solution.budget_unit == "gpus" else "cost"
    columns = ("class", "jobs", "phases", "width", "hours", spend)
    table = a_table("", *columns, right=columns[1:])
    for answer in solution.classes:
        name = cell(answer.name)
        for plan in answer.plans:
            share = share_text(plan)
            for first, last, step in runs(plan.steps):
                table.add_row(
                    name,
                    share,
                    phases_text(first, last, len(plan.steps)),
                    cell(width_text(step)),
                    f"{step.hours:.4g}",
                    f"{step.spend:.4g}" if solution.budget_unit == "gpus" else in_dollars(step.spend),
                )
                name = share = ""
    return table
