"""The gain of a warm pool of stopped instances: mean JCT at equal spend, with and without, boots of 180 s.

    python benchmarks/warm_pool.py [--hours 3] [--seeds 1] [--pools 0 4 16] [--factors 1] [--start-seconds 40]

The jobs are those of `tests/load_scenarios.py` on nodes with four GPUs. BOA's planning budget is tuned on
each trace so that the spend is the same each time; pool 0 is the baseline. A stopped node costs its disk,
holds no stock, and is ready `start-seconds` after it is started. `factors` are multiples of 60 USD/hour,
which is about twice the least cost of the load. Takes under a minute with the defaults.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from time import perf_counter

from boa_daemon.sim.budget_tuning import tune_planning_budget
from boa_daemon.sim.wiring import prepare
from policies.model import Budget

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from load_scenarios import BUDGET, SCENARIOS, settings_of


def main() -> None:
    """Print a line for each budget and pool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--pools", type=int, nargs="*", default=(0, 4, 16))
    parser.add_argument("--factors", type=float, nargs="*", default=(1.0,))
    parser.add_argument("--boot-seconds", type=float, default=180.0)
    parser.add_argument("--start-seconds", type=float, default=40.0)
    arguments = parser.parse_args()
    began = perf_counter()
    print("budget USD/h | pool | spent USD/h | mean JCT min | change | of launches started | disks USD/h")
    for factor in arguments.factors:
        budget = Budget(amount=factor * BUDGET.amount)
        plain = None
        for pool in arguments.pools:
            runs = [
                prepare(
                    tune_planning_budget(
                        replace(
                            settings_of(SCENARIOS[0], hours=arguments.hours, seed=seed + 1),
                            budget=budget,
                            boot_seconds=arguments.boot_seconds,
                            warm_pool_nodes=pool,
                            start_seconds=arguments.start_seconds,
                        )
                    )
                )
                for seed in range(arguments.seeds)
            ]
            results = [run.finish() for run in runs]
            minutes = 60.0 * fmean(result.mean_jct_hours for result in results)
            plain = minutes if plain is None else plain
            disks = fmean(
                result.node_hours_stopped * run.world.cloud.stopped.disk_usd_per_hour / result.simulated_hours
                for run, result in zip(runs, results, strict=True)
            )
            started = sum(result.nodes_started for result in results)
            spent = fmean(result.mean_usd_per_hour for result in results)
            print(
                f"{budget.amount:g} | {pool} | {spent:.1f} | {minutes:.2f}",
                f"{100.0 * (minutes / plain - 1.0):+.1f} %",
                f"{100.0 * started / sum(result.nodes_launched for result in results):.0f} %",
                f"{disks:.2f}",
                sep=" | ",
                flush=True,
            )
    print(f"{perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
