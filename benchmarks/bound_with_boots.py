"""A lower bound for policies that boot whole nodes, beside the bound for single GPUs and BOA.

    python benchmarks/bound_with_boots.py [--only NAME] [--boots 0 180 420] [--factors 1.5 2]

The traces are those of the results page (`benchmarks/results.yaml`). BOA's budget is tuned on the trace; both
bounds are for the spend of that run.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from boa_daemon.lab.compare.study_file import load_study
from boa_daemon.sim.budget_tuning import tune_planning_budget
from boa_daemon.sim.wiring import prepare

RESULTS = Path(__file__).with_name("results.yaml")


def main() -> None:
    """Print a line for each trace, boot time and multiple of the load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="part of a trace's name")
    parser.add_argument("--boots", nargs="*", type=float, default=(0.0, 180.0, 420.0))
    parser.add_argument("--factors", nargs="*", type=float, default=(1.5, 2.0))
    arguments = parser.parse_args()
    print("trace | boot s | x load spent | one by one, min | with boots | BOA | BOA over either")
    for case in load_study(RESULTS).of_group("every").cases:
        settings = replace(case.comparison.shared, policy="boa", learns=False)
        if settings.boot_seconds != 180.0 or arguments.only not in case.trace:
            continue
        load = settings.budget.amount / float(case.budget.removeprefix("x"))
        for boot in arguments.boots:
            for factor in arguments.factors:
                budget = replace(settings.budget, amount=factor * load)
                run = prepare(tune_planning_budget(replace(settings, budget=budget, boot_seconds=boot)))
                result = run.with_boot_bound(run.finish())
                plain, mine = result.lower_bound_mean_jct_hours, result.mean_jct_hours
                knowing = result.lower_bound_with_boots_mean_jct_hours or plain
                print(
                    f"{case.trace} | {boot:g} | {result.mean_usd_per_hour / load:.2f}",
                    *(f"{60.0 * hours:.1f}" for hours in (plain, knowing, mine)),
                    f"{mine / plain:.2f}, {mine / knowing:.2f}",
                    sep=" | ",
                    flush=True,
                )


if __name__ == "__main__":
    main()
