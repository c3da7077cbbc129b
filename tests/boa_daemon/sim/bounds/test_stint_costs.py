"""The least cost of the phases of a job, rounded down."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from sampling import sampled

from boa_daemon.sim.bounds.stint_costs import least_costs
from boa_daemon.sim.bounds.stint_paths import JobTimes, Resolution
from policies.speedup import Floats

STEP = 0.01
CELL = 10
"""Steps at one price."""


def resolution(*, units: float = 2.0) -> Resolution:
    """Return a resolution with some units of work per overhead; the tests give the step themselves."""
    return Resolution(steps_per_overhead=1.0, most_steps=1, units_per_overhead=units, most_units=60)


@st.composite
def jobs(draw: DrawFn) -> tuple[JobTimes, Floats]:
    """Return the times of a job of one to three phases at three choices, and prices by choice and step."""
    phases = draw(st.integers(1, 3))
    hours = [[draw(st.sampled_from((0.012, 0.05, 0.11, 0.4))) for _ in range(3)] for _ in range(phases)]
    overhead = draw(st.sampled_from((0.0, 0.004, 0.02, 0.035, 0.1)))
    cells = draw(st.lists(st.sampled_from((0.0, 0.2, 1.0, 5.0)), min_size=1, max_size=25))
    prices = np.repeat(np.array(cells), CELL)[None, :] * np.array([[1.0], [2.0], [4.0]])
    return JobTimes(hours=np.array(hours), overhead_hours=overhead), prices


TAIL = np.array([0.5, 1.0, 2.0])


def paid(prices: Floats, choice: int, begin: float, end: float) -> float:
    """Return the cost of holding a choice from one time to another."""
    edges = STEP * np.arange(prices.shape[1] + 1)
    inside = np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin), 0.0, None)
    return float(inside @ prices[choice]) + max(end - max(begin, edges[-1]), 0.0) * float(TAIL[choice])


@settings(max_examples=sampled(300), deadline=None)
@given(
    job=jobs(),
    begins=st.floats(0.0, 1.0),
    stints=st.lists(
        st.tuples(st.integers(0, 2), st.floats(0.0, 0.5), st.sampled_from((0.0, 0.0, 0.03, 0.4))), max_size=6
    ),
    multiplier=st.sampled_from((0.1, 1.0, 4.0)),
    units=st.sampled_from((0.5, 2.0, 5.0)),
)
def test_no_schedule_is_cheaper_than_the_least_cost(
    job: tuple[JobTimes, Floats],
    begins: float,
    stints: list[tuple[int, float, float]],
    multiplier: float,
    units: float,
) -> None:
    """The schedules have stints that begin and end anywhere, also within phases."""
    times, prices = job
    found = least_costs(times, prices, TAIL, multiplier, step_hours=STEP, resolution=resolution(units=units))

    now, cost, phase, left = begins, 0.0, 0, 1.0
    for choice, most_hours, gap in [*stints, (0, np.inf, 0.0)]:
        if phase == len(times.hours):
            break
        began, hours = now + gap, most_hours
        now = began + times.overhead_hours
        while hours > 0.0 and phase < len(times.hours):
            takes = left * float(times.hours[phase, choice])
            worked = min(takes, hours)
            now, hours = now + worked, hours - worked
            left -= worked / float(times.hours[phase, choice])
            if worked == takes:
                phase, left = phase + 1, 1.0
        cost += multiplier * paid(prices, choice, began, now)

    first = min(int(begins / STEP), prices.shape[1])
    assert found[first] <= (now + cost) * (1.0 + 1e-9) + 1e-9


def test_the_least_cost_is_close_where_prices_are_constant() -> None:
    """A job of two phases of half an hour costs its time and price, less two steps of overhead."""
    times = JobTimes(hours=np.array([[0.5], [0.5]]), overhead_hours=0.05)
    prices = np.ones((1, 400))

    found = least_costs(times, prices, np.ones(1), 1.0, step_hours=STEP, resolution=resolution(units=5.0))

    assert 2.0 * 1.05 - 4.1 * STEP <= found[0] <= 2.1
    assert found[100] == pytest.approx(found[0] + 1.0)


def test_a_job_waits_for_a_price_that_falls() -> None:
    """The fall saves more than the waiting costs."""
    times = JobTimes(hours=np.array([[0.5]]), overhead_hours=0.05)
    prices = np.concatenate((np.full((1, 20), 9.0), np.zeros((1, 200))), axis=1)

    found = least_costs(times, prices, np.ones(1), 1.0, step_hours=STEP, resolution=resolution(units=5.0))

    assert 0.2 + 0.55 - 5.0 * STEP <= found[0] <= 0.75
