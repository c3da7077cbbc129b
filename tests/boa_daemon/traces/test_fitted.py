"""Loads fitted to a trace: what is drawn is like it, in rates, bursts, classes and sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from boa_daemon.cli.demo import shipped_settings
from boa_daemon.errors import InputError
from boa_daemon.testing import a_trace
from boa_daemon.traces.fitted import HOURS_PER_WEEK, TraceLoad, fitted
from boa_daemon.traces.reader import Trace

WEEK = tuple(
    12.0 * (1.0 + math.sin(2.0 * math.pi * hour / 24.0)) * (0.2 if hour >= 120 else 1.0) + 0.5
    for hour in range(HOURS_PER_WEEK)
)
"""Busy at noon, quiet at night, and a fifth on the last two days."""
TRUE = TraceLoad(
    rates=WEEK,
    burstiness=0.3,
    class_parts={"a": 0.7, "b": 0.3},
    scales={"a": (0.5, 1.0, 2.0), "b": (1.0, 8.0)},
)


def counts_of(trace: Trace, hours: int) -> np.ndarray:
    """Return how many jobs came in each hour."""
    at = np.array([job.arrived_at_seconds for job in trace.jobs]) / 3600.0
    return np.bincount(at.astype(int), minlength=hours)


def test_what_was_drawn_from_is_found_again() -> None:
    """Twelve weeks give back rates within chance, the burstiness, parts and sizes."""
    found = fitted(TRUE.draw(12.0 * HOURS_PER_WEEK, seed=1))

    # An hour of the week is seen twelve times, and varies by chance and by bursts.
    error = np.sqrt([(rate + TRUE.burstiness * rate**2) / 12.0 for rate in WEEK])
    z = (np.array(found.rates) - np.array(WEEK)) / error
    assert abs(z.mean()) < 3.0 / math.sqrt(len(z))
    assert (np.abs(z) < 3.0).mean() > 0.98
    assert found.burstiness == pytest.approx(0.3, abs=0.08)
    assert found.class_parts["a"] == pytest.approx(0.7, abs=0.02)
    assert set(found.scales["b"]) == {1.0, 8.0}


def test_what_is_drawn_is_like_the_shipped_trace() -> None:
    """Jobs, classes, sizes and the variance of hours, over forty draws."""
    trace = shipped_settings("30/h").trace
    load = fitted(trace)
    draws = [load.draw(trace.window_hours, seed=seed) for seed in range(40)]

    jobs = np.array([len(drawn.jobs) for drawn in draws])
    assert abs(jobs.mean() / len(trace.jobs) - 1.0) < 3.0 * jobs.std() / math.sqrt(40) / len(trace.jobs)
    names = sorted(load.class_parts)
    drawn_jobs = [job for drawn in draws for job in drawn.jobs]
    seen = [sum(job.class_name == name for job in drawn_jobs) for name in names]
    expected = [load.class_parts[name] * len(drawn_jobs) for name in names]
    assert scipy.stats.chisquare(seen, expected).pvalue > 1e-3
    for name in names:
        own = [job.scale for job in drawn_jobs if job.class_name == name]
        assert scipy.stats.ks_2samp(own, list(load.scales[name])).pvalue > 1e-3
    hours = math.ceil(trace.window_hours)
    begin = trace.jobs[0].arrived_at_seconds
    real = np.bincount([int((j.arrived_at_seconds - begin) / 3600.0) for j in trace.jobs], minlength=hours)
    spread = [counts_of(drawn, hours).var() for drawn in draws]
    assert min(spread) < real.var() < max(spread)


def test_a_short_trace_says_little_of_days_that_it_has_not_seen() -> None:
    """Hours that were not watched have the rate of their hour of the day."""
    found = fitted(TRUE.draw(24.0, seed=2))

    rates = np.array(found.rates)
    assert np.ptp(rates[24::24]) == 0.0
    assert rates[24 + 6] > 3.0 * rates[24 + 18]


def test_load_bursts_and_hours_are_as_asked() -> None:
    """Twice the load is twice the jobs; without bursts hours vary by chance; part of an hour is part."""
    hours = 2 * HOURS_PER_WEEK
    plain = TRUE.draw(hours, seed=3, bursts=0.0)
    double = TRUE.draw(hours, seed=3, bursts=0.0, load=2.0)
    wild = TRUE.draw(hours, seed=3, bursts=3.0)

    assert len(double.jobs) == pytest.approx(2.0 * len(plain.jobs), rel=0.05)
    assert fitted(plain).burstiness < 0.05
    assert fitted(wild).burstiness > 1.0
    assert TRUE.draw(30.5, seed=1).jobs[-1].arrived_at_seconds < 30.5 * 3600.0
    assert TRUE.draw(48.0, seed=1) == TRUE.draw(48.0, seed=1) != TRUE.draw(48.0, seed=2)


def test_too_little_is_refused() -> None:
    """Nine jobs say nothing, and ten at one instant neither; a load of next to nothing has no jobs."""
    with pytest.raises(InputError, match="10 jobs or more; got 9"):
        fitted(a_trace(*(600.0 * n for n in range(9))))
    with pytest.raises(InputError, match="10 jobs or more"):
        fitted(a_trace(*([5.0] * 10)))
    with pytest.raises(InputError, match="nothing arrives"):
        TRUE.draw(1.0, seed=1, load=1e-9)
