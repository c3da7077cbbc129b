"""Idle nodes of one GPU: keeping one idle node fewer because of lent GPUs, and keeping all of them.

    python benchmarks/one_gpu_nodes.py [--seeds 6] [--hours 24]

Classes and arrivals are those of `benchmarks/pacing.py`, on nodes of one GPU that boot in 180 s. For each
budget: spend (USD/h) and mean JCT (minutes) of the fixed plan, which keeps the idle nodes that
`policies.online.node_prices` asks for (now), and of the same plan with one idle node fewer (before). Means
over the seeds. The last column is the JCT now over that before at equal spend, read off earlier runs at
nearby budgets.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import SimulationSettings, prepare
from policies.model import Budget, InstanceType
from policies.online.node_prices import WholeNodePrices
from policies.optimum.boa import BudgetOptimal

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from load_scenarios import SCENARIOS, settings_of

NODE = InstanceType(name="gpu-x1", gpu_type="gpu", gpus=1, usd_per_hour=1.0)
BUDGETS = (34.0, 40.0, 50.0, 60.0)
AROUND = (0.94, 0.97, 1.0, 1.03, 1.06)


def a_run(settings: SimulationSettings, *, gpus_that_lend: int) -> Simulation:
    """Run the fixed plan; its nodes count as having `gpus_that_lend` GPUs when idle nodes are kept."""
    run = prepare(settings)
    allocator = run.controller.allocator
    if not isinstance(allocator, BudgetOptimal) or not isinstance(allocator.nodes, WholeNodePrices):
        raise TypeError(f"the plan does not follow with whole nodes: {type(allocator).__name__}")
    nodes = replace(allocator.nodes, node_gpus={"gpu": gpus_that_lend}, _holds={})
    allocator = replace(allocator, nodes=nodes)
    return replace(run, controller=replace(run.controller, allocator=allocator)).finish()


def means(budget: float, *, gpus_that_lend: int, seeds: int, hours: float) -> tuple[float, float]:
    """Return (USD per hour, mean JCT in minutes), means over the seeds."""
    runs = []
    for seed in range(1, seeds + 1):
        settings = settings_of(SCENARIOS[0], hours=hours, seed=seed)
        settings = replace(settings, instance_types={"gpu": NODE}, budget=Budget(amount=budget))
        runs.append(a_run(settings, gpus_that_lend=gpus_that_lend))
    spend = float(np.mean([run.mean_usd_per_hour for run in runs]))
    return spend, 60.0 * float(np.mean([run.mean_jct_hours for run in runs]))


def main() -> None:
    """Print a row for each budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--hours", type=float, default=24.0)
    words = parser.parse_args()
    print("budget   one node fewer (before)   all of them      JCT at equal spend, now over before")
    for budget in BUDGETS:
        now = means(budget, gpus_that_lend=1, seeds=words.seeds, hours=words.hours)
        before = [
            means(budget * part, gpus_that_lend=2, seeds=words.seeds, hours=words.hours) for part in AROUND
        ]
        spends, waits = np.array(sorted(before)).T
        equal = float(np.interp(now[0], spends, waits))
        old = before[AROUND.index(1.0)]
        print(
            f"{budget:6.0f}   {old[0]:6.2f} {old[1]:7.2f} min     {now[0]:6.2f} {now[1]:7.2f} min"
            f"   {now[1] / equal:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
