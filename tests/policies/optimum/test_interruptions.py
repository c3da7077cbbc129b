"""The cost of interruptions to a job, and the best interval between saves."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import InvalidProblem
from policies.optimum.interruptions import (
    CheckpointSchedule,
    Interruptions,
    best_interval,
    hours_with_interruptions,
)


def played(
    hours: float,
    rates: tuple[float, float],
    saves: CheckpointSchedule,
    waits: tuple[float, float],
    rng: Random,
) -> float:
    """Return the hours of one job, played event by event.

    `rates` are (announced, lost), and `waits` are (restart, boot).
    """
    announced, lost = rates
    clock, left, to_save, to_restart = 0.0, hours, saves.every_hours, 0.0
    until = rng.expovariate(announced + lost)
    while True:
        stretch = min(to_save, left)
        is_last = stretch >= left - 1e-12
        need = to_restart + stretch + (0.0 if is_last else saves.cost_hours)
        if until >= need:
            clock, until, to_restart = clock + need, until - need, 0.0
            left, to_save = left - stretch, saves.every_hours
            if is_last:
                return clock
            continue
        if rng.random() < announced / (announced + lost):
            left -= min(stretch, max(0.0, until - to_restart))
            to_save = saves.every_hours
        clock += until + waits[1]
        to_restart, until = waits[0], rng.expovariate(announced + lost)


@pytest.mark.parametrize(
    "saves", [CheckpointSchedule(), CheckpointSchedule(every_hours=0.7, cost_hours=0.05)]
)
@pytest.mark.parametrize("unannounced", [1.0, 0.3])
def test_expected_hours_are_the_mean_of_simulated_jobs(saves: CheckpointSchedule, unannounced: float) -> None:
    """The mean of 4000 jobs played event by event is within 3 %."""
    terms = Interruptions(
        per_node_hour=0.25,
        unannounced_fraction=unannounced,
        notice_hours=0.06,
        leave_hours=0.06,
        boot_hours=0.1,
    )
    rng, rates = Random(1), (0.5 * (1.0 - unannounced), 0.5 * unannounced)
    plays = [played(3.0, rates, saves, (0.05, 0.1), rng) for _ in range(4000)]

    mean = hours_with_interruptions(3.0, 2, terms, saves, restart_hours=0.05)

    assert terms.rates(2, cost_hours=saves.cost_hours) == pytest.approx(rates)
    assert mean == pytest.approx(sum(plays) / len(plays), rel=0.03)


def test_announced_interruptions_lose_no_work() -> None:
    """The cost is restarts, and the wait for a new node less the notice beyond the leave."""
    terms = Interruptions(per_node_hour=0.2, notice_hours=0.1, leave_hours=0.04, boot_hours=0.08)
    found = hours_with_interruptions(5.0, 1, terms, CheckpointSchedule(), restart_hours=0.1)

    assert found == pytest.approx(5.0 * math.exp(0.2 * 0.1) * (1.0 + 0.2 * 0.02))


def test_a_save_that_takes_longer_than_the_notice_is_too_late() -> None:
    """All interruptions then lose the unsaved work."""
    terms = Interruptions(per_node_hour=0.2, notice_hours=0.03)

    assert terms.rates(2, cost_hours=0.02) == pytest.approx((0.4, 0.0))
    assert terms.rates(2, cost_hours=0.05) == pytest.approx((0.0, 0.4))


@given(rate=st.floats(0.001, 2.0), cost=st.floats(1e-4, 0.5), announced=st.sampled_from((0.0, 0.1, 1.0)))
def test_no_other_interval_loses_less(rate: float, cost: float, announced: float) -> None:
    """A slightly shorter or longer interval costs as much or more; Young's formula is the limit."""
    both = announced + rate

    def per_hour(every: float) -> float:
        grown = math.expm1(min(700.0, both * (every + cost))) / both
        return (math.log1p(announced * grown) / announced if announced else grown) / every

    best = best_interval(announced, rate, cost)

    if math.isinf(best):
        every = [0.01 * 1.5**step for step in range(20)]
        assert min(map(per_hour, every)) >= both / announced * (1.0 - 1e-6), "never is best"
        return
    assert per_hour(best) <= min(per_hour(0.97 * best), per_hour(1.03 * best)) * (1.0 + 1e-6)
    if rate * cost < 1e-4 and not announced:
        assert best == pytest.approx(math.sqrt(2.0 * cost / rate), rel=0.02)


def test_limits_of_losses_and_of_the_cost_of_saves() -> None:
    """No loss: never save. Free saves: always save. Hopeless: infinite hours. Invalid terms are refused."""
    assert best_interval(1.0, 0.0, 0.1) == math.inf
    assert best_interval(0.0, 1.0, 0.0) == 0.0
    doomed = Interruptions(per_node_hour=100.0, unannounced_fraction=1.0)
    assert hours_with_interruptions(50.0, 4, doomed, CheckpointSchedule(), restart_hours=0.0) == math.inf
    with pytest.raises(InvalidProblem, match="per_node_hour"):
        Interruptions(per_node_hour=-1.0)


def test_zero_work_is_refused_and_hopeless_restarts_take_infinite_hours() -> None:
    """A job whose restarts are nearly always interrupted never ends."""
    with pytest.raises(ValueError, match="work between two saves must be more than zero hours"):
        hours_with_interruptions(
            0.0, 1, Interruptions(per_node_hour=0.1), CheckpointSchedule(), restart_hours=0.1
        )
    often = Interruptions(per_node_hour=1e3, notice_hours=1.0)
    assert hours_with_interruptions(1.0, 8, often, CheckpointSchedule(), restart_hours=1.0) == math.inf


def test_a_save_as_long_as_the_notice_is_in_time() -> None:
    """The work is saved, and the job leaves at once where its leave takes as long as the notice."""
    terms = Interruptions(per_node_hour=0.2, notice_hours=0.03, leave_hours=0.03, boot_hours=0.5)

    assert terms.rates(1, cost_hours=0.03) == (0.2, 0.0)
    found = hours_with_interruptions(
        5.0, 1, terms, CheckpointSchedule(every_hours=2.0, cost_hours=0.03), restart_hours=0.0
    )
    # Two saves in five hours of work, and a boot for each interruption.
    assert found == pytest.approx((5.0 + 2 * 0.03) * (1.0 + 0.2 * 0.5))
    exactly = hours_with_interruptions(
        4.0, 1, terms, CheckpointSchedule(every_hours=2.0, cost_hours=0.03), restart_hours=0.0
    )
    assert exactly == pytest.approx((4.0 + 0.03) * (1.0 + 0.2 * 0.5))
    with pytest.raises(InvalidProblem, match="cost_hours of a save"):
        CheckpointSchedule(cost_hours=-0.1)
