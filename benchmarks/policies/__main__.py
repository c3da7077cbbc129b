"""Policies side by side on public workloads, each tuned to spend what BOA spends: the figures of results.md.

    python benchmarks/policies DATA [--quick] [--only NAME] [--processes N] [--out DIR]

DATA holds ``pollux``, ``gavel``, ``microsoft-itp`` and ``elasticflow`` as docs/benchmarks.md says. A budget
is a multiple of the load, what the work costs at its cheapest width without any overhead. Ratios are a
rival's mean JCT over BOA's for the same money, paired by trace: the geometric mean, and its 95 % interval in
brackets. Finished runs are kept in --out, and the same command goes on where it stopped; after a change of
the code, take another folder.

A folder and no file: a ``policies.py`` in here would hide the package of that name from every script beside
it.
"""

from __future__ import annotations

import argparse
import multiprocessing
from pathlib import Path

from checks import closed_form, published
from scenarios import scenarios
from tables import show
from work import Outcome, run_task, tasks_of


def main() -> None:
    """Print every scenario."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--quick", action="store_true", help="fewer traces, budgets and rivals")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("build/policies"), help="keeps finished runs")
    arguments = parser.parse_args()
    chosen = [s for s in scenarios(quick=arguments.quick) if arguments.only in s.name]
    tasks = [task for s in chosen for task in tasks_of(s, arguments.data, arguments.out)]
    if not arguments.only:
        closed_form(seeds=4 if arguments.quick else 10, jobs=500 if arguments.quick else 2000)
        published(arguments.data, arguments.out)
    waiting = {s.name: len(s.sources) for s in chosen}
    done: dict[str, list[Outcome]] = {s.name: [] for s in chosen}
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for outcome in pool.imap(run_task, tasks):
            done[outcome.scenario].append(outcome)
            if len(done[outcome.scenario]) == waiting[outcome.scenario]:
                show(done[outcome.scenario])


if __name__ == "__main__":
    main()
