"""How far a budget below the load goes, as a sentence and as a document."""

from __future__ import annotations

from boa_daemon.units import PER_HOUR, Per
from policies.online.best_effort import Account, Shortfall
from policies.optimum.frontier import rounded_up


def shortfall_sentence(shortfall: Shortfall, per: Per = PER_HOUR) -> str:
    """Return how far the budget goes, as a sentence for people; dollars are in a unit of time."""
    unit = "GPUs" if shortfall.unit == "gpus" else f"USD/{'hour' if per is PER_HOUR else per.name}"
    hours_in = 1.0 if shortfall.unit == "gpus" else per.hours
    enough = f"{rounded_up(shortfall.least_spend * hours_in)} {unit}"
    least = f"the cheapest widths need {enough}"
    budget = f"best effort: the budget of {shortfall.budget * hours_in:.6g} {unit}"
    if shortfall.jobs_per_hour <= 0.0:
        resumes = "full planning resumes once it does so by a margin"
        return f"{budget} just pays for the load ({least}), and {resumes}"
    return (
        f"{budget} is below the load, and {least}. By the plan the queue grows by "
        f"{shortfall.gpu_hours_per_hour:.3g} GPU-hours of work and up to {shortfall.jobs_per_hour:.3g} jobs per hour; a budget of {enough} would stop that"
    )


def shortfall_document(
    shortfall: Shortfall | None, account: Account | None = None
) -> dict[str, object] | None:
    """Return the shortfall as a document for programs; None if there is none."""
    if shortfall is None:
        return None
    return {
        "budget": shortfall.budget,
        "budget_unit": shortfall.unit,
        "least_spend": shortfall.least_spend,
        "queue_growth_jobs_per_hour": shortfall.jobs_per_hour,
        "queue_growth_gpu_hours_per_hour": shortfall.gpu_hours_per_hour,
        "since": None if account is None else account.opened_at,
        "message": shortfall_sentence(shortfall),
    }
