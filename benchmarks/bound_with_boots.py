"""A lower bound for policies that boot whole nodes, beside the bound for single GPUs and BOA.

    python benchmarks/bound_with_boots.py DATA [--only NAME] [--boots 0 180 420] [--factors 1.5 2]

DATA is the folder of `benchmarks/policies`. BOA's budget is tuned on the trace as on the results page; both
bounds are for the spend of that run. Times are minutes if jobs have several phases, else seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent / "policies"))

from scenarios import Scenario, scenarios
from work import settings_of, tasks_of

from boa_daemon.sim.budget_tuning import tune_planning_budget
from boa_daemon.sim.wiring import prepare
from policies.model import Budget

BOOTS, FACTORS = (0.0, 180.0, 420.0), (1.5, 2.0)


def workloads(only: str) -> Iterator[Scenario]:
    """Yield each workload of the results page, on demand, with one order of its jobs."""
    for scenario in scenarios(quick=False):
        is_first = scenario.factor == FACTORS[0] and scenario.boot_seconds and not scenario.on_spot
        if is_first and "orders" not in scenario.name and only in scenario.name:
            yield replace(scenario, seeds=1)


def main() -> None:
    """Print a line for each workload, boot time and multiple of the load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--only", default="", help="part of a workload's name")
    parser.add_argument("--boots", nargs="*", type=float, default=BOOTS)
    parser.add_argument("--factors", nargs="*", type=float, default=FACTORS)
    arguments = parser.parse_args()
    print("workload | boot s | x load spent | one by one, min | with boots | BOA | BOA over either")
    with TemporaryDirectory() as scratch:
        for scenario in workloads(arguments.only):
            for number, task in enumerate(tasks_of(scenario, arguments.data, Path(scratch))):
                settings, load = settings_of(task)
                name = f"{scenario.name.split(', 1.5')[0]} ({number + 1})"
                for boot in arguments.boots:
                    for factor in arguments.factors:
                        budget = Budget(amount=factor * load, unit=settings.budget.unit)
                        run = prepare(
                            tune_planning_budget(replace(settings, budget=budget, boot_seconds=boot))
                        )
                        result = run.with_boot_bound(run.finish())
                        plain, mine = result.lower_bound_mean_jct_hours, result.mean_jct_hours
                        knowing = result.lower_bound_with_boots_mean_jct_hours or plain
                        print(
                            f"{name} | {boot:g} | {result.mean_usd_per_hour / load:.2f}",
                            *(f"{60.0 * hours:.1f}" for hours in (plain, knowing, mine)),
                            f"{mine / plain:.2f}, {mine / knowing:.2f}",
                            sep=" | ",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
