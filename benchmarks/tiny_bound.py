"""The bound with boots beside the best schedules of random tiny workloads, with and without few-job search.

    python benchmarks/tiny_bound.py [--cases 200] [--seed 7] [--finest 3]

The best schedule comes from trying every schedule in whole steps (`tests/best_schedules.py`); the steps are
divided by 1, 2 ... `--finest`, and the least counts. Every bound must be below every schedule.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median

from boa_daemon.sim.bounds.boot_bound import THOROUGH, SearchEffort, lower_bound_with_boots_hours

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from best_schedules import best_schedule, tiny_cases


def main() -> None:
    """Print a row for each bound: least, tenth and median of bound over best, how often above, seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--finest", type=int, default=3)
    words = parser.parse_args()
    efforts = {"prices only": SearchEffort(programs=0), "with the search over orders": THOROUGH}
    ratios: dict[str, list[float]] = {name: [] for name in efforts}
    seconds = dict.fromkeys(efforts, 0.0)
    above = dict.fromkeys(efforts, 0)
    moved = 0
    for case, coarse in tiny_cases(words.cases, seed=words.seed):
        least = coarse.mean_hours(len(case.arrivals))
        best = least
        for parts in range(2, words.finest + 1):
            finer = best_schedule(case.finer(parts))
            if finer is not None:
                best = min(best, finer.mean_hours(len(case.arrivals)) / parts)
        moved += best < least * (1.0 - 1e-9)
        for name, effort in efforts.items():
            began = time.process_time()
            found = lower_bound_with_boots_hours(*case.workload, effort=effort)
            seconds[name] += time.process_time() - began
            above[name] += found > best * (1.0 + 1e-9)
            ratios[name].append(found / best)
    print(f"{words.cases} cases; finer steps shorten the best schedule of {moved}")
    print("bound | least of best | tenth part below | median | above the best | processor time")
    for name, found in ratios.items():
        found.sort()
        print(
            name,
            *(f"{value:.3f}" for value in (found[0], found[len(found) // 10], median(found))),
            above[name],
            f"{seconds[name]:.1f} s",
            sep=" | ",
        )


if __name__ == "__main__":
    main()
