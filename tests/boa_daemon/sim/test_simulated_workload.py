"""The speeds and sizes of simulated classes, and workloads that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from boa_daemon.errors import InputError
from boa_daemon.sim.simulated_workload import Physics, a_workload, in_bursts
from boa_daemon.testing import a_class, a_trace, an_instance_type
from boa_daemon.traces.reader import Trace
from policies.model import Width
from policies.speedup import Amdahl, Table

NODES = {"gpu": an_instance_type()}


def test_a_phase_runs_at_the_speed_of_its_table() -> None:
    """At a width or GPU type outside the table the speed is 0."""
    physics = Physics(a_class(sizes=[1.0, 2.0]))

    assert physics.speeds(Width("gpu", 2)) == (1.8, 1.8)
    assert physics.speeds(Width("gpu", 3)) == (0.0, 0.0)
    assert physics.speeds(Width("other", 2)) == (0.0, 0.0)


def test_sizes_and_the_work_left_after_each_phase_are_in_seconds() -> None:
    """Phases of 1, 2 and 3 hours leave 5, 3 and 0 hours."""
    physics = Physics(a_class(sizes=[1.0, 2.0, 3.0]))

    assert physics.sizes == (3600.0, 7200.0, 10800.0)
    assert physics.tail_sizes == (5 * 3600.0, 3 * 3600.0, 0.0)


def test_a_trace_without_jobs_is_refused() -> None:
    """A simulation needs at least one job."""
    with pytest.raises(InputError, match="no jobs"):
        a_workload(a_trace(), [a_class()], NODES)


def test_an_unknown_class_in_the_trace_is_refused_with_a_suggestion() -> None:
    """The suggestion is the class with the closest name."""
    with pytest.raises(InputError, match=r"'visoin'.*Did you mean 'vision'"):
        a_workload(a_trace(0.0, class_names=["visoin"]), [a_class("vision")], NODES)


def test_a_class_on_a_type_that_cannot_be_rented_is_refused() -> None:
    """Its jobs would wait for ever."""
    with pytest.raises(InputError, match="class c, phase 0, needs at least 1 x other"):
        a_workload(a_trace(0.0), [a_class(gpu_type="other")], NODES)


def test_a_job_wider_than_the_limit_on_nodes_is_refused() -> None:
    """A job of eight GPUs never starts within one node of four."""
    wide = a_class(curve=Table(gpus=(8,), speeds=(5.0,)))

    with pytest.raises(InputError, match=r"needs at least 8 x gpu.*at most 4 x gpu"):
        a_workload(a_trace(0.0), [wide], NODES, most_nodes={"gpu": 1})
    assert a_workload(a_trace(0.0), [wide], NODES, most_nodes={"gpu": 2}).jobs == 1


def test_a_formula_may_be_used_at_every_whole_width() -> None:
    """The example is Amdahl's law at three GPUs."""
    physics = Physics(a_class(curve=Amdahl(parallel_fraction=0.75, max_gpus=4)))

    assert physics.speeds(Width("gpu", 3)) == (pytest.approx(1.0 / (0.25 + 0.25)),)
    assert physics.speeds(Width("gpu", 5)) == (0.0,)


def test_bursts_move_arrivals_and_nothing_else() -> None:
    """Jobs, their order, and the first and last instant stay; the hourly counts vary as asked."""
    trace = a_trace(*(36.0 * n for n in range(20_001)))
    moved = in_bursts(trace, 1.0, seed=1)

    def hourly(found: Trace) -> np.ndarray:
        at = [int(job.arrived_at_seconds // 3600.0) for job in found.jobs]
        return np.bincount(at, minlength=200)[:200]

    at = [job.arrived_at_seconds for job in moved.jobs]
    assert [job.id for job in moved.jobs] == [job.id for job in trace.jobs]
    assert at == sorted(at)
    assert (at[0], at[-1]) == (0.0, trace.jobs[-1].arrived_at_seconds)
    # A gamma distribution of shape 1 in 200 hours: the standard error of its relative variance is 0.2.
    assert hourly(trace).var() < 1.0
    assert hourly(moved).var() / hourly(moved).mean() ** 2 == pytest.approx(1.0, abs=0.6)
    assert moved == in_bursts(trace, 1.0, seed=1) != in_bursts(trace, 1.0, seed=2)
    assert in_bursts(trace, 0.0, seed=1) is trace
    assert in_bursts(a_trace(5.0), 1.0, seed=1) == a_trace(5.0)
