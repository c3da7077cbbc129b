"""A budget below the load: is the spend kept, how does the queue grow, and what does the job order gain?

    python benchmarks/best_effort.py [--hours 336] [--seeds 1]

Short and long jobs with exponential sizes arrive as a Poisson process for some weeks, under a fraction of the
least budget that runs them all. Nodes have one or eight GPUs and boot in 180 or 420 s. Each line shows the
spend over the budget; the mean number of jobs present (by Little's law this is the mean completion time of
all arrivals, times the arrival rate); the work left at the end beside the stated work; and stops. Two
variants run beside it: the same best effort with jobs in order of arrival, and the paced policy without a
best effort, which the daemon used before. `boa` refused this budget.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from boa_daemon.sim.wiring import PreparedRun, SimulationSettings, prepare, site_of
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.money.ledger import Ledger
from policies.answer import Allocation
from policies.model import Budget, GpuType, InstanceType, Job, JobClass, Money, Phase, Problem
from policies.protocols import Allocator
from policies.registry import shortfall_of_site
from policies.speedup import Amdahl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from load_scenarios import Scenario, a_trace_of

SHARES = (0.05, 0.3, 0.6, 0.9)
PROBLEM = Problem(
    gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=1.0),),
    classes=tuple(
        JobClass(
            name=name,
            arrivals_per_hour=per_hour,
            startup_hours=0.01,
            rescale_hours=0.01,
            phases=(
                Phase(
                    size_gpu_hours=size,
                    speedups={"gpu": Amdahl(parallel_fraction=parallel, max_gpus=32)},
                ),
            ),
        )
        for name, per_hour, size, parallel in (("short", 3.0, 0.5, 0.95), ("long", 0.4, 6.0, 0.99))
    ),
)


class Over(Exception):
    """Raised when the simulated hours are over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByArrival:
    """The same best effort with jobs served in the order of arrival; a running job goes on."""

    base: Allocator

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the base policy's answer for the other order."""
        found = self.base.allocate(jobs, now=now, money=money)
        first = {job.id: (job.width is None, job.arrived_at) for job in jobs}
        order = sorted(found.widths, key=lambda job: first[job])
        return replace(found, widths={job: found.widths[job] for job in order}, order=tuple(order))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a run."""

    spent: float
    present: float
    work_left: float
    stops: int


def figures_of(run: PreparedRun, hours: float) -> Figures:
    """Run for this many hours and return the figures."""
    begin, last, area = run.world.started_at, run.world.started_at, 0.0
    found: list[Figures] = []

    def look(decision: Decision) -> None:
        nonlocal last, area
        state = decision.state
        area += len(state.jobs) * (state.now - last) / 3600.0
        last, passed = state.now, (state.now - begin) / 3600.0
        if passed >= hours:
            found.append(
                Figures(
                    spent=Ledger.of(state).committed_usd / passed,
                    present=area / passed,
                    work_left=sum(job.job.remaining_gpu_hours for job in state.jobs.values()),
                    stops=run.world.jobs.totals.rescales,
                )
            )
            raise Over

    try:
        run.finish(look)
    except Over:
        return found[0]
    raise AssertionError("the trace is longer than the hours that are looked at")


def a_run(share: float, *, gpus: int, boot_seconds: float, hours: float, seed: int) -> SimulationSettings:
    """Return a run under a fraction of the least budget."""
    found = SimulationSettings(
        trace=a_trace_of(Scenario(name="steady"), PROBLEM.classes, hours=hours + 24.0, seed=seed),
        problem=PROBLEM,
        instance_types={
            "gpu": InstanceType(name="node", gpu_type="gpu", gpus=gpus, usd_per_hour=float(gpus))
        },
        budget=Budget(amount=1.0),
        policy="boa-paced",
        boot_seconds=boot_seconds,
        seed=seed,
        best_effort=True,
    )
    return replace(found, budget=Budget(amount=share * shortfall_of_site(site_of(found)).least_spend))


def line(share: float, *, gpus: int, boot_seconds: float, hours: float, seeds: int) -> str:
    """Run one case with all seeds and return its line: means over the seeds."""
    ratios, worst, present, arrival, left, stops, before = [], 0.0, [], [], [], [], []
    for seed in range(seeds):
        run_settings = a_run(share, gpus=gpus, boot_seconds=boot_seconds, hours=hours, seed=seed)
        budget = run_settings.budget.amount
        run = prepare(run_settings)
        own = figures_of(run, hours)
        fifo = prepare(run_settings)
        controller = replace(fifo.controller, allocator=ByArrival(base=fifo.controller.allocator))
        other = figures_of(replace(fifo, controller=controller), hours)
        paced = figures_of(prepare(replace(run_settings, best_effort=False)), hours)
        said = 0.0 if run.shortfall is None else run.shortfall.gpu_hours_per_hour * hours
        ratios.append(own.spent / budget)
        worst = max(worst, abs(own.spent / budget - 1.0))
        present.append(own.present)
        arrival.append(other.present)
        left.append(own.work_left / said)
        stops.append(own.stops)
        before.append(paced.spent / budget)
    return (
        f"{share:5.2f}  {gpus:4d}  {boot_seconds:5.0f}   {fmean(ratios):6.3f} {100.0 * worst:5.1f} %   "
        f"{fmean(present):8.1f} {fmean(arrival):8.1f}    {fmean(left):6.2f}   {fmean(stops):6.0f}    "
        f"{fmean(before):6.2f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=336.0)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    print("share  GPUs  boot s   spent / budget     jobs present, mean     work left  stops   before:")
    print("              of a node   mean   worst    best effort  by arrival  / said          spent / budget")
    for gpus, boot_seconds in ((1, 180.0), (8, 180.0), (8, 420.0)):
        for share in SHARES:
            print(
                line(share, gpus=gpus, boot_seconds=boot_seconds, hours=given.hours, seeds=given.seeds),
                flush=True,
            )


if __name__ == "__main__":
    main()
