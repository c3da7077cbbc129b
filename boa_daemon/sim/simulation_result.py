"""The result of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from boa_daemon.sim.bounds.lower_bound import lower_bounds_hours
from boa_daemon.sim.world import SimulatedWorld
from boa_daemon.tick.room.shortfall import shortfall_document
from boa_daemon.traces.rates import work_of
from boa_daemon.units import SECONDS_PER_HOUR, dollars
from policies.model import Budget, Problem
from policies.online.best_effort import Shortfall
from policies.registry import BuiltPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The figures of one run. With a budget in GPUs, money is GPU-hours at price 1.

    `mean_usd_per_hour` is all spending, the tail included, over the hours from first to last arrival.
    `mean_usd_per_simulated_hour` is the same over the hours until the last job left; a best effort keeps this
    one to the budget, because jobs are left when the last one has come. `status` says whether the budget pays
    for the load, or a best effort was made; `shortfall` then says by how much the budget falls short.
    `pacing_loss_fraction` is the part of the waiting that the promise about money costs by the frontier, on
    the work of each hour of the trace, if the policy keeps one. Rented GPU-hours are the sum of those used,
    lost (work that a failure undid), booting, idle, and in overhead (start-up, rescale and checkpoints).
    `interruptions` are nodes that the cloud took back; `launch_refusals` are launches not served in full, by
    reason. `lower_bound_mean_jct_hours` is the lower bound for any policy on these jobs with the money spent,
    `lower_bound_at_budget_mean_jct_hours` with the money allowed. `lower_bound_with_boots_mean_jct_hours`
    also includes boots, whole nodes and the cap; None unless requested.
    """

    policy: str
    status: Literal["planned", "best-effort"]
    jobs: int
    finished: int
    mean_jct_hours: float
    p50_jct_hours: float
    p95_jct_hours: float
    p99_jct_hours: float
    budget_usd_per_hour: float
    budget_gpus: float | None
    mean_usd_per_hour: float
    mean_usd_per_simulated_hour: float
    spent_usd: float
    lower_bound_mean_jct_hours: float
    lower_bound_at_budget_mean_jct_hours: float
    planned_mean_jct_hours: float | None
    planned_usd_per_hour: float | None
    pacing_loss_fraction: float | None
    gpu_hours_rented: float
    gpu_hours_used: float
    gpu_hours_booting: float
    gpu_hours_overhead: float
    gpu_hours_idle: float
    gpu_hours_lost: float
    rescales: int
    restarts: int
    interruptions: int
    node_failures: int
    job_failures: int
    launch_refusals: dict[str, int]
    nodes_launched: int
    most_nodes: int
    arrival_window_hours: float
    simulated_hours: float
    wall_seconds: float
    ticks: int
    shortfall: Shortfall | None = None
    lower_bound_with_boots_mean_jct_hours: float | None = None
    nodes_started: int = 0
    node_hours_stopped: float = 0.0

    def to_document(self) -> dict[str, object]:
        """Return the result as a JSON document."""
        answer = asdict(self)
        del answer["shortfall"]
        return answer | {"best_effort": shortfall_document(self.shortfall)}


def summarize_run(
    world: SimulatedWorld,
    *,
    policy: str,
    budget: Budget,
    problem: Problem,
    built: BuiltPolicy,
    wall_seconds: float,
    shortfall: Shortfall | None = None,
) -> Simulation:
    """Return the figures of a finished run."""
    trace, meter, totals = world.workload.trace, world.cloud.meter, world.jobs.totals
    jct_hours = np.array(totals.jct_seconds) / SECONDS_PER_HOUR
    p50, p95, p99 = (float(value) for value in np.percentile(jct_hours, (50, 95, 99)))
    spent, window = dollars(meter.micro_dollars), trace.window_hours
    simulated_hours = (world.clock.now() - world.started_at) / SECONDS_PER_HOUR
    hours = {
        "rented": meter.rented_gpu_seconds / SECONDS_PER_HOUR,
        "used": totals.used_gpu_seconds / SECONDS_PER_HOUR,
        "booting": meter.booting_gpu_seconds / SECONDS_PER_HOUR,
        "overhead": totals.overhead_gpu_seconds / SECONDS_PER_HOUR,
        "lost": totals.lost_gpu_seconds / SECONDS_PER_HOUR,
    }
    busy = hours["used"] + hours["booting"] + hours["overhead"] + hours["lost"]
    # A single arrival has no window; the length of the run is used instead.
    paid_hours = window or simulated_hours
    moneys = meter.most_usd, budget.amount * paid_hours
    for_spent, for_budget = lower_bounds_hours(trace, problem, moneys)
    return Simulation(
        policy=policy,
        status="planned" if shortfall is None else "best-effort",
        jobs=world.workload.jobs,
        finished=world.finished,
        mean_jct_hours=float(jct_hours.mean()),
        p50_jct_hours=p50,
        p95_jct_hours=p95,
        p99_jct_hours=p99,
        budget_usd_per_hour=budget.amount,
        budget_gpus=budget.amount if budget.unit == "gpus" else None,
        mean_usd_per_hour=spent / paid_hours,
        mean_usd_per_simulated_hour=spent / simulated_hours,
        spent_usd=spent,
        lower_bound_mean_jct_hours=for_spent,
        lower_bound_at_budget_mean_jct_hours=for_budget,
        planned_mean_jct_hours=built.planned_mean_jct_hours,
        planned_usd_per_hour=built.planned_spend,
        pacing_loss_fraction=None if built.pace is None else built.pace.loss(work_of(trace, problem.classes)),
        gpu_hours_rented=hours["rented"],
        gpu_hours_used=hours["used"],
        gpu_hours_booting=hours["booting"],
        gpu_hours_overhead=hours["overhead"],
        gpu_hours_idle=max(0.0, hours["rented"] - busy),
        gpu_hours_lost=hours["lost"],
        rescales=totals.rescales,
        restarts=totals.restarts,
        interruptions=meter.interruptions,
        node_failures=meter.node_failures,
        job_failures=totals.job_failures,
        launch_refusals=dict(sorted(meter.refusals.items())),
        nodes_launched=meter.launches,
        most_nodes=meter.most_nodes,
        arrival_window_hours=window,
        simulated_hours=simulated_hours,
        wall_seconds=wall_seconds,
        ticks=world.ticks,
        shortfall=shortfall,
        nodes_started=meter.starts,
        node_hours_stopped=meter.stopped_node_seconds / SECONDS_PER_HOUR,
    )
