"""The timeline of a run: GPUs rented and used, burn rate and queue over time; and the JCT of each job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.actions import LaunchNodes, StartJob, TerminateNode
from boa_daemon.units import SECONDS_PER_HOUR
from policies.speedup import Floats

Series: TypeAlias = Annotated[
    Floats, PlainValidator(np.array), PlainSerializer(lambda values: values.tolist())
]
"""An array that JSON stores as a list."""
COLUMNS = 240
"""Number of intervals of a timeline; values are averages within one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeline:
    """Averages over equal intervals of a run; `hours` are from its start, `jct_hours` is ascending."""

    hours: Series
    gpus_rented: Series
    gpus_used: Series
    usd_per_hour: Series
    queue: Series
    jct_hours: Series


def record(settings: SimulationSettings) -> RunTimeline:
    """Run a simulation, and return its timeline."""
    run = prepare(settings)
    samples: list[tuple[float, ...]] = []

    def look(decision: Decision) -> None:
        """Record the state after this tick."""
        samples.append(_after(decision))

    run.finish(look)
    ends_at = run.world.clock.now()
    began_at = run.world.started_at
    values = np.array(samples)
    edges = np.linspace(began_at, max(ends_at, began_at + 1.0), COLUMNS + 1)
    averages = [_averages(values[:, 0], values[:, column], edges) for column in range(1, 5)]
    return RunTimeline(
        hours=(edges[1:] + edges[:-1] - 2.0 * began_at) / (2.0 * SECONDS_PER_HOUR),
        gpus_rented=averages[0],
        gpus_used=averages[1],
        usd_per_hour=averages[2],
        queue=averages[3],
        jct_hours=np.sort(np.array(run.world.jobs.totals.jct_seconds)) / SECONDS_PER_HOUR,
    )


def _after(decision: Decision) -> tuple[float, ...]:
    """Return the instant, GPUs rented and used, burn rate and queue, after the tick's actions."""
    state = decision.state
    kinds = {node.id: node.instance_type for node in state.nodes.values()}
    rented = sum(kind.gpus for kind in kinds.values())
    used = sum(len(job.slots) for job in state.jobs.values())
    rate, waiting = state.usd_per_hour, sum(not job.is_running for job in state.jobs.values())
    for action in decision.actions:
        if isinstance(action, LaunchNodes):
            rented += action.count * action.instance_type.gpus
            rate += action.count * action.instance_type.usd_per_hour
        elif isinstance(action, TerminateNode):
            kind = kinds[action.node]
            rented, rate = rented - kind.gpus, rate - kind.usd_per_hour
        elif isinstance(action, StartJob):
            used, waiting = used + len(action.slots), waiting - 1
        else:
            used, waiting = used - len(state.jobs[action.job].slots), waiting + 1
    return state.now, rented, used, rate, waiting


def _averages(times: Floats, values: Floats, edges: Floats) -> Floats:
    """Return the averages between edges of a step function with `values` from `times` on."""
    areas = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    return np.asarray(np.diff(np.interp(edges, times, areas)) / np.diff(edges))
