"""Tries of widths under class files with wrong speed-ups: when the truth is found, and at which cost.

    python benchmarks/tries.py [--seeds 12] [--hours 24] [--processes 2]

One class of jobs of half a GPU-hour on average (exponential), twenty an hour, on nodes of one GPU that boot
in 180 s, under the paced policy. Cases: stated too low (1.3 on four GPUs, truly 3.15), too high, a dip (four
GPUs slower than two, stated concave), and a correct file. For each budget, without tries and with them:

    found      GPU-hours that the class had worked when the last width that was stated wrong was measured:
               mean and worst over the seeds, or how many runs ended before. Two jobs' work is one GPU-hour.
    JCT        minutes; then over that of a run that believes the true curve, the same of the spend
    wasted     part of the GPU-hours that the tries may have wasted, restarts and boots included
"""

from __future__ import annotations

import argparse
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from wrong_speedups import CASES, Case, Found, a_run

BUDGETS = (12.0, 14.0, 20.0)


def said_found(case: Case, runs: list[Found]) -> str:
    """Return when the last of the wrong widths was measured: mean and worst."""
    if not case.wrong:
        return f"{'-':>15s}"
    last = [max(run.work_gpu_hours.get(width, math.inf) for width in case.wrong) for run in runs]
    if math.isinf(max(last)):
        return f"{sum(map(math.isinf, last)):3d} of {len(last):2d} never"
    return f"{fmean(last):7.2f} {max(last):7.2f}"


def rows_of(case: Case, budget: float, seeds: int, hours: float) -> str:
    """Return the two rows of a case and budget: without tries, and with them."""
    by: dict[str, list[Found]] = {}
    for label, fraction, knows in (("truth", 0.0, True), ("none", 0.0, False), ("2 %", 0.02, False)):
        by[label] = [
            a_run(case, budget=budget, seed=seed, hours=hours, fraction=fraction, knows=knows)
            for seed in range(1, seeds + 1)
        ]
    rows = []
    for label in ("none", "2 %"):
        pairs = list(zip(by[label], by["truth"], strict=True))
        ratio = fmean(run.jct_minutes / best.jct_minutes for run, best in pairs)
        spend = fmean(run.usd_per_hour / best.usd_per_hour for run, best in pairs)
        wasted = sum(run.wasted_gpu_hours for run, _ in pairs) / sum(run.gpu_hours for run, _ in pairs)
        rows.append(
            f"{case.name:9s} {budget:6.0f} {label:>6s}   {said_found(case, by[label])}   "
            f"{fmean(run.jct_minutes for run, _ in pairs):9.2f}   {ratio:9.3f}  {spend:5.3f}  {wasted:7.2%}"
        )
    return "\n".join(rows)


def main() -> None:
    """Print a row for each case, budget and part of the GPU time for tries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--processes", type=int, default=2)
    words = parser.parse_args()
    print(
        f"{'stated':9s} {'budget':>6s} {'tries':>6s}   found, mean worst   JCT (min)  over truth  spend"
        "    wasted"
    )
    with ProcessPoolExecutor(words.processes) as pool:
        asked = [(case, budget) for case in CASES for budget in BUDGETS]
        tasks = [pool.submit(rows_of, *one, words.seeds, words.hours) for one in asked]
        for task in tasks:
            print(task.result(), flush=True)


if __name__ == "__main__":
    main()
