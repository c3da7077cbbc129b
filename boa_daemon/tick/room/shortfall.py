"""How far a budget below the load goes, as a sentence and as a document."""

from __future__ import annotations

from policies.money_text import in_dollars, least_in_dollars
from policies.online.best_effort import Account, Shortfall
from policies.optimum.frontier import rounded_up


def shortfall_sentence(shortfall: Shortfall, *, per: str = "hour", hours: float = 1.0) -> str:
    """Return how far the budget goes, as a sentence; dollars per unit of time of so many hours."""
    if shortfall.unit == "gpus":
        enough, budget = f"{rounded_up(shortfall.least_spend)} GPUs", f"{shortfall.budget:.6g} GPUs"
    else:
        enough = f"{least_in_dollars(shortfall.least_spend * hours)}/{per}"
        budget = f"{in_dollars(shortfall.budget * hours)}/{per}"
    least = f"the cheapest widths need {enough}"
    if shortfall.jobs_per_hour <= 0.0:
        return (
            f"best effort: the budget of {budget} just pays for the load ({least}), "
            "and full planning resumes once it does so by a margin"
        )
    return (
        f"best effort: the budget of {budget} is below the load, and {least}. By the "
        f"plan the queue grows by {shortfall.gpu_hours_per_hour:.3g} GPU-hours of work and up to "
        f"{shortfall.jobs_per_hour:.3g} jobs per hour; a budget of {enough} would stop that"
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
