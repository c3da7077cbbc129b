"""What foresight is worth: the default policy beside a schedule that knows every arrival, for the same money.

    python benchmarks/clairvoyant.py [--only NAME] [--group every] [--plans 24]
        [--rounds 8] [--tries 200] [--learn]

With foresight no job waits for a boot: each node is asked for one boot before it is needed. So a schedule of
nodes without boots is one with boots if its boots are paid for, and a node whose GPUs are needed again before
a boot's time has passed is kept. Two searches look for one that costs at most what the default spent:

* `simulated`: runs of the policy `boa`, told the truth, in a world without boots, over planning budgets.
* `job by job`: a few jobs at a time are planned anew beside the others (`foresight.py`), for traces with
  boots and one type of nodes. GPUs may be on any nodes, as in the bound: no job moves as a node ends.

The better of the two is what somebody found and no bound: the best of all schedules is between it and
`bound`. As in the bound no node is ready before the first arrival and one boot; jobs that come sooner wait.
The bound has finer steps here than in `boa simulate` (`BOUND`), for twice the time.

The traces are those of the results page (`benchmarks/results.yaml`), the first order of their jobs.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np
from foresight import Workload, best_for

from boa_daemon.lab.compare.study_file import load_study
from boa_daemon.sim.bounds.boot_bound import NodeSupply, SearchEffort
from boa_daemon.sim.bounds.stint_paths import Resolution
from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.units import SECONDS_PER_HOUR
from policies.errors import InfeasibleBudget
from policies.model import InstanceType

RESULTS = Path(__file__).with_name("results.yaml")
REFINEMENTS = 6
"""Further planning budgets, each halving the gap above the best."""
BOUND = SearchEffort(
    final=Resolution(steps_per_overhead=60.0, most_steps=90_000, units_per_overhead=15.0, most_units=1_800)
)
USUAL_ELASTICITY = 1.8
"""By what per cent waiting falls for a per cent more money, to begin with."""


class NodeLives:
    """The time from launch to end of every node of a run, by instance type."""

    def __init__(self) -> None:
        """Begin before the first tick."""
        self._began: dict[str, tuple[InstanceType, float]] = {}
        self.lives: dict[InstanceType, list[tuple[float, float]]] = defaultdict(list)

    def see(self, decision: Decision) -> None:
        """Note the nodes of a tick: those that are new, and those that are gone."""
        state = decision.state
        for name in self._began.keys() - state.nodes.keys():
            kind, began = self._began.pop(name)
            self.lives[kind].append((began, state.now))
        for node in state.nodes.values():
            self._began.setdefault(node.id, (node.instance_type, node.launched_at))

    def finish(self, now: float) -> None:
        """End the nodes that are left."""
        for kind, began in self._began.values():
            self.lives[kind].append((began, now))
        self._began.clear()

    def usd_of_boots(self, boot_seconds: float) -> float:
        """Return what it costs to have every node in time: boots, or idle time between two uses if less."""
        usd = 0.0
        for kind, lives in self.lives.items():
            idle_since: list[float] = []
            # A node that ends at an instant may serve a launch at the same instant.
            events = sorted([(end, 0) for _, end in lives] + [(begin, 1) for begin, _ in lives])
            for at, begins in events:
                if not begins:
                    idle_since.append(at)
                    continue
                gap = at - idle_since.pop() if idle_since else boot_seconds
                usd += min(gap, boot_seconds) / SECONDS_PER_HOUR * kind.usd_per_hour
        return usd


@dataclass(frozen=True, slots=True)
class Foresight:
    """A schedule that knows every arrival: its mean JCT and its money, boots included."""

    mean_jct_hours: float
    spent_usd: float


def foresee(settings: SimulationSettings, planned: float) -> Foresight | None:
    """Return the schedule of one planning budget; None if it is too small for the load."""
    budget = replace(settings.budget, amount=planned)
    jobs = settings.trace.jobs
    opens_at = min(job.arrived_at_seconds for job in jobs) + settings.boot_seconds
    later = [replace(job, arrived_at_seconds=max(job.arrived_at_seconds, opens_at)) for job in jobs]
    waits = [new.arrived_at_seconds - job.arrived_at_seconds for new, job in zip(later, jobs, strict=True)]
    without = replace(
        settings,
        trace=replace(settings.trace, jobs=tuple(later)),
        policy="boa",
        learns=False,
        boot_seconds=0.0,
        planning_budget=budget,
    )
    try:
        run = prepare(without)
    except InfeasibleBudget:
        return None
    lives = NodeLives()
    result = run.finish(lives.see)
    lives.finish(run.world.clock.now())
    return Foresight(
        result.mean_jct_hours + fmean(waits) / SECONDS_PER_HOUR,
        result.spent_usd + lives.usd_of_boots(settings.boot_seconds),
    )


def search(settings: SimulationSettings, most_usd: float, plans: int) -> Foresight | None:
    """Return the schedule with the least mean JCT for at most so much money; None if none was found."""
    amount = settings.budget.amount
    tried = {
        planned: foresee(settings, planned) for planned in np.geomspace(0.4 * amount, 2.0 * amount, plans)
    }
    for _ in range(REFINEMENTS):
        found = {
            planned: one for planned, one in tried.items() if one is not None and one.spent_usd <= most_usd
        }
        if not found:
            return None
        best = min(found, key=lambda planned: found[planned].mean_jct_hours)
        above = min((planned for planned in tried if planned > best), default=best)
        if above == best:
            break
        middle = 0.5 * (best + above)
        tried[middle] = foresee(settings, middle)
    within = [one for one in tried.values() if one is not None and one.spent_usd <= most_usd]
    return min(within, key=lambda one: one.mean_jct_hours)


def job_by_job(
    settings: SimulationSettings, most_usd: float, hours: float, *, rounds: int, tries: int
) -> Foresight | None:
    """Return the schedule planned a few jobs at a time; None if it was not looked for, or none was found.

    `hours` is about its mean JCT, to begin with.
    """
    if not settings.boot_seconds or len(settings.instance_types) > 1 or settings.max_nodes is not None:
        return None
    supply = NodeSupply(
        instance_types=settings.instance_types, boot_hours=settings.boot_seconds / SECONDS_PER_HOUR
    )
    workload = Workload.of(settings.trace, settings.problem, supply)
    per_usd = USUAL_ELASTICITY * hours * len(settings.trace.jobs) / most_usd
    found = best_for(workload, most_usd, per_usd, rounds=rounds, tries=tries)
    return None if found is None else Foresight(found.mean_jct_hours, found.spent_usd)


def main() -> None:
    """Print a line for each trace: the bound, the schedule with foresight, and the default policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="part of a trace's name")
    parser.add_argument("--group", default="every", help="a group of traces")
    parser.add_argument("--plans", type=int, default=24, help="planning budgets to try")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of planning anew; 0: none")
    parser.add_argument("--tries", type=int, default=200, help="how often a round plans some jobs anew")
    parser.add_argument("--learn", action="store_true", help="the default learns, as a daemon does")
    arguments = parser.parse_args()
    print(
        "trace | bound, min | simulated with foresight | job by job | default | default over foresight "
        "| foresight over bound",
        flush=True,
    )
    ratios = []
    for case in load_study(RESULTS).of_group(arguments.group).cases:
        if arguments.only not in case.trace or case.draw:
            continue
        settings = replace(case.comparison.shared, policy="boa-paced", learns=arguments.learn)
        run = prepare(settings)
        result = run.with_boot_bound(run.finish(), effort=BOUND)
        bound = result.lower_bound_with_boots_mean_jct_hours or result.lower_bound_mean_jct_hours
        spent = result.spent_usd
        by_runs = search(settings, spent, arguments.plans)
        about = result.mean_jct_hours if by_runs is None else by_runs.mean_jct_hours
        by_jobs = job_by_job(settings, spent, about, rounds=arguments.rounds, tries=arguments.tries)
        searched = by_runs, by_jobs
        best = min((one.mean_jct_hours for one in searched if one is not None), default=None)
        if best is None:
            print(f"{case.trace} | {60.0 * bound:.1f} | no schedule for this money", flush=True)
            continue
        mine = result.mean_jct_hours
        ratios.append((mine / best, best / bound))
        print(
            case.trace,
            f"{60.0 * bound:.1f}",
            *("-" if one is None else f"{60.0 * one.mean_jct_hours:.1f}" for one in searched),
            f"{60.0 * mine:.1f}",
            f"{mine / best:.3f}",
            f"{best / bound:.3f}",
            sep=" | ",
            flush=True,
        )
    if ratios:
        over, above = np.median(np.array(ratios), axis=0)
        print(f"median of {len(ratios)}: default over foresight {over:.3f}, foresight over bound {above:.3f}")


if __name__ == "__main__":
    main()
