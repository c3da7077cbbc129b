"""A finite list of jobs without dates and rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from boa_daemon.cli.common.output import (
    OutputFormat,
    a_table,
    print_json,
    show,
    stderr_console,
    stdout_console,
)
from boa_daemon.cli.common.planning_options import cell, indented_lines, price_document, runs, width_text
from boa_daemon.errors import InputError
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.units import format_hours, parse_dollars
from policies.errors import InfeasibleBudget, InfeasibleDeadline
from policies.money_text import in_dollars
from policies.optimum.job_list import JobList, JobPlan, ListedJob, ListSolution

ROWS = 60
"""Most jobs in the table; JSON and CSV have all."""


def plan_list(
    file: ProblemFile,
    listed: Sequence[ListedJob],
    budget: str | None,
    min_budget: bool,
    form: OutputFormat,
) -> None:
    """Plan a finite list of jobs and print it."""
    if (budget is None) is not min_budget:
        problem = "no budget" if budget is None else "--budget and --min-budget exclude each other"
        raise InputError(problem, hint="Give --budget DOLLARS (in total), or --min-budget")
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
        _list_document(solution, file) | price_document(file),
        rows=lambda: [_job_row(job_plan) for job_plan in solution.jobs],
        table=lambda: _print_list(solution, file, min_budget),
    )


def _in_all(text: str) -> float:
    """Return the total dollars of --budget; a budget in GPUs makes no sense for a list."""
    if ":" in text:
        raise InputError(
            f"--budget {text!r}: the budget of a list of jobs is in dollars",
            hint="Give total dollars, such as 1500, or 40000/month; limit instances with --quota TYPE=4",
        )
    return parse_dollars(text)


def _infeasible_list_document(
    error: InfeasibleBudget | InfeasibleDeadline, amount: float | None, file: ProblemFile
) -> dict[str, Any]:
    """Return the document of an infeasible list: the least budget, or what each late job needs."""
    document = {
        "status": "infeasible",
        "budget_unit": _list_unit(file),
        "budget": amount,
        "message": str(error),
    }
    if isinstance(error, InfeasibleBudget):
        return document | {"cheapest_feasible_spend": error.least_spend}
    late = [
        {"job_id": name, "deadline_hours": deadline, "least_hours": hours}
        for name, (deadline, hours) in error.late.items()
    ]
    return document | {"least_hours": error.least_hours, "late": late}


def _list_unit(file: ProblemFile) -> str:
    """Return the unit of a list's budget."""
    return "gpu_hours" if file.problem.budget_unit == "gpus" else "usd"


def _list_document(solution: ListSolution, file: ProblemFile) -> dict[str, Any]:
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


def _buys_nothing(solution: ListSolution, counted: bool) -> list[str]:
    """Return from which total on more money buys nothing, if the budget is above it."""
    most = solution.largest_useful_spend
    if solution.budget <= 1.005 * most:
        return []
    return [f"More than {f'{most:,.2f} GPU-hours' if counted else in_dollars(most)} buys nothing."]


def _print_list(solution: ListSolution, file: ProblemFile, min_budget: bool) -> None:
    console = stdout_console()
    counted = file.problem.budget_unit == "gpus"
    unit = "GPU-h" if counted else "$"
    table = a_table(
        f"Plan for {len(solution.jobs)} jobs",
        *("job", "class", "width", "done in", "deadline", unit),
        right=("done in", "deadline", unit),
    )
    for job_plan in solution.jobs[:ROWS]:
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
    if len(solution.jobs) > ROWS:
        console.print(f"  … and {len(solution.jobs) - ROWS} more; -o csv shows all")
    console.print()
    total = f"{solution.spend:,.2f} GPU-hours" if counted else in_dollars(solution.spend)
    mean = f"Mean JCT {format_hours(solution.mean_jct_hours)}"
    if any(job_plan.job.weight != 1.0 for job_plan in solution.jobs):
        mean += f", weighted {format_hours(solution.weighted_mean_jct_hours)},"
    # Round up, so that the printed budget is feasible when typed back in.
    cents = math.ceil(100.0 * solution.cheapest_feasible_spend * (1.0 - 1e-12)) / 100.0
    least = f"{cents:,.2f} GPU-hours" if counted else in_dollars(cents)
    console.print(
        indented_lines(
            [
                f"{mean} for {total}; no plan is more than {solution.gap:.2%} better.",
                f"The cheapest budget that runs every job in time is {least}."
                if min_budget
                else f"The smallest feasible budget is {least}.",
                *_buys_nothing(solution, counted),
            ]
        )
    )
