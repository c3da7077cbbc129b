"""The simulator of this checkout beside that of another, in turn, on the same runs: seconds and answers.

    git worktree add ../before COMMIT
    python benchmarks/simulator_paired.py ../before DATA [--rounds 3] [--jobs 2000]

DATA is that of benchmarks/policies; without `pollux` in it the 160-job workload is left out. A round runs
each case once in each checkout, in a process of its own, after one run as a warm-up. Times are processor
times. Answers are equal if every action of the first run is the same at the same instant, except for ids and
reasons.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

RUN = """
import hashlib, sys, time
from dataclasses import replace
from pathlib import Path
sys.path[:0] = ["benchmarks", "benchmarks/policies"]
case, data, jobs = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
from boa_daemon.sim.wiring import simulate
if case == "month":
    from simulator import a_stretch
    settings = a_stretch(720.0, jobs)
else:
    import tempfile
    from scenarios import Scenario, pollux
    from work import settings_of, tasks_of
    scenario = Scenario(group="w", column="w", sources=(pollux("", 6),))
    (task,) = tasks_of(scenario, data, Path(tempfile.mkdtemp()))
    settings = replace(settings_of(task)[0], policy=case)
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
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2000, help="of the month")
    words = parser.parse_args()
    cases = ["boa", "boa-paced", "pollux-autoscale"] if (words.data / "pollux").exists() else []
    roots = {"before": words.before.resolve(), "after": Path(__file__).resolve().parents[1]}
    for case in [*cases, "month"]:
        seconds: dict[str, list[float]] = {name: [] for name in roots}
        answers: dict[str, list[str]] = {}
        for _ in range(words.rounds):
            for name, root in roots.items():
                told = subprocess.check_output(
                    [sys.executable, "-c", RUN, case, str(words.data.resolve()), str(words.jobs)],
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
