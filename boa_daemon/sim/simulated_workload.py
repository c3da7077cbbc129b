"""The jobs of a trace with the physics of their classes: the amount of work, and the speed at each width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.traces.reader import Trace, TraceJob
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import InstanceType, JobClass, Phase, Width
from policies.speedup import Table


class Physics:
    """The work of one class, in seconds on one reference GPU, and its speed at each width."""

    __slots__ = (
        "_job_class",
        "_speeds",
        "network",
        "rescale_seconds",
        "size",
        "sizes",
        "startup_seconds",
        "tail_sizes",
        "weight",
    )

    def __init__(self, job_class: JobClass) -> None:
        self._job_class = job_class
        self._speeds: dict[Width, tuple[float, ...]] = {}
        self.sizes = tuple(phase.size_gpu_hours * SECONDS_PER_HOUR for phase in job_class.phases)
        self.size = sum(self.sizes)
        self.tail_sizes = tuple(math.fsum(self.sizes[phase + 1 :]) for phase in range(len(self.sizes)))
        self.startup_seconds = job_class.startup_hours * SECONDS_PER_HOUR
        self.rescale_seconds = job_class.rescale_hours * SECONDS_PER_HOUR
        self.weight = job_class.weight
        self.network = job_class.network

    def speeds(self, width: Width) -> tuple[float, ...]:
        """Return the speed in each phase at a width; 0 if the phase cannot use it."""
        speeds = self._speeds.get(width)
        if speeds is None:
            speeds = tuple(_speed(phase, width) for phase in self._job_class.phases)
            self._speeds[width] = speeds
        return speeds


def _speed(phase: Phase, width: Width) -> float:
    """Return the speed of a phase at a width; 0 if the phase may not use it."""
    curve = phase.speedups.get(width.gpu_type)
    if curve is None or not curve.min_gpus <= width.gpus <= curve.max_gpus:
        return 0.0
    if isinstance(curve, Table):
        # Fast path, because there are many phases: look up the measured speed.
        return float(curve.speeds[curve.gpus.index(width.gpus)]) if width.gpus in curve.gpus else 0.0
    if width.gpus not in curve.whole_widths():
        return 0.0
    return float(curve.speed_at(width.gpus))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedWorkload:
    """A trace, and the physics of its classes by name."""

    trace: Trace
    physics: Mapping[str, Physics]

    @property
    def jobs(self) -> int:
        """The number of jobs that arrive."""
        return len(self.trace.jobs)


def a_workload(
    trace: Trace,
    classes: Sequence[JobClass],
    instance_types: Mapping[str, InstanceType],
    *,
    most_nodes: Mapping[str, int | None] | None = None,
) -> SimulatedWorkload:
    """Return the workload, after checking that every job can run on rentable nodes.

    `most_nodes` is how many nodes of a GPU type may be held at once; None, or no entry, is no limit.

    Raises:
        InputError: when the trace is empty, a class is unknown, or a class has a phase that no rentable
            number of nodes can run.
    """
    if not trace.jobs:
        raise InputError("the trace has no jobs", hint="Add one row per arrival")
    by_name = {job_class.name: job_class for job_class in classes}
    for name in dict.fromkeys(job.class_name for job in trace.jobs):
        if name not in by_name:
            raise InputError(
                f"the trace has jobs of class {name!r}, which the class file does not have",
                hint=did_you_mean(name, by_name),
            )
        _check_rentable(by_name[name], instance_types, most_nodes or {})
    return SimulatedWorkload(trace=trace, physics={name: Physics(found) for name, found in by_name.items()})


def in_bursts(trace: Trace, burstiness: float, *, seed: int) -> Trace:
    """Return the same jobs in the same order with bursty arrivals: some hours are full, others empty.

    Each hour's rate is multiplied by a draw of a gamma distribution with mean 1 and variance `burstiness`;
    the first and the last job keep their instants.
    """
    hours = math.ceil(trace.window_hours)
    if not burstiness or not hours:
        return trace
    begin, end = trace.jobs[0].arrived_at_seconds, trace.jobs[-1].arrived_at_seconds
    dice = np.random.default_rng([seed, hours, 0xB0057])
    # Each hour keeps a small rate, so that every job gets an instant.
    factors = np.maximum(dice.gamma(1.0 / burstiness, burstiness, hours), 1e-6)
    edges = np.minimum(begin + SECONDS_PER_HOUR * np.arange(hours + 1), end)
    passed = np.concatenate([[0.0], np.cumsum(factors * np.diff(edges))])
    were = np.array([job.arrived_at_seconds for job in trace.jobs])
    moved = np.interp((were - begin) / (end - begin) * passed[-1], passed, edges)
    return Trace(
        tuple(
            TraceJob(job.id, at, job.class_name, job.scale)
            for job, at in zip(trace.jobs, moved.tolist(), strict=True)
        )
    )


def _check_rentable(
    job_class: JobClass, instance_types: Mapping[str, InstanceType], most_nodes: Mapping[str, int | None]
) -> None:
    """Refuse a class with a phase that fits on no rentable cluster: its jobs would wait for ever."""
    for number, phase in enumerate(job_class.phases):
        most = {
            kind: math.inf if nodes is None else nodes * instance_types[kind].whole_gpus
            for kind in phase.speedups
            if kind in instance_types
            for nodes in (most_nodes.get(kind),)
        }
        if not any(phase.speedups[kind].min_gpus <= gpus for kind, gpus in most.items()):
            needs = ", ".join(f"{curve.min_gpus} x {kind}" for kind, curve in phase.speedups.items())
            limits = ", ".join(f"{gpus:g} x {kind}" for kind, gpus in most.items())
            raise InputError(
                f"class {job_class.name}, phase {number}, needs at least {needs}; "
                + (f"at most {limits} can be rented" if limits else "no such node can be rented"),
                hint=f"Rentable GPU types: {', '.join(sorted(instance_types)) or 'none'}",
            )
