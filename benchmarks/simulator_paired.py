"""The simulator of this checkout beside that of another, in turn, on the same runs: seconds and answers.

    git worktree add ../before COMMIT
    python benchmarks/simulator_paired.py ../before [--rounds 3] [--jobs 2000]

The cases are Pollux's workload-6 of 160 jobs under three policies, a month, and a plan on both markets. A
round runs each case once in each checkout, in a process of its own, after one run as a warm-up. Times are
processor times. Answers are equal if every action of the first run is the same at the same instant, except
for ids and reasons; a checkout whose actions have other fields, or whose policies decide otherwise, differs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from boa_daemon.lab.traces.importers import import_source
from boa_daemon.traces.workload import Options
from boa_daemon.traces.writer import write_workload

POLLUX = Path(__file__).resolve().parents[1] / "tests" / "data" / "pollux"
RUN = """
import hashlib, sys, time
from dataclasses import replace
sys.path.insert(0, "benchmarks")
case, study, jobs = sys.argv[1], sys.argv[2], float(sys.argv[3])
from boa_daemon.sim.wiring import simulate
if case == "month":
    from simulator import a_stretch
    settings = a_stretch(720.0, jobs)
elif case == "markets":
    from spot_worlds import SPOT, a_file, arrivals
    from boa_daemon.sim.spot_market import with_spot
    from boa_daemon.sim.wiring import SimulationSettings
    from boa_daemon.sim.world_settings import Checkpoints, WorldSettings
    from policies.model import Budget
    world = WorldSettings(spot=replace(SPOT, unannounced_fraction=0.5), checkpoints=Checkpoints())
    file = with_spot(a_file(1, 2, 4), world)
    settings = SimulationSettings(
        trace=arrivals(int(jobs), seed=5), problem=file.problem, instance_types=file.instance_types,
        budget=Budget(amount=20.0), world=world, policy="boa-paced",
    )
else:
    from boa_daemon.lab.compare.study_file import load_study
    (only,) = load_study(study).cases
    settings = replace(only.comparison.shared, policy=case)
digest = hashlib.sha256()
def taken(decision):
    for action in decision.actions:
        digest.update(repr((decision.state.now, replace(action, id="", reason=""))).encode())
simulate(settings, taken)
began = time.process_time()
run = simulate(settings)
seconds = time.process_time() - began
print(seconds, repr(run.mean_jct_hours), repr(run.spent_usd), run.rescales, digest.hexdigest())
"""


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2000, help="of the month")
    words = parser.parse_args()
    with TemporaryDirectory() as folder:
        compare(words.before.resolve(), a_study(Path(folder)), words.rounds, words.jobs)


def a_study(folder: Path) -> Path:
    """Write the 160 jobs and a study of them, which checkouts of any age read; return its path."""
    workload = import_source("pollux", POLLUX, Options(workload="workloads/workload-6.csv"))
    trace, classes = write_workload(workload, folder)
    study = folder / "study.yaml"
    study.write_text(f"budgets: [x1.5]\ntraces: [{{name: all, trace: {trace}, classes: {classes}}}]\n")
    return study


def compare(before: Path, study: Path, rounds: int, jobs: int) -> None:
    """Run each case in both checkouts in turn, and print its line."""
    roots = {"before": before, "after": Path(__file__).resolve().parents[1]}
    for case in ("boa", "boa-paced", "pollux-autoscale", "month", "markets"):
        seconds: dict[str, list[float]] = {name: [] for name in roots}
        answers: dict[str, list[str]] = {}
        for _ in range(rounds):
            for name, root in roots.items():
                told = subprocess.check_output(
                    [sys.executable, "-c", RUN, case, str(study), str(jobs)],
                    cwd=root,
                    env={**os.environ, "PYTHONPATH": str(root)},
                    text=True,
                ).split()
                seconds[name].append(float(told[0]))
                answers[name] = told[1:]
        ratios = [b / a for b, a in zip(seconds["before"], seconds["after"], strict=True)]
        print(
            f"{case}: before {min(seconds['before']):.2f} s, after {min(seconds['after']):.2f} s, "
            f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), answers "
            f"{'equal' if answers['before'] == answers['after'] else 'DIFFER'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
