"""Forecasts: which jobs end so soon that renting nodes for a waiting job does not pay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drafts import gpus
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, some_slots
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.room.forecasts import about_to_end, job_hours_left
from policies.model import Job

PATIENCE = 0.5
HOUR = 3600.0


def running(now: float = 0.0, **left: float) -> tuple[ClusterState, Known]:
    """Return jobs that run with these hours left, job w that waits since 0, and node prices."""
    held = {job: some_slots("n1", at) for at, job in enumerate(left)}
    state = a_state(*map(a_job, (*left, "w")), nodes=[a_node()], held=held, now=now)
    return state, Known(widths={}, left_hours=left, boot_hours=PATIENCE)


def test_a_job_ends_soon_if_it_has_less_time_left_than_a_boot_takes() -> None:
    """The limit is half an hour: 0.49 h is less, and 0.5 h is not."""
    state, prices = running(a=0.49, b=0.5, c=0.51)
    assert about_to_end(state, prices, gpus(w=2)) == {"a"}


def test_no_job_ends_soon_without_waiting_jobs_or_node_prices() -> None:
    """Nor does one if the job that ends is among the waiting jobs."""
    state, prices = running(a=0.1)
    assert about_to_end(state, prices, {}) == frozenset()
    assert about_to_end(state, None, gpus(w=2)) == frozenset()
    assert about_to_end(state, prices, gpus(w=1, a=2)) == frozenset()


@pytest.mark.parametrize(("hours", "waits"), [(0.99, True), (1.0, True), (1.01, False)])
def test_a_job_that_has_waited_for_two_boots_no_longer_waits_for_jobs_to_end(
    hours: float, waits: bool
) -> None:
    """Two boots take one hour."""
    state, prices = running(now=hours * HOUR, a=0.1)
    assert bool(about_to_end(state, prices, gpus(w=2))) == waits


def test_a_running_job_that_waits_to_grow_does_not_count_as_waiting_too_long() -> None:
    """Job b arrived ten hours ago and runs."""
    state, prices = running(now=10 * HOUR, a=0.1, b=5.0)
    jobs = {**state.jobs, "w": replace(state.jobs["w"], job=a_job("w", arrived_at=10 * HOUR))}
    assert about_to_end(replace(state, jobs=jobs), prices, gpus(b=2, w=1)) == {"a"}


def test_only_jobs_on_the_type_that_is_waited_for_end_soon() -> None:
    """The waiting job needs another type."""
    state, prices = running(a=0.1)
    wide = type(gpus(w=2)["w"])("other", 2)
    assert about_to_end(state, prices, {"w": wide}) == frozenset()


def test_the_time_left_is_reduced_by_the_age_of_its_measurement() -> None:
    """One hour left half an hour ago is half an hour now."""
    state, prices = running(now=HOUR, a=1.0)
    job: Job = state.jobs["a"].job
    assert job_hours_left(state, job, prices) == 1.0
    assert job_hours_left(state, replace(job, counted_at=HOUR), prices) == 1.0
    assert job_hours_left(state, replace(job, counted_at=HOUR / 2), prices) == 0.5
