"""A simulated job between events, against a simulation second by second."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.sim.simulated_job import SimulatedJob
from boa_daemon.sim.simulated_workload import Physics
from boa_daemon.sim.world_settings import Checkpoints
from boa_daemon.testing import a_class, some_slots
from boa_daemon.traces.reader import TraceJob
from policies.model import Width


def a_running_job(every: int, cost: int) -> SimulatedJob:
    """Return a job of an hour that starts on two GPUs at 0, with 10 s of start-up."""
    physics = Physics(a_class(startup_hours=10.0 / 3600.0))
    job = SimulatedJob(
        trace=TraceJob("a", 0.0, "c"),
        physics=physics,
        arrived_at=0.0,
        draw=0.5,
        left=physics.sizes[0],
        startup_left=physics.startup_seconds,
        checkpoints=Checkpoints(every_seconds=every, cost_seconds=cost),
    )
    job.begin(0.0, generation=1, width=Width("gpu", 2), slots=some_slots("n1", 0, 1))
    return job


def walked(every: int, cost: int, seconds: int) -> tuple[int, int]:
    """Return the seconds of work and of saved work after some seconds, counted one by one."""
    worked = saved = position = 0
    for _ in range(max(0, seconds - 10)):
        if position < every:
            worked, position = worked + 1, position + 1
        else:
            position += 1
        if position == every + cost:
            saved, position = worked, 0
    return worked, saved


@given(
    every=st.integers(1, 40),
    cost=st.integers(0, 10),
    looks=st.lists(st.integers(1, 60), min_size=1, max_size=8),
)
def test_work_and_checkpoints_match_a_simulation_second_by_second(
    every: int, cost: int, looks: list[int]
) -> None:
    """Work left, GPU-seconds and lost work do not depend on how often the job is measured."""
    job = a_running_job(every, cost)
    now, used, overhead = 0, 0.0, 0.0
    for step in looks:
        now += step
        foretold = job.left_at(float(now))
        paid, done = job.measure(float(now))
        used, overhead = used + done, overhead + paid
        assert foretold == pytest.approx(job.left, abs=1e-6)

    worked, saved = walked(every, cost, now)
    assert (used, overhead) == (pytest.approx(2.0 * worked), pytest.approx(2.0 * (now - worked)))
    assert job.left == pytest.approx(3600.0 - 1.8 * worked)
    assert job.fall_back() == pytest.approx(2.0 * (worked - saved), abs=1e-6)
    assert job.left == pytest.approx(3600.0 - 1.8 * saved)


@given(
    every=st.integers(1, 40),
    cost=st.integers(0, 10),
    measured_at=st.integers(0, 300),
    later=st.integers(0, 300),
)
def test_the_state_at_an_instant_is_that_of_a_job_measured_then(
    every: int, cost: int, measured_at: int, later: int
) -> None:
    """Work left and its instant are new; nothing else differs from the state before."""
    job = a_running_job(every, cost)
    before = job.state()
    job.measure(float(measured_at))
    now = float(measured_at + later)
    seen = job.state_at(now, before)
    job.measure(now)
    after = job.state()

    assert seen.job.remaining_gpu_hours == pytest.approx(after.job.remaining_gpu_hours)
    same = replace(seen.job, remaining_gpu_hours=after.job.remaining_gpu_hours)
    assert replace(seen, job=same) == after


@given(every=st.integers(50, 900), cost=st.integers(0, 60), look=st.floats(0.0, 2500.0))
def test_a_phase_ends_at_its_predicted_end(every: int, cost: int, look: float) -> None:
    """Measuring in between does not change the prediction."""
    job = a_running_job(every, cost)
    first = job.phase_ends_at()
    assert first is not None
    job.measure(min(look, first - 1.0))
    again = job.phase_ends_at()

    assert again == pytest.approx(first)
    job.measure(first - 0.5)
    assert job.left > 0.0
    job.measure(first)
    assert job.left == pytest.approx(0.0, abs=1e-6)


@given(
    sizes=st.lists(st.floats(0.001, 0.2), min_size=1, max_size=8),
    looks=st.lists(st.floats(0.0, 2000.0), max_size=4),
    until=st.integers(1, 8),
)
def test_phases_skipped_by_look_ahead_end_at_the_same_instants(
    sizes: list[float], looks: list[float], until: int
) -> None:
    """The instants are equal to the bit, whenever the state is read in between."""
    physics = Physics(a_class(sizes=sizes, startup_hours=10.0 / 3600.0))

    def started() -> SimulatedJob:
        trace = TraceJob("a", 0.0, "c", 0.7)
        job = SimulatedJob(
            trace=trace,
            physics=physics,
            arrived_at=0.0,
            draw=0.5,
            left=0.7 * physics.sizes[0],
            startup_left=10.0,
        )
        job.begin(0.0, generation=1, width=Width("gpu", 2), slots=some_slots("n1", 0, 1))
        return job

    seen, unseen, until = started(), started(), min(until, len(sizes))
    ends: list[float] = []
    ends_at = seen.phase_ends_at()
    states = [(0.0, seen.job())]
    while ends_at is not None:
        ends.append(ends_at)
        if len(ends) == until:
            break
        seen.measure(ends_at)
        seen.enter_next_phase()
        states.append((ends_at, seen.job()))
        ends_at = seen.phase_ends_at()
    assert unseen.look_ahead(until) == ends[-1]
    assert unseen.ends_ahead == ends[:-1]
    used = 0.0
    for now in sorted(looks):
        used += sum(unseen.pass_phases(now))
        known = [job for at, job in states if at <= now]
        assert unseen.job() == known[-1]
    assert used == pytest.approx(2.0 * max(at for at, job in states if job == unseen.job()))
