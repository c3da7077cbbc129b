"""Classes from tables of measured steps per second: Gavel's and ElasticFlow's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from boa_daemon.traces.workload import RESTART_SECONDS, Options
from policies.model import JobClass, Phase
from policies.speedup import Table

StepsPerSecond: TypeAlias = dict[str, dict[int, float]]
"""GPU type -> GPUs -> steps per second."""


def class_from_step_rates(
    name: str, steps: float, by_type: Mapping[str, Mapping[int, float]], options: Options
) -> JobClass:
    """Return the class whose mean job takes `steps`; one GPU of the first type is the unit of work."""
    one_gpu = next(iter(by_type.values()))[1]
    speedups = {
        gpu_type: Table(gpus=tuple(rates), speeds=tuple(rate / one_gpu for rate in rates.values()))
        for gpu_type, rates in by_type.items()
    }
    return JobClass(
        name=name,
        phases=(Phase(size_gpu_hours=steps / one_gpu / 3600.0, speedups=speedups),),
        startup_hours=options.startup_hours(RESTART_SECONDS),
        rescale_hours=options.rescale_hours(RESTART_SECONDS),
    )
