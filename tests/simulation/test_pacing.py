"""Realised spend against the budget, through days that a budget has to survive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boa_daemon.sim.scenarios import BUDGET, SCENARIOS, Scenario, paced_run

HOURS, WINDOW_HOURS = 24.0, 12.0
"""Two windows: one to learn in, one to be judged by; both count."""
TOLERANCE = 0.03
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def shortened(scenario: Scenario) -> Scenario:
    """Return the scenario with its events early enough for the run; an outage of three hours."""
    load = tuple((hour / 4.0 if hour else 0.0, factor) for hour, factor in scenario.load)
    return replace(
        scenario,
        load=load,
        bursts=tuple((hour / 4.0, jobs // 2) for hour, jobs in scenario.bursts),
        outage_hours=tuple((6.0, 9.0) for _ in scenario.outage_hours),
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if number % 3 == 0 else pytest.mark.exhaustive)
        for number, name in enumerate(BY_NAME)
    ],
)
def test_realised_spend_is_the_budget(name: str) -> None:
    """Spent in two windows, idle and booting nodes included, is the budget within 3 %; so with the tail."""
    result, books = paced_run(shortened(BY_NAME[name]), hours=HOURS, window_hours=WINDOW_HOURS)

    spent = books.spent_between(0.0, HOURS) / HOURS
    assert spent == pytest.approx(BUDGET.amount, rel=TOLERANCE)
    assert result.mean_usd_per_hour == pytest.approx(BUDGET.amount, rel=TOLERANCE)
    assert result.finished == result.jobs


def test_what_a_night_leaves_is_spent_and_not_more() -> None:
    """Jobs at their widest use it up for hours; none of that is taken for wrong beliefs and repaid later."""
    night = Scenario(name="night", load=((0.0, 1.0), (6.0, 0.0), (10.0, 1.0)))
    _, books = paced_run(night, hours=36.0, window_hours=WINDOW_HOURS, seed=2)
    samples = [sample for sample in books.samples if 8.0 < sample.hour < 36.0]
    ahead = [BUDGET.amount * sample.hour - sample.spent_usd for sample in samples]

    window_usd = BUDGET.amount * WINDOW_HOURS
    widest = [sample.hour for sample in samples if sample.is_at_end and sample.hour > 10.0]
    assert max(ahead) > 0.25 * window_usd
    assert max(widest) - min(widest) > 3.0
    assert min(ahead) > -0.01 * window_usd


def test_the_multiplier_settles_after_a_load_step() -> None:
    """Two response times after the step no swing grows any more."""
    scenario = Scenario(name="step", load=((0.0, 1.0), (6.0, 0.75)))
    _, books = paced_run(scenario, hours=HOURS, window_hours=WINDOW_HOURS)

    logs = {
        hours: np.log([s.multiplier for s in books.samples if hours[0] <= s.hour < hours[1]])
        for hours in ((8.0, 16.0), (16.0, 24.0))
    }
    early, late = (float(np.std(values)) for values in logs.values())
    assert late <= 1.25 * early


def test_the_cap_on_nodes_always_wins() -> None:
    """With a cap below what the budget would rent, the cap holds and credit does not break it."""
    result, books = paced_run(Scenario(name="capped"), hours=8.0, max_nodes=12)

    assert result.most_nodes <= 12
    assert result.finished == result.jobs
    assert max(sample.usd_per_hour for sample in books.samples) <= 12 * 4.0


def test_same_facts_same_run() -> None:
    """Nothing but the ledger is remembered, so a run repeats to the bit."""
    first, _ = paced_run(Scenario(name="steady"), hours=6.0)
    second, _ = paced_run(Scenario(name="steady"), hours=6.0)

    assert replace(first, wall_seconds=0.0) == replace(second, wall_seconds=0.0)
