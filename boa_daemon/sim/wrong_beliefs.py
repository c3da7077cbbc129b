"""The wrong beliefs of a policy: rates, sizes and speed-ups that are off by known factors.

The world keeps the truth. The policy is built from the believed classes and is told wrong sizes of jobs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random

from boa_daemon.sim.world_settings import WrongBeliefs, of_type
from policies.model import JobClass, JobId, Phase, Problem
from policies.speedup import SpeedupCurve, Table


def believed_problem(problem: Problem, beliefs: WrongBeliefs) -> Problem:
    """Return the problem as the policy sees it; the same object if the beliefs are true."""
    if not (beliefs.rates or beliefs.sizes or beliefs.speedup_exponents):
        return problem
    return replace(problem, classes=tuple(_believed_class(c, beliefs) for c in problem.classes))


def wrong_size_factors(
    beliefs: WrongBeliefs, class_name: str, job: JobId, *, scale: float = 1.0, seed: int
) -> tuple[float, float]:
    """Return the error factors on the remaining work and the scale of a job that ticks are told."""
    error = 1.0 if beliefs.tells_scales else 1.0 / scale
    if beliefs.size_spread:
        error *= math.exp(Random(f"{seed}/belief/{job}").gauss(0.0, beliefs.size_spread))
    return _factor(beliefs.sizes, class_name) * error, error


def _believed_class(job_class: JobClass, beliefs: WrongBeliefs) -> JobClass:
    """Return a class as it is believed to be."""
    size = _factor(beliefs.sizes, job_class.name)
    exponent = _factor(beliefs.speedup_exponents, job_class.name)
    phases = tuple(
        Phase(
            size_gpu_hours=phase.size_gpu_hours * size,
            speedups={gpu: _bent(curve, exponent) for gpu, curve in phase.speedups.items()},
        )
        for phase in job_class.phases
    )
    rate = job_class.arrivals_per_hour * _factor(beliefs.rates, job_class.name)
    return replace(job_class, phases=phases, arrivals_per_hour=rate)


def _bent(curve: SpeedupCurve, exponent: float) -> SpeedupCurve:
    """Return the speed-up over the narrowest width raised to a power, as a table."""
    if exponent == 1.0:
        return curve
    widths = tuple(int(width) for width in curve.whole_widths())
    speeds = [float(curve.speed_at(width)) for width in widths]
    bent = tuple(speeds[0] * (speed / speeds[0]) ** exponent for speed in speeds)
    return Table(gpus=widths, speeds=bent)


def _factor(factors: Mapping[str, float], class_name: str) -> float:
    """Return the factor of a class."""
    return of_type(factors, class_name) or 1.0
