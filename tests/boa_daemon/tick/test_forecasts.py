"""Whose GPUs fall free so soon that it does not pay to rent others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drafts import gpus
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, some_slots
from boa_daemon.tick.forecasts import about_to_end, job_hours_left
from boa_daemon.tick.state import ClusterState
from policies.model import Job

PATIENCE = 0.5
HOUR = 3600.0


def running(now: float = 0.0, **left: float) -> tuple[ClusterState, Known]:
    """Return jobs that run on n1 with hours left, w that waits since 0, and node prices that know."""
    held = {job: some_slots("n1", at) for at, job in enumerate(left)}
    state = a_state(*map(a_job, (*left, "w")), nodes=[a_node()], held=held, now=now)
    return state, Known(widths={}, left_hours=left, boot_hours=PATIENCE)


def test_jobs_end_soon_that_have_less_left_than_a_waiting_one_is_patient_for() -> None:
    """Half an hour: 0.49 is less, 0.5 is not. w itself runs nowhere."""
    state, prices = running(a=0.49, b=0.5, c=0.51)
    assert about_to_end(state, prices, gpus(w=2)) == {"a"}


def test_nobody_is_waited_for_where_nobody_waits_or_knows() -> None:
    """Or where the one that waits is the one that ends."""
    state, prices = running(a=0.1)
    assert about_to_end(state, prices, {}) == frozenset()
    assert about_to_end(state, None, gpus(w=2)) == frozenset()
    assert about_to_end(state, prices, gpus(w=1, a=2)) == frozenset()


@pytest.mark.parametrize(("hours", "waits"), [(0.99, True), (1.0, True), (1.01, False)])
def test_a_job_that_has_waited_twice_as_long_as_that_counts_on_nobody(hours: float, waits: bool) -> None:
    """An hour is the end of it."""
    state, prices = running(now=hours * HOUR, a=0.1)
    assert bool(about_to_end(state, prices, gpus(w=2))) == waits


def test_a_running_job_that_is_to_grow_is_never_overdue() -> None:
    """It came ten hours ago, and works."""
    state, prices = running(now=10 * HOUR, a=0.1, b=5.0)
    jobs = {**state.jobs, "w": replace(state.jobs["w"], job=a_job("w", arrived_at=10 * HOUR))}
    assert about_to_end(replace(state, jobs=jobs), prices, gpus(b=2, w=1)) == {"a"}


def test_patience_is_that_of_the_type_that_is_waited_for() -> None:
    """Nobody waits for "other": whoever ends there is of no use."""
    state, prices = running(a=0.1)
    wide = type(gpus(w=2)["w"])("other", 2)
    assert about_to_end(state, prices, {"w": wide}) == frozenset()


def test_what_is_left_counts_from_when_it_was_counted() -> None:
    """One hour left as of half an hour ago is half an hour; as of now, an hour."""
    state, prices = running(now=HOUR, a=1.0)
    job: Job = state.jobs["a"].job
    assert job_hours_left(state, job, prices) == 1.0
    assert job_hours_left(state, replace(job, counted_at=HOUR), prices) == 1.0
    assert job_hours_left(state, replace(job, counted_at=HOUR / 2), prices) == 0.5
