"""How a budget below the load is reported, as a sentence and as a document."""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.tick.room.shortfall import shortfall_document, shortfall_sentence
from policies.online.best_effort import Account, Shortfall

BELOW = Shortfall(
    budget=2.0,
    unit="usd_per_hour",
    least_spend=2.5,
    jobs_per_hour=0.25,
    gpu_hours_per_hour=1.5,
    served={},
)


def test_the_sentence_of_a_budget_below_the_load_says_how_fast_the_queue_grows() -> None:
    """It has both rates, and the budget that would stop the growth, in the unit of the budget."""
    assert shortfall_sentence(BELOW) == (
        "best effort: the budget of $2.00/hour is below the load, and the cheapest widths need $2.50/hour. "
        "By the plan the queue grows by 1.5 GPU-hours of work and up to 0.25 jobs per hour; "
        "a budget of $2.50/hour would stop that"
    )


def test_the_sentence_of_a_budget_that_just_pays_for_the_load_says_so() -> None:
    """Jobs and work do not accumulate."""
    just = replace(BELOW, unit="gpus", jobs_per_hour=0.0, gpu_hours_per_hour=0.0)
    assert shortfall_sentence(just).startswith("best effort: the budget of 2 GPUs just pays for the load")


def test_the_document_has_the_numbers_of_the_sentence() -> None:
    """Without a shortfall it is None; with an account it has the time since when."""
    assert shortfall_document(None) is None
    expected = {
        "budget": 2.0,
        "budget_unit": "usd_per_hour",
        "least_spend": 2.5,
        "queue_growth_jobs_per_hour": 0.25,
        "queue_growth_gpu_hours_per_hour": 1.5,
        "since": None,
        "message": shortfall_sentence(BELOW),
    }
    assert shortfall_document(BELOW) == expected
    assert shortfall_document(BELOW, Account(budget=2.0, opened_at=7.0)) == {**expected, "since": 7.0}
