"""A simulation with commitments: nodes that they cover cost nothing more, and they are paid in any case."""

from __future__ import annotations

from dataclasses import replace

import pytest
from load_scenarios import NODE, Scenario, settings_of

from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.tick.facts.limits import FixedCost
from boa_daemon.tick.money.commitments import CommitmentLevel, SiteCommitments

BASE = replace(settings_of(Scenario(name="steady"), hours=4.0), policy="boa-paced", best_effort=True)


def with_nodes(count: float, *, off: float = 0.25) -> SimulationSettings:
    """Return four hours with a commitment that pays for so many nodes, at this much off."""
    rate = NODE.usd_per_hour * (1.0 - off)
    cost = FixedCost(name="ours", usd_per_hour=count * rate)
    level = CommitmentLevel(cost=cost, rates={NODE.name: rate})
    return replace(BASE, commitments=SiteCommitments.of([level], [NODE]))


def test_jobs_are_wider_for_the_same_money_and_the_bill_is_what_is_paid() -> None:
    """Five nodes at a quarter off: the world's bill on demand is larger than what is paid."""
    alone, covered = prepare(BASE), prepare(with_nodes(5.0))
    before, after = alone.finish(), covered.finish()

    assert after.mean_jct_hours < before.mean_jct_hours
    assert alone.spent_usd == pytest.approx(before.spent_usd, abs=1e-3)
    assert covered.spent_usd < 0.97 * after.spent_usd
    hours = after.simulated_hours
    assert covered.spent_usd > 5.0 * 3.0 * hours


def test_a_commitment_above_the_budget_is_used_and_paid_in_full() -> None:
    """Twenty-five nodes are paid for and the budget is 60 USD/hour: nothing is refused."""
    run = prepare(with_nodes(25.0))
    found = run.finish()

    assert found.finished == found.jobs
    assert run.spent_usd >= 75.0 * found.simulated_hours * (1.0 - 1e-9)
