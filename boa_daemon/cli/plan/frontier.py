"""``boa frontier``: the whole curve of waiting against money."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import track

from boa_daemon.cli.common.open import OpenOption, PageOption, show_page
from boa_daemon.cli.common.output import (
    OutputFormat,
    OutputOption,
    a_table,
    show,
    stderr_console,
    stdout_console,
)
from boa_daemon.cli.common.planning_options import (
    MarketNameOption,
    MarketOption,
    PricesOption,
    a_budget,
    chosen_market,
    curve_answers,
    indented_lines,
    money,
    money_up,
    print_heading,
    read_problem,
)
from boa_daemon.cli.common.report import ReportOption, assumptions, check_report, write_report
from boa_daemon.cli.plan.solve import VersionName, VersionOption
from boa_daemon.errors import INFEASIBLE, InputError
from boa_daemon.inputs.problem_file import ProblemFile, with_budget
from boa_daemon.planning.curve import BeyondKnee, Curve
from boa_daemon.planning.plan_documents import has_weights, infeasible_document, landmarks, solution_document
from boa_daemon.planning.plots import (
    as_picture,
    check_plot_path,
    curve_figure,
    curve_plot,
    curve_words,
    draw_curve,
)
from boa_daemon.planning.unused_types import UnusedType, unused_by_plans
from boa_daemon.sim.spot_market import on_both_markets
from boa_daemon.units import PER_HOUR, Per, format_hours, per_of, split_budgets
from policies.errors import InfeasibleBudget
from policies.model import Budget
from policies.optimum.knee import Knee
from policies.optimum.solution import ProblemTooLarge, Solution

MOST_POINTS = 10_000
POINTS = 25
_BUDGETS_HELP = (
    "8..40 (steps of one), 8..40:200 (200 points), or 8,12,20; in the file's unit, or 200..900/day:15."
)


def frontier(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Problem file, YAML, JSON or TOML.")],
    *,
    budgets: Annotated[str | None, typer.Option(help=f"Budgets to compute: {_BUDGETS_HELP}")] = None,
    version: VersionOption = VersionName.mixed,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg|png", help="Draw the curve.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the plot. Default: the file's name.")] = None,
    mark: Annotated[
        str | None, typer.Option(help="A budget to mark in the plot. Default: the file's.")
    ] = None,
    prices: PricesOption = None,
    market: MarketNameOption = None,
    world: MarketOption = None,
    report: ReportOption = None,
    opens: OpenOption = False,
    page: PageOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show what each budget buys: the least budget, the knee, the largest useful budget, and a plot."""
    if plot is not None:
        check_plot_path(plot)
    check_report(report)
    problem_file = read_problem(file, prices)
    terms = chosen_market(market, world, problem_file)
    problem_file = problem_file if terms is None else on_both_markets(problem_file, terms)
    per = per_of(mark) if budgets is None else split_budgets(budgets).per
    asked = None if budgets is None else parse_budgets(budgets, problem_file)
    marked = problem_file.budget if mark is None else a_budget(mark, problem_file, name="--mark")
    if mark is not None and asked is not None and marked is not None and marked.unit != asked[0].unit:
        raise InputError(f"--mark {mark!r} and --budgets {budgets!r} are in different units")
    unit = asked[0].unit if asked else marked.unit if marked is not None else problem_file.problem.budget_unit
    problem_file = with_budget(problem_file, Budget(amount=1.0, unit=unit))
    if opens or page is not None:
        shown = marked if marked is not None and marked.unit == unit else None
        show_page(f"boa frontier {file.name}", curve_answers(problem_file, shown), page=page, opens=opens)
    curve = Curve.of(problem_file.problem, version.value)
    amounts = [b.amount for b in asked] if asked else _default_amounts(curve)
    points = _solutions(curve, amounts)
    if plot is not None:
        if mark is not None and marked is not None and marked.amount < curve.cheapest:
            stderr_console().print(f"[yellow]note[/] {marked} is infeasible, so it is not marked")
        draw_curve(curve_plot(curve, title or f"What a budget buys: {file.stem}", marked, per), plot)
        stderr_console().print(f"wrote {plot}", markup=False)
    solved = [point for _, point in points if isinstance(point, Solution)]
    unused = unused_by_plans(problem_file.problem, problem_file.instance_types, solved)
    document = _document(curve, points) | {"unused": [one.to_document() for one in unused]}
    heading = title or f"What a budget buys: {file.stem}"
    drawn = curve_plot(curve, heading, marked, per)
    write_report(
        report,
        heading,
        curve_sentences(curve, per)[1],
        document=document,
        table=lambda: _print_table(curve, points, file, unused, per),
        pictures=lambda: [as_picture(curve_figure(drawn), curve_words(drawn))],
        assumed=assumptions(problem_file),
        bad=curve_sentences(curve, per)[:1],
    )
    show(
        output,
        document,
        rows=lambda: [_row(budget, point) for budget, point in points],
        table=lambda: _print_table(curve, points, file, unused, per),
    )
    if all(isinstance(point, InfeasibleBudget) for _, point in points):
        raise typer.Exit(INFEASIBLE)


Point = tuple[float, Solution | InfeasibleBudget]
"""A budget, and its solution or error."""


def parse_budgets(text: str, file: ProblemFile) -> list[Budget]:
    """Return the budgets of --budgets, ascending.

    Raises:
        InputError: when the text is neither a range nor a list, or asks for too many points.
    """
    typed = split_budgets(text)
    found = [a_budget(word, file, name="--budgets") for word in typed.texts]
    if len({budget.unit for budget in found}) > 1:
        raise InputError(f"--budgets {text!r} mixes dollars and GPUs", hint=_BUDGETS_HELP)
    if not typed.is_range:
        return sorted(found, key=lambda budget: budget.amount)
    low, high = found
    if high.amount < low.amount:
        raise InputError(f"--budgets {text!r}: the range ends below its start", hint=_BUDGETS_HELP)
    # Steps of one in the unit that was typed, unless a number of points is asked for.
    step = 1.0 if low.unit == "gpus" else 1.0 / typed.per.hours
    points = typed.points
    if points is None:
        points = math.floor((high.amount - low.amount) / step + 1e-9) + 1
    if not 1 <= points <= MOST_POINTS:
        raise InputError(f"--budgets {text!r} asks for {points} points", hint=f"At most {MOST_POINTS}")
    if typed.points is not None:
        spread = np.linspace(low.amount, high.amount, points).tolist()
    else:
        spread = [low.amount + step * number for number in range(points)]
    return [Budget(amount=amount, unit=low.unit) for amount in spread]


def _default_amounts(curve: Curve) -> list[float]:
    """Return budgets where the curve bends, denser where it is steep."""
    knee = curve.knee()
    end = min(knee.cliff_budget + 2.0 * (knee.flat_budget - knee.cliff_budget), curve.largest_useful)
    reach = max(end - curve.cheapest, 0.0)
    return (
        [curve.cheapest + reach * share**2 for share in np.linspace(0.0, 1.0, POINTS).tolist()]
        if reach
        else [curve.cheapest]
    )


def _solutions(curve: Curve, amounts: list[float]) -> list[Point]:
    """Return the solution at each budget. integer-pure solves each one anew, so it shows its progress."""
    points: list[Point] = []
    console = stderr_console()
    slow = curve.version == "integer-pure" and console.is_terminal
    for amount in track(amounts, "solving", console=console, transient=True, disable=not slow):
        try:
            points.append((amount, curve.solution_at(amount)))
        except InfeasibleBudget as error:
            points.append((amount, error))
        except ProblemTooLarge as error:
            points.append((amount, error.best))
    return points


def _document(curve: Curve, points: list[Point]) -> dict[str, Any]:
    """Return the whole curve as one document; each point is the ``boa solve`` document at its budget."""
    return {
        "version": curve.version,
        "budget_unit": curve.problem.budget_unit,
        "cheapest_feasible_spend": curve.cheapest,
        "largest_useful_spend": curve.largest_useful,
        **landmarks(curve),
        "points": [
            infeasible_document(point, budget, curve.problem, curve.version)
            if isinstance(point, InfeasibleBudget)
            else solution_document(point, curve.problem)
            for budget, point in points
        ],
    }


def _row(budget: float, point: Solution | InfeasibleBudget) -> dict[str, Any]:
    if isinstance(point, InfeasibleBudget):
        return {
            "budget": budget,
            "status": "infeasible",
            "mean_jct_hours": "",
            "mean_spend": "",
            "multiplier": "",
        }
    return {
        "budget": budget,
        "status": point.status,
        "mean_jct_hours": point.mean_jct_hours,
        "mean_spend": point.mean_spend,
        "multiplier": point.multiplier,
    }


def _print_table(
    curve: Curve, points: list[Point], file: Path, unused: Sequence[UnusedType], per: Per
) -> None:
    """Print the curve as a table with a bar for each waiting time."""
    console = stdout_console()
    unit = curve.problem.budget_unit
    mean = "weighted mean JCT" if has_weights(curve.problem) else "mean JCT"
    print_heading(console, f"{file.name}: what a budget buys")
    table = a_table("", "budget", "spent", mean, "", right=("budget", "spent", mean))
    longest = max((p.weighted_mean_jct_hours for _, p in points if isinstance(p, Solution)), default=1.0)
    for budget, point in points:
        if isinstance(point, InfeasibleBudget):
            table.add_row(money(budget, unit, per), "", "[red]infeasible[/]", "")
        else:
            bar = "█" * max(1, round(36 * point.weighted_mean_jct_hours / longest))
            table.add_row(
                money(budget, unit, per),
                money(point.mean_spend, unit, per),
                format_hours(point.weighted_mean_jct_hours),
                f"[blue]{bar}[/]",
            )
    console.print(table)
    console.print()
    console.print(
        indented_lines(
            [*curve_sentences(curve, per), *(f"At all these budgets {one.sentence}" for one in unused)]
        )
    )


def curve_sentences(curve: Curve, per: Per = PER_HOUR) -> list[str]:
    """Return sentences about the curve: cliff, knee and floor."""
    knee, unit = curve.knee(), curve.problem.budget_unit
    flat, end = money(knee.flat_budget, unit, per), money(curve.largest_useful, unit, per)
    one = "GPU" if unit == "gpus" else "dollar"
    return [
        f"Cliff: below {money_up(knee.cliff_budget, unit, per)} the jobs cannot all run; there they take "
        f"{format_hours(knee.cliff_hours)} on average.",
        f"Knee: at {money(knee.budget, unit, per)} they take {format_hours(knee.hours)}; above it each "
        f"further {one} helps less.",
        _last_dollars(curve, knee, per),
        f"Floor: {format_hours(knee.floor_hours)}. With {flat} 95 % of the saving is reached; above {end} "
        "more buys nothing.",
    ]


def _last_dollars(curve: Curve, knee: Knee, per: Per) -> str:
    """Return what the money between the knee and the largest useful budget buys."""
    bought = BeyondKnee.of(knee, spend=curve.largest_useful, hours=knee.floor_hours)
    if bought.spend <= 0.0:
        return "Beyond the knee no money buys anything."
    return (
        f"Beyond the knee: the last {money(bought.spend, curve.problem.budget_unit, per)} buy "
        f"{format_hours(bought.saved_hours)} less waiting, all together."
    )
