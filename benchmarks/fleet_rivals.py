"""Rivals on a fixed fleet, and the default policy, for the same money.

    python benchmarks/fleet_rivals.py [--only NAME] [--policies elastic-srpt gittins ...]

The traces are those of the results page (`benchmarks/results.yaml`) with boots of 180 s, in one order of
their jobs. The default policy knows the true figures here; each rival's fleet is tuned to its spend, as on
the page.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from boa_daemon.lab.compare.cells import Cell
from boa_daemon.lab.compare.study_file import load_study
from boa_daemon.lab.compare.tune import run_cell
from boa_daemon.tasks.tasks import Tasks
from boa_daemon.tasks.workers import InlineWorkers

RESULTS = Path(__file__).with_name("results.yaml")
POLICIES = ("srpt", "elastic-srpt", "gittins", "tiresias")


def main() -> None:
    """Print the waiting of each rival over that of the default policy at its spend, by trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="part of a trace's name")
    parser.add_argument("--policies", nargs="*", default=POLICIES)
    words = parser.parse_args()
    print("trace | default, min", *words.policies, sep=" | ")
    with Tasks(InlineWorkers()) as tasks:
        for case in load_study(RESULTS).of_group("every").cases:
            comparison = case.comparison
            if comparison.shared.boot_seconds != 180.0 or words.only not in case.trace:
                continue
            comparison = replace(
                comparison,
                shared=replace(comparison.shared, learns=False),
                bound_effort=None,
                seeds=1,
            )
            (reference,) = comparison.references()
            ours = run_cell(comparison, reference, tasks)
            figures = []
            for policy in words.policies:
                cell = Cell(policy=policy, budget=reference.budget, seed=0, target=ours.mean_usd_per_hour)
                figures.append(
                    f"{run_cell(comparison, cell, tasks).paid_jct_hours / ours.mean_jct_hours:.2f}"
                )
            print(case.trace, f"{60.0 * ours.mean_jct_hours:.1f}", *figures, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
