"""The prices of promises as rows and as a sentence."""

from __future__ import annotations

import numpy as np
import pytest
from load_scenarios import PROBLEM

from boa_daemon.planning.promises import pace_of, promise_rows, promise_sentence


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
    rows = [
        {"period": period, "tolerance": 0.1, "pacing_loss_fraction": 0.0} for period in ("quarter", "month")
    ]

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
                assert other["pacing_loss_fraction"] <= one["pacing_loss_fraction"]
