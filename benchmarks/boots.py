"""The default policy at several boot times, with and without a warm pool: waiting, spend, and the bound.

    python benchmarks/boots.py [--only NAME] [--boots 0 180 420] [--pools 0 8] [--orders 5] [--told] [--bound]

The traces are those of the results page (`benchmarks/results.yaml`), each in several orders of its jobs, with
money for 1.5 times the load. The daemon learns unless `--told`. A start of a stopped node takes a third of
a boot.
The share of the budget that is spent stands beside the waiting, because less money is more waiting; the last
column is the elasticity between the two, from runs at 1.35 and 1.7 times the load. `--bound` adds the waiting
over the bound with boots (that of a start, with a pool), which takes about 20 s for each order.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from math import log
from pathlib import Path
from statistics import fmean

from boa_daemon.lab.compare.cells import reordered
from boa_daemon.lab.compare.study_file import load_study
from boa_daemon.sim.wiring import SimulationSettings, prepare, simulate

RESULTS = Path(__file__).with_name("results.yaml")
START_SHARE = 1.0 / 3.0
BELOW, ABOVE = 0.9, 1.7 / 1.5


def elasticity(settings: SimulationSettings) -> float:
    """Return by what per cent waiting falls for a per cent more money."""
    budget = settings.budget
    less, more = (
        simulate(replace(settings, budget=replace(budget, amount=part * budget.amount)))
        for part in (BELOW, ABOVE)
    )
    return -log(more.mean_jct_hours / less.mean_jct_hours) / log(
        more.mean_usd_per_hour / less.mean_usd_per_hour
    )


def main() -> None:
    """Print a line for each trace, boot time and pool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="part of a trace's name")
    parser.add_argument("--boots", nargs="*", type=float, default=(0.0, 180.0, 420.0))
    parser.add_argument("--pools", nargs="*", type=int, default=(0,))
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--told", action="store_true")
    parser.add_argument("--bound", action="store_true")
    arguments = parser.parse_args()
    print(
        "trace | boot s | pool | waits, min | spends of the budget | launches, of them starts | elasticity "
        "| over bound"
    )
    for case in load_study(RESULTS).of_group("every").cases:
        shared = case.comparison.shared
        if shared.boot_seconds != 180.0 or arguments.only not in case.trace:
            continue
        plain = replace(shared, policy="boa-paced", learns=not arguments.told)
        for boot in arguments.boots:
            for pool in arguments.pools if boot else (0,):
                base = replace(
                    plain, boot_seconds=boot, warm_pool_nodes=pool, start_seconds=START_SHARE * boot
                )
                orders = [
                    replace(base, trace=reordered(base.trace, seed), seed=seed)
                    for seed in range(arguments.orders)
                ]
                runs = [prepare(one) for one in orders]
                results = [run.finish() for run in runs]
                over = "-"
                if arguments.bound:
                    bounds = [run.with_boot_bound(one) for run, one in zip(runs, results, strict=True)]
                    ratios = [
                        one.mean_jct_hours / one.lower_bound_with_boots_mean_jct_hours
                        for one in bounds
                        if one.lower_bound_with_boots_mean_jct_hours
                    ]
                    over = f"{fmean(ratios):.2f}" if ratios else "-"
                spent = fmean(one.mean_usd_per_hour for one in results) / base.budget.amount
                print(
                    f"{case.trace} | {boot:g} | {pool}",
                    f"{60.0 * fmean(one.mean_jct_hours for one in results):.1f}",
                    f"{spent:.2f}",
                    f"{fmean(one.nodes_launched for one in results):.0f}, "
                    f"{fmean(one.nodes_started for one in results):.0f}",
                    f"{fmean(map(elasticity, orders)):.2f}",
                    over,
                    sep=" | ",
                    flush=True,
                )


if __name__ == "__main__":
    main()
