"""The weekly rhythm: the daemon finds it in recorded arrivals and plans with it."""

from __future__ import annotations

import numpy as np
import pytest
from memory_samples import MemorySamples

from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.learning.learner import Learner
from boa_daemon.learning.learning_step import LearningStep
from boa_daemon.learning.observed_rhythm import rhythm_of
from boa_daemon.learning.policy_record import PolicyRecord
from boa_daemon.learning.samples import DAY, HOUR, Sample
from boa_daemon.tick.facts.codec import dumps, loads
from policies.model import Money
from policies.online.paced_optimum import PacedBudgetOptimal
from policies.online.rhythm import MONDAY_HOUR

CLASS = "default"
MONDAY = (2900 * 168 + MONDAY_HOUR) * HOUR
"""A Monday in 2025."""


def a_learner(*, weeks: int, store: MemorySamples | None = None, weekends: bool = False) -> Learner:
    """Return a learner that saw two jobs per hour from 8 to 20 h on workdays, and none otherwise."""
    learner = Learner(store)
    for hour in range(weeks * 168):
        if 8 <= hour % 24 < 20 and (weekends or hour // 24 % 7 < 5):
            learner.arrived(CLASS, MONDAY + hour * HOUR + 60.0)
            learner.arrived(CLASS, MONDAY + hour * HOUR + 1860.0)
    return learner


def a_planner(**learning: bool) -> Planner:
    """Return a planner with one class."""
    return Planner(Settings.model_validate({"budget": {"usd_per_month": 9000.0}, "learning": learning}))


def test_three_weeks_of_arrivals_give_a_weekly_rhythm_that_survives_a_restart() -> None:
    """The learning step sets the rhythm, the policy's record has it, and a new process finds the same."""
    store = MemorySamples()
    learner, planner = a_learner(weeks=3, store=store), a_planner()
    now = MONDAY + 21 * DAY + 60.0
    assert LearningStep(learner=learner).follow(planner, dict, now=now)
    again = a_planner()
    LearningStep(learner=Learner(store)).follow(again, dict, now=now + HOUR)
    record = planner.record(())

    assert planner.rhythm is not None
    assert planner.rhythm.by_day[:5] == pytest.approx([1.4] * 5, abs=0.05)
    assert max(planner.rhythm.by_day[5:]) < 0.05
    assert again.rhythm == planner.rhythm
    assert PolicyRecord.of(loads(dumps(record.document))).site == record.site
    allocator, _, rules = record.build()
    assert isinstance(allocator, PacedBudgetOptimal)
    assert rules.pace is not None
    assert rules.pace.rhythm == planner.rhythm
    # Few jobs come between Friday 20 h and Monday; the week starts on Monday at 8 h.
    friday, monday = (
        allocator.step((), Money(spent=0.0, elapsed_hours=0.0, period_left_hours=60.0, hour_of_week=hour))
        for hour in (116.0, 8.0)
    )
    assert friday.load_hours < monday.load_hours


def test_the_rhythm_stays_while_new_weeks_are_similar() -> None:
    """A fourth similar week changes nothing; many weeks with work on weekends change the rhythm."""
    planner, learner = a_planner(), a_learner(weeks=4)
    step = LearningStep(learner=learner)
    step.follow(planner, dict, now=MONDAY + 21 * DAY)
    before = planner.rhythm
    assert before is not None
    assert not planner.learn_rhythm(learner.rows.values(), now=MONDAY + 28 * DAY)
    assert planner.rhythm is before
    assert planner.learn_rhythm(a_learner(weeks=13, weekends=True).rows.values(), now=MONDAY + 91 * DAY)
    assert np.allclose(planner.rhythm.by_day, 1.0, atol=0.05)


def test_without_learned_rates_there_is_no_rhythm() -> None:
    """With `[learning] rates = false`, the plan uses what was stated."""
    planner = a_planner(rates=False)
    LearningStep(learner=a_learner(weeks=4)).follow(planner, dict, now=MONDAY + 28 * DAY)
    assert planner.rhythm is None


def test_the_rhythm_ignores_removed_classes_and_the_current_hour() -> None:
    """Two whole weeks of arrivals are the minimum."""
    rows, end = list(a_learner(weeks=3).rows.values()), MONDAY + 21 * DAY
    assert rhythm_of(rows, {"other": 1.0}, now=end) is None
    assert rhythm_of(rows, {CLASS: 1.0}, now=MONDAY + 15 * DAY - 1.0) is None, "13 whole days"
    assert rhythm_of(rows, {CLASS: 1.0}, now=MONDAY + 15 * DAY) is not None
    late = Sample(key="late", kind="arrivals", class_name=CLASS, at=end + DAY - HOUR, count=900.0)
    now = late.at + 1800.0
    assert rhythm_of([*rows, late], {CLASS: 1.0}, now=now) == rhythm_of(rows, {CLASS: 1.0}, now=now)
