"""Backtest of commitments: advice from the first part of a trace, applied to the rest.

The whole trace is simulated with rates and sizes of the first part only, so the advice does not know the
rest.
"""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.budget_plan import with_trace
from boa_daemon.planning.rentals import Rental, load_between
from boa_daemon.sim.wiring import SimulationSettings, check_budget, prepare, settings_for
from boa_daemon.traces.reader import Trace
from policies.model import Budget, JobClass
from policies.optimum.commitments import LoadDistribution


def split_instant(trace: Trace, held_out: float) -> float:
    """Return the instant, in seconds, at which the held-out last part of a trace begins."""
    return trace.jobs[-1].arrived_at_seconds - 3600.0 * held_out * trace.window_hours


def first_part(trace: Trace, until: float) -> Trace:
    """Return the jobs that arrive before an instant."""
    return Trace(tuple(job for job in trace.jobs if job.arrived_at_seconds < until))


def settings_from_known_part(
    file: ProblemFile, trace: Trace, known: Trace, budget: Budget
) -> SimulationSettings:
    """Return simulation settings for a trace, with the rates and sizes of its known part.

    A class without a job in the known part is planned as if half a job had arrived.
    """
    planned = {c.name: c for c in with_trace(file, known).problem.classes}
    rare = 0.5 / (known.window_hours or 1.0)
    classes = tuple(planned.get(c.name, replace(c, arrivals_per_hour=rare)) for c in file.problem.classes)
    stated = {c.name: _size(c) for c in file.problem.classes}
    means = {c.name: _size(c) / stated[c.name] for c in classes}
    # Class sizes are the means of the known jobs, so scale the jobs relative to these.
    jobs = tuple(replace(job, scale=job.scale / means[job.class_name]) for job in trace.jobs)
    told = replace(file, problem=replace(file.problem, classes=classes), classes_without_rates=frozenset())
    return settings_for(told, Trace(jobs), budget)


def rentals_of(settings: SimulationSettings) -> list[Rental]:
    """Run a simulation, and return its on-demand rentals.

    Raises:
        InfeasibleBudget: when the budget cannot run every job.
    """
    check_budget(settings)
    run = prepare(settings)
    run.finish()
    return [Rental(*rented) for rented in run.world.cloud.meter.on_demand]


def _size(job_class: JobClass) -> float:
    """Return the work of a class's job in GPU-hours."""
    return sum(phase.size_gpu_hours for phase in job_class.phases)


def loads_around(
    rentals: list[Rental], gpu_types: tuple[str, ...], trace: Trace, at: float
) -> tuple[LoadDistribution, LoadDistribution, LoadDistribution]:
    """Return the loads of a trace's whole window, of its part before `at`, and of the rest."""
    begin, end = trace.jobs[0].arrived_at_seconds, trace.jobs[-1].arrived_at_seconds
    return (
        load_between(rentals, gpu_types, begin, end),
        load_between(rentals, gpu_types, begin, at),
        load_between(rentals, gpu_types, at, end),
    )
