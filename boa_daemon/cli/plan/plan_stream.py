"""Output of ``boa plan`` for a stream of jobs: tables, sentences, the curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from boa_daemon.cli.common.output import OutputFormat, a_table, show, stdout_console
from boa_daemon.cli.common.planning_options import (
    beyond_text,
    cell,
    indented_lines,
    money,
    phases_text,
    runs,
    share_text,
    width_text,
)
from boa_daemon.planning.budget_plan import BestEffortPlan, BudgetPlan, PackingWaste
from boa_daemon.planning.curve import Curve
from boa_daemon.planning.paid_commitments import paid_sentence
from boa_daemon.planning.plan_documents import has_weights
from boa_daemon.planning.plots import as_picture, curve_figure, curve_plot, curve_words
from boa_daemon.planning.promise_text import second_limit_text
from boa_daemon.planning.report_page import Picture
from boa_daemon.tick.room.shortfall import shortfall_sentence
from boa_daemon.units import HOURS_PER_MONTH, PER_HOUR, Per, counted, format_hours

LEAST_SAVED = 0.05
"""The fraction of the spend from which a nearly equal, cheaper plan is named."""


def plan_sentence(result: BudgetPlan, per: Per = PER_HOUR) -> str:
    """Return a sentence about the plan's mean time and spend."""
    unit, solution = result.budget.unit, result.solution
    month = _a_month(solution.mean_spend, unit, per)
    return (
        f"With {money(result.budget.amount, unit, per)} jobs take from submission to end "
        f"{format_hours(solution.mean_jct_hours)} on average; the plan spends "
        f"{money(solution.mean_spend, unit, per)}{month}."
    )


def plan_bad_news(result: BudgetPlan, per: Per = PER_HOUR) -> list[str]:
    """Return what a reader of the plan should not miss: an early end, a budget too small or not spent."""
    sentences = stream_sentences(result, per)
    found = [one for one in sentences if "below the knee" in one or "is not spent" in one]
    if result.solution.status != "optimal":
        gap = f"{result.solution.gap:.3%}"
        found.insert(0, f"The search stopped early; no plan is more than {gap} better.")
    return found


def plan_facts(result: BudgetPlan, per: Per = PER_HOUR) -> dict[str, str]:
    """Return the key figures of a plan: waiting, spend, and the most nodes it asks for."""
    nodes = sum(part.quota_nodes for part in result.packing)
    return {
        "from submission to end, on average": format_hours(result.solution.mean_jct_hours),
        "spent": money(result.solution.mean_spend, result.budget.unit, per),
        "quota to ask for": counted(nodes, "node"),
    }


def plan_picture(result: BudgetPlan, per: Per = PER_HOUR) -> Picture:
    """Return a picture of the curve with the plan's budget marked."""
    curve = Curve.of(result.problem, "integer-mixed")
    plot = curve_plot(curve, "What a budget buys", result.budget, per)
    return as_picture(curve_figure(plot), curve_words(plot))


def _a_month(amount: float, unit: str, per: Per) -> str:
    """Return dollars per hour as dollars a month, if the answer is in dollars per hour."""
    return f", ${HOURS_PER_MONTH * amount:,.0f} a month" if per is PER_HOUR and unit != "gpus" else ""


def print_stream(
    result: BudgetPlan, bill: dict[str, Any] | None, of_spot: Sequence[str] = (), *, per: Per = PER_HOUR
) -> None:
    """Print the plan: widths by class, totals, place on the curve, GPU swing, spot advice, commitments."""
    console = stdout_console()
    unit = result.budget.unit
    per_job = "GPU-h/job" if unit == "gpus" else "$/job"
    per_hour, factor = ("GPUs", 1.0) if unit == "gpus" else (f"$/{per.name}", per.hours)
    right = ("jobs/h", "phases", "width", "JCT", per_job, per_hour)
    table = a_table(
        f"Plan for {money(result.budget.amount, unit, per)}",
        *("class", "jobs/h", "share", "phases", "width", "JCT", per_job, per_hour),
        right=right,
        optional=("jobs/h", per_job),
    )
    for job_class, answer in zip(result.problem.classes, result.solution.classes, strict=True):
        spend = job_class.arrivals_per_hour * answer.mean_spend
        table.add_row(
            f"[bold]{cell(job_class.name)}[/]",
            f"{job_class.arrivals_per_hour:.3g}",
            *("", "", ""),
            format_hours(answer.mean_jct_hours),
            f"{answer.mean_spend:,.4g}",
            f"{spend * factor:,.2f}",
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
        f"[bold]{result.solution.mean_spend * factor:,.2f}[/]",
    )
    console.print(table)
    console.print()
    console.print(indented_lines(stream_sentences(result, per)))
    console.print()
    console.print(_swing_table(result.packing))
    console.print()
    if result.without:
        console.print(indented_lines(one.sentence for one in result.without))
    spent = result.solution.mean_spend
    month = _a_month(spent, unit, per).removeprefix(", ")
    console.print(f"  Planned spend {money(spent, unit, per)}{f' ({month})' if month else ''}.")
    if of_spot:
        console.print(indented_lines(of_spot))
    if bill is not None:
        console.print(indented_lines([paid_sentence(bill)]))
    console.print("[dim]  Next: boa frontier FILE --plot curve.svg, and boa simulate --help[/]")


def stream_sentences(result: BudgetPlan, per: Per = PER_HOUR) -> list[str]:
    """Return sentences on the plan's place on the curve, packing waste, and unused budget."""
    unit, knee, spent = result.budget.unit, result.knee, result.solution.mean_spend
    one = "One more GPU" if unit == "gpus" else "One more dollar per hour"
    if unit != "gpus" and per is not PER_HOUR:
        one = f"${per.hours:,.0f} more {per.said}"
    mean = "weighted mean JCT" if has_weights(result.problem) else "mean JCT"
    found = []
    if result.next_unit_saves_hours > 0.0:
        found.append(f"{one} would cut the {mean} by {format_hours(result.next_unit_saves_hours)}.")
    else:
        found.append(f"{one} would buy nothing: every job already has its fastest width.")
    bend = f"the knee ({money(knee.budget, unit, per)}, {mean} {format_hours(knee.hours)})"
    if spent < 0.98 * knee.budget:
        found.append(f"Your budget is below {bend}: more money pays well.")
    elif spent > 1.02 * knee.budget:
        each = "GPU" if unit == "gpus" else "dollar"
        found.append(f"Your budget is above {bend}: each further {each} helps less.")
        found += beyond_knee(result, per)
    else:
        found.append(f"Your budget is at {bend}: a good place to stop.")
    least, most = result.waste
    found.append(
        f"Whole instances add {least:.0%} to the planned spend with perfect packing, {most:.0%} if no two "
        "jobs share a node; leave that part of the budget out of the plan."
    )
    if result.not_spent > 0.005 * result.budget.amount:
        month = _a_month(result.not_spent, unit, per)
        unspent = f"{money(result.not_spent, unit, per)}{month}{',' if month else ''} of the budget"
        found.append(f"{unspent} is not spent: more than {money(spent, unit, per)} buys nothing.")
    if result.second_limit is not None:
        found.append(second_limit_text(result.second_limit.to_document(), unit, per))
    found += [one.sentence for one in result.unused]
    return found + [one.sentence for one in result.edges]


def beyond_knee(result: BudgetPlan, per: Per = PER_HOUR) -> list[str]:
    """Return what the part of the spend above the knee buys, and how little less would do nearly as well."""
    nearly, unit = result.nearly, result.budget.unit
    found = [f"{beyond_text(result.beyond_knee, unit, per)}."]
    saved = result.solution.mean_spend - nearly.spend
    if saved > LEAST_SAVED * result.solution.mean_spend:
        found.append(
            f"{money(saved, unit, per)} less would do nearly as well: for {money(nearly.spend, unit, per)} "
            f"jobs wait {format_hours(nearly.mean_jct_hours)}, at most 1 % longer."
        )
    return found


def show_best_effort(result: BestEffortPlan, form: OutputFormat, per: Per = PER_HOUR) -> None:
    """Show the plan of a budget below the least feasible one."""
    show(
        form,
        result.to_document(),
        rows=lambda: list(result.rows),
        table=lambda: _print_best_effort(result, per),
    )


def _print_best_effort(result: BestEffortPlan, per: Per) -> None:
    """Print which classes are served at which width, and how the queue grows."""
    unit = result.shortfall.unit
    is_gpus = unit == "gpus"
    per_job, per_hour = ("GPU-h/job", "GPUs") if is_gpus else ("$/job", f"$/{per.name}")
    columns = ("class", "jobs/h", "served", "width", per_job, per_hour)
    table = a_table(
        f"Best effort for {money(result.shortfall.budget, unit, per)}",
        *columns,
        right=columns[1:],
        optional=("jobs/h", per_job),
    )
    for row in result.rows:
        table.add_row(
            cell(row["class"]),
            f"{row['arrivals_per_hour']:.3g}",
            f"{row['served_fraction']:.0%}",
            cell(row["widths"]),
            f"{row['spend_per_job']:,.4g}",
            f"{row['spend_per_hour'] * (1.0 if is_gpus else per.hours):,.2f}",
        )
    stdout_console().print(table)
    stdout_console().print()
    name = "hour" if per is PER_HOUR else per.name
    sentence = shortfall_sentence(result.shortfall, per=name, hours=per.hours)
    stdout_console().print(indented_lines([f"{sentence[0].upper()}{sentence[1:]}."]))


def _swing_table(packing: tuple[PackingWaste, ...]) -> Any:
    """Return the table of GPUs and instances in use, from which to choose quotas."""
    table = a_table(
        "GPUs in use, and the quota to ask for",
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
