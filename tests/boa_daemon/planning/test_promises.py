"""The prices of promises as rows and as a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from load_scenarios import PROBLEM

from boa_daemon.planning.promise_text import loss_text, promise_sentence
from boa_daemon.planning.promises import pace_of, promise_rows
from policies.online.rhythm import SeenLoad


def row_of(
    mean: float,
    least: float,
    most: float,
    *,
    period: str = "month",
    is_coarse: bool = False,
) -> dict[str, Any]:
    """Return the row of a promise within a tenth."""
    return {
        "period": period,
        "tolerance": 0.1,
        "pacing_loss_fraction": mean,
        "least_pacing_loss_fraction": least,
        "most_pacing_loss_fraction": most,
        "equal_jobs_per_period": 50.0,
        "is_coarse": is_coarse,
    }


def test_the_rows_name_promise_and_loss_and_the_sentence_says_them() -> None:
    """The chosen promise stands first; a budget below the load has no price."""
    load = np.where(np.arange(2160) // 168 % 2 == 0, 1.9, 0.1)
    rows = promise_rows(pace_of(PROBLEM, 60.0), load)

    assert (rows[0]["period"], rows[0]["tolerance"]) == ("quarter", 0.1)
    assert rows[1]["pacing_loss_fraction"] >= rows[0]["pacing_loss_fraction"]
    said = promise_sentence(rows, is_seen=True)
    assert "each quarter within 10 % costs" in said
    assert "(chosen)" in said
    assert said.endswith("on this load.")
    assert "singly" in promise_sentence(rows, is_seen=False)
    assert promise_rows(pace_of(PROBLEM, 1.0), load) == []


def test_promises_that_cost_nothing_are_said_once() -> None:
    """The figure is not repeated for each of them."""
    rows = [row_of(0.0, 0.0, 0.0, period=period) for period in ("quarter", "month")]

    assert promise_sentence(rows, is_seen=True) == (
        "Even money costs less than 0.1 % more waiting on this load: each quarter within 10 % (chosen), "
        "each month within 10 %."
    )


@pytest.mark.first_set(7)
@pytest.mark.parametrize("budget", [40.0, 50.0, 60.0, 70.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_looser_promise_never_costs_more(budget: float, seed: int) -> None:
    """Each period's load is drawn anew, and yet a year within a tenth is no dearer than each month in it."""
    loads = None if seed == 0 else np.random.default_rng(seed).exponential(1.0, 2160)
    rows = promise_rows(pace_of(PROBLEM, budget), loads)
    hours = {"month": 1, "quarter": 3, "year": 12}
    for one in rows:
        for other in rows:
            if hours[one["period"]] <= hours[other["period"]] and one["tolerance"] <= other["tolerance"]:
                for key in (
                    "pacing_loss_fraction",
                    "least_pacing_loss_fraction",
                    "most_pacing_loss_fraction",
                ):
                    assert other[key] <= one[key]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (row_of(0.03, 0.01, 0.2), "3 %"),
        (row_of(0.03, 0.01, 0.2, is_coarse=True), "1 to 20 %"),
        (row_of(0.03, 0.0001, 0.084, is_coarse=True), "up to 8.4 %"),
        (row_of(0.0, 0.0, 0.0002, is_coarse=True), "less than 0.1 %"),
        (row_of(0.002, 0.0, 0.004, is_coarse=True), "0.2 %"),
        (row_of(0.031, 0.031, 0.031, is_coarse=True), "3.1 %"),
        ({"period": "month", "tolerance": 0.1, "pacing_loss_fraction": 0.031}, "3.1 %"),
    ],
)
def test_a_coarse_load_has_a_range_and_an_earlier_daemon_a_point(row: dict[str, Any], said: str) -> None:
    """A range whose ends read alike is one figure."""
    assert loss_text(row) == said


@pytest.mark.parametrize("rarer", [500.0, 1000.0])
def test_the_sentence_says_why_a_price_is_a_range(rarer: float) -> None:
    """The number of equal jobs stands there; of many jobs nothing does."""
    load = SeenLoad.of(np.arange(0, 2160, int(rarer / 10.0)), np.ones(-(-2160 // int(rarer / 10.0))))
    rows = promise_rows(pace_of(PROBLEM, 60.0), load)
    said = promise_sentence(rows, is_seen=True)
    jobs = min(float(row["equal_jobs_per_period"]) for row in rows)

    assert f"about {float(f'{jobs:.2g}'):,.0f} equal ones in a month" in said
    assert f"{100.0 / jobs**0.5:.2g} % more or less than the mean" in said
    assert "equal ones" not in promise_sentence(promise_rows(pace_of(PROBLEM, 60.0), None), is_seen=False)
