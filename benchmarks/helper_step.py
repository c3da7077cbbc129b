"""The processor time that a loop over `job.steps` costs per step, beside an older version and an empty loop.

    python benchmarks/helper_step.py                      # this version; 15 s
    python benchmarks/helper_step.py --package FOLDER     # and the version of boa_daemon in FOLDER

The loop has what a unit's process has: a progress file, a stop file that it looks for, its place in the
register, and a lease that is held. Each version runs in turn, `--runs` times, in processes of its own; the
table has the median and the worst of them. Steps take no time themselves, so nothing hides the cost.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
STEPS = 50_000
LOOP = f"""
import os, time
from boa_daemon import job
for step in job.steps({STEPS}, load=None, save=None):
    if step == 100:
        began = time.process_time()
    job.report(step + 1, 64.0, 0.5)
print(1e6 * (time.process_time() - began) / ({STEPS} - 100))
"""
EMPTY = f"""
import time
began = time.process_time()
for step in range({STEPS}):
    abs(step)
print(1e6 * (time.process_time() - began) / {STEPS})
"""


def microseconds(script: str, package: Path) -> float:
    """Return the processor time of one run per step, in microseconds."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/lease", "w") as lease:
        fcntl.lockf(lease, fcntl.LOCK_EX)
        names = ("PROGRESS", "STOP", "REGISTER", "LEASE")
        told = {f"BOA_{name}_FILE": f"{folder}/{name.lower()}" for name in names}
        told |= {"BOA_CHECKPOINT_DIR": folder, "BOA_GENERATION": "1", "BOA_UNIT": "u", "BOA_JOB_ID": "a"}
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **told, "PYTHONPATH": str(package)},
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    """Run the versions in turn, and print the table."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--package", type=Path, help="folder with an older boa_daemon")
    flags.add_argument("--runs", type=int, default=7)
    asked = flags.parse_args()
    versions = {"this version": (LOOP, ROOT), "an empty call": (EMPTY, ROOT)}
    if asked.package is not None:
        versions = {"the older version": (LOOP, asked.package.resolve()), **versions}
    found: dict[str, list[float]] = {name: [] for name in versions}
    for _ in range(asked.runs):
        for name, (script, package) in versions.items():
            found[name].append(microseconds(script, package))
    print("| a step of | median | worst |\n|---|---|---|")
    for name, times in found.items():
        print(f"| {name} | {statistics.median(times):.2f} µs | {max(times):.2f} µs |")


if __name__ == "__main__":
    main()
