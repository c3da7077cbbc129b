"""Ladders of widths for simple rules: hours and GPU-hours of a job at each width, ascending.

A rung is a width for some phases of a class, with hours and GPU-hours per job, overheads included, and the
GPU-hours of the work alone. If a ladder covers several phases that have no common width, its rungs are limits
instead, with each phase at its fastest width within the limit.

    symbol   here         meaning
    k        widths       GPUs at each rung, ascending
    T        hours        completion time of the phases, start-up and rescales included
    k T      gpu_hours    GPU-hours of the phases, overheads included

Cost: O(phases x widths).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np

from policies.model import JobClass, Phase, Width
from policies.speedup import Floats

Widths: TypeAlias = tuple[Width, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class WidthLadder:
    """The rungs of phases ``first``, ``first + 1``, ... of a class; arrays have shape (rungs,)."""

    class_name: str
    first: int
    widths: tuple[Widths, ...]
    hours: Floats
    gpu_hours: Floats
    work_gpu_hours: Floats

    @property
    def efficiencies(self) -> Floats:
        """GPU-hours of work at the lowest rung over those at each rung: T(1) / (k T(k))."""
        return np.asarray(self.work_gpu_hours[0] / self.work_gpu_hours)

    def fastest_at(self, efficiency: float) -> int:
        """Return the fastest rung with at least `efficiency`, the lowest of equals; else the lowest rung."""
        allowed = self.efficiencies >= efficiency
        allowed[0] = True
        return int(np.argmin(np.where(allowed, self.hours, np.inf)))

    def next_faster(self, rung: int) -> int | None:
        """Return the next higher rung that is faster, or None at the top."""
        faster = np.flatnonzero(self.hours[rung + 1 :] < self.hours[rung])
        return rung + 1 + int(faster[0]) if len(faster) else None


def whole_job_ladder(job_class: JobClass, gpu_type: str) -> WidthLadder:
    """Return the ladder of all phases together: one width for life if the phases have a common width."""
    curves = [phase.speedups[gpu_type] for phase in job_class.phases]
    shared = reduce(np.intersect1d, [curve.whole_widths() for curve in curves])
    if len(shared):
        plans = [(Width(gpu_type, int(gpus)),) * len(curves) for gpus in shared]
    else:
        limits = np.unique(np.concatenate([curve.whole_widths() for curve in curves])).tolist()
        plans = list(
            dict.fromkeys(
                tuple(fastest_within(phase, gpu_type, gpus) for phase in job_class.phases) for gpus in limits
            )
        )
    totals = np.array([job_hours(job_class, plan) for plan in plans])
    work = [_work_gpu_hours(job_class.phases, plan) for plan in plans]
    return WidthLadder(
        class_name=job_class.name,
        first=0,
        widths=tuple(plans),
        hours=totals[:, 0],
        gpu_hours=totals[:, 1],
        work_gpu_hours=np.array(work),
    )


def phase_ladder(job_class: JobClass, number: int, gpu_type: str) -> WidthLadder:
    """Return the ladder of one phase; that of the first phase includes the start-up."""
    phase = job_class.phases[number]
    curve = phase.speedups[gpu_type]
    gpus = curve.whole_widths()
    work = phase.size_gpu_hours / curve.speed_at(gpus)
    hours = work + (job_class.startup_hours if number == 0 else 0.0)
    return WidthLadder(
        class_name=job_class.name,
        first=number,
        widths=tuple((Width(gpu_type, int(k)),) for k in gpus),
        hours=hours,
        gpu_hours=hours * gpus,
        work_gpu_hours=work * gpus,
    )


def fastest_within(phase: Phase, gpu_type: str, gpus: int) -> Width:
    """Return the fastest allowed width of at most `gpus`, or the narrowest allowed if all are wider."""
    curve = phase.speedups[gpu_type]
    allowed = curve.whole_widths()
    fitting = allowed[allowed <= gpus]
    return Width(gpu_type, int(fitting[np.argmax(curve.speed_at(fitting))] if len(fitting) else allowed[0]))


def job_hours(job_class: JobClass, widths: Widths) -> tuple[float, float]:
    """Return (hours, GPU-hours) of one job at these widths, start-up and rescales included."""
    hours = gpu_hours = 0.0
    before: Width | None = None
    for phase, width in zip(job_class.phases, widths, strict=True):
        took = _phase_hours(phase, width)
        if before is None:
            took += job_class.startup_hours
        elif width != before:
            took += job_class.rescale_hours
        hours, gpu_hours, before = hours + took, gpu_hours + took * width.gpus, width
    return hours, gpu_hours


def _work_gpu_hours(phases: tuple[Phase, ...], widths: Widths) -> float:
    """Return the GPU-hours of the work, without overheads."""
    return sum(_phase_hours(phase, w) * w.gpus for phase, w in zip(phases, widths, strict=True))


def _phase_hours(phase: Phase, width: Width) -> float:
    """Return the hours of a phase's work at a width, without overheads."""
    return phase.size_gpu_hours / float(phase.speedups[width.gpu_type].speed_at(width.gpus))
