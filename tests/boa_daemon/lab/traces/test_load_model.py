"""Loads fitted to a trace: draws have its rates, growth, bursts, classes, sizes and work."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.load_model import HOURS_PER_WEEK, TraceLoad, fit_load
from boa_daemon.testing import a_trace
from boa_daemon.traces.reader import Trace, TraceJob

DAY_AND_NIGHT = tuple(
    8.0 * (1.0 + math.sin(2.0 * math.pi * hour / 24.0)) * (0.2 if hour >= 120 else 1.0) + 0.5
    for hour in range(HOURS_PER_WEEK)
)
"""Busy at noon, quiet at night, and a fifth on the last two days."""
AT_NIGHT = tuple(4.0 if hour % 24 >= 12 else 1.0 for hour in range(HOURS_PER_WEEK))
SWEEP = ((0.0, 3.0), (0.5, 3.0), (0.5, 5.0))
WEEKS = 12
TRUE = TraceLoad(
    rates={"a": DAY_AND_NIGHT, "b": AT_NIGHT},
    burstiness=0.3,
    submissions={"a": (((0.0, 0.5),), ((0.0, 1.0),), ((0.0, 2.0),)), "b": (((0.0, 8.0),), SWEEP)},
    hours=float(WEEKS * HOURS_PER_WEEK),
    growth_per_week=0.05,
)


def mean_work(load: TraceLoad, name: str) -> float:
    """Return the mean work of a submission of a class."""
    return float(np.mean([sum(scale for _, scale in own) for own in load.submissions[name]]))


def test_a_fit_recovers_the_load_that_the_trace_was_drawn_from() -> None:
    """Twelve weeks give back rates, growth, burstiness, sizes and sweeps."""
    found = fit_load(TRUE.draw(TRUE.hours, seed=1))

    # Each hour of the week occurs twelve times, and varies by chance and by bursts.
    whole = np.array(DAY_AND_NIGHT) + np.array(AT_NIGHT)
    error = np.sqrt((whole + TRUE.burstiness * whole**2) / WEEKS)
    z = (sum(np.array(found.rates[name]) for name in "ab") - whole) / error
    assert abs(z.mean()) < 3.0 / math.sqrt(len(z))
    assert (np.abs(z) < 3.0).mean() > 0.98
    assert found.burstiness == pytest.approx(0.3, abs=0.08)
    assert found.growth_error is not None
    assert abs(found.growth_per_week - TRUE.growth_per_week) < 3.0 * found.growth_error
    assert found.growth_error < 0.01
    # By the hour of the day, class b has a tenth to four times the rate of a, seen in 84 hours each.
    parts = np.array(found.rates["b"]) / (np.array(found.rates["a"]) + np.array(found.rates["b"]))
    true = np.array(AT_NIGHT)[:24] / whole[:24]
    assert np.abs(parts[:24] - true).max() < 0.12
    singles = {scale for own in found.submissions["a"] for _, scale in own if len(own) == 1}
    assert singles == {0.5, 1.0, 2.0}
    together = np.mean([len(own) >= 3 for own in found.submissions["b"]])
    assert together == pytest.approx(0.5, abs=0.06)


@settings(max_examples=8, deadline=None)
@given(
    rate=st.floats(0.5, 8.0),
    sizes=st.lists(st.floats(0.01, 100.0), min_size=2, max_size=5),
    hours=st.floats(20.0, 200.0),
    seed=st.integers(0, 2**16),
)
@pytest.mark.exhaustive
def test_draws_have_the_mean_number_and_work_of_jobs_of_the_trace(
    rate: float, sizes: list[float], hours: float, seed: int
) -> None:
    """The mean of forty draws is within five standard errors."""
    source = TraceLoad(
        rates={"x": (rate,) * HOURS_PER_WEEK, "y": (2.0 * rate,) * HOURS_PER_WEEK},
        burstiness=0.2,
        submissions={"x": tuple(((0.0, size),) for size in sizes), "y": (((0.0, 1.0), (0.2, 1.0)),)},
        hours=hours,
    )
    trace = source.draw(hours, seed=seed)
    load = fit_load(trace)
    draws = [load.draw(load.hours, seed=again) for again in range(40)]

    assert draws[0] == load.draw(load.hours, seed=0)
    for name in load.class_names:
        for of in (lambda job: 1.0, lambda job: job.scale):
            own = [sum(of(job) for job in one.jobs if job.class_name == name) for one in (trace, *draws)]
            error = max(np.std(own[1:]) / math.sqrt(40), 1e-9)
            assert abs(np.mean(own[1:]) - own[0]) < 5.0 * error


def test_growth_is_distinguished_from_weekly_rhythm_and_chance() -> None:
    """Growth is found if the load doubles in four weeks; two days are too short for an estimate."""
    level = TraceLoad(
        rates={"a": DAY_AND_NIGHT}, burstiness=0.2, submissions={"a": (((0.0, 1.0),),)}, hours=672.0
    )
    doubled = TraceLoad(
        rates=level.rates,
        burstiness=0.2,
        submissions=level.submissions,
        hours=672.0,
        growth_per_week=math.log(2.0) / 4.0,
    )

    found = [fit_load(level.draw(672.0, seed=seed)).growth_per_week for seed in range(20)]
    grew = fit_load(doubled.draw(672.0, seed=1))
    assert sum(growth != 0.0 for growth in found) <= 3
    assert grew.growth_per_week == pytest.approx(math.log(2.0) / 4.0, abs=3.0 * (grew.growth_error or 0.0))
    assert fit_load(doubled.draw(48.0, seed=1)).growth_error is None
    # A draw of twice the length grows no further: after the fitted weeks the load stays level.
    last = grew.draw(2.0 * 672.0, seed=5)
    jobs = np.bincount([int(job.arrived_at_seconds // 604_800) for job in last.jobs], minlength=8)
    assert jobs[3:].max() < 1.5 * jobs[3:].min()


def test_unseen_hours_have_the_rate_of_their_hour_of_the_day() -> None:
    """The trace covers one day of the week."""
    found = fit_load(TRUE.draw(24.0, seed=2))

    rates = np.array(found.rates["a"])
    assert np.ptp(rates[24::24]) == pytest.approx(0.0, abs=1e-12)
    assert rates[24 + 6] > 3.0 * rates[24 + 18]


def test_a_draw_has_the_asked_load_bursts_and_hours() -> None:
    """The same seed gives the same draw."""
    hours = 2 * HOURS_PER_WEEK
    plain = TRUE.draw(hours, seed=3, bursts=0.0)
    double = TRUE.draw(hours, seed=3, bursts=0.0, load=2.0)
    wild = TRUE.draw(hours, seed=3, bursts=3.0)

    assert len(double.jobs) == pytest.approx(2.0 * len(plain.jobs), rel=0.05)
    assert fit_load(plain).burstiness < 0.05
    assert fit_load(wild).burstiness > 1.0
    assert TRUE.draw(30.5, seed=1).jobs[-1].arrived_at_seconds <= 30.5 * 3600.0
    assert TRUE.draw(48.0, seed=1) == TRUE.draw(48.0, seed=1) != TRUE.draw(48.0, seed=2)


def test_jobs_of_one_submission_are_drawn_together() -> None:
    """Sweeps of five jobs are drawn as sweeps of five."""
    trace = Trace(
        tuple(TraceJob(f"{n}-{k}", 3600.0 * n + 0.01 * k, "a", 1.0 + k) for n in range(30) for k in range(5))
    )
    drawn = fit_load(trace).draw(400.0, seed=1)

    at = np.array([job.arrived_at_seconds for job in drawn.jobs])
    assert len(drawn.jobs) % 5 == 0
    assert (np.diff(at) < 1.0).mean() == pytest.approx(0.8, abs=0.01)
    assert sum(job.scale for job in drawn.jobs) == 3.0 * len(drawn.jobs)


def test_too_few_jobs_are_refused() -> None:
    """A trace of one instant and a draw without jobs are refused as well."""
    with pytest.raises(InputError, match="10 jobs or more; got 9"):
        fit_load(a_trace(*(600.0 * n for n in range(9))))
    with pytest.raises(InputError, match="all 10 came at one instant"):
        fit_load(a_trace(*([5.0] * 10)))
    with pytest.raises(InputError, match="nothing arrives"):
        TRUE.draw(1.0, seed=1, load=1e-9)
