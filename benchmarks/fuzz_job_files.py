"""Random hostile job files against a root daemon: what of the machine did they reach?

    python benchmarks/fuzz_job_files.py [--files 2000] [--ssm 400] [--seed 1] [--tree FOLDER]

Must run as root. Each file is submitted over HTTP by a user without a role; accepted ones run on the local
engine, and `--ssm` others as scripts of Run Command on a fake node. It prints how many were refused and ran,
and every file, process and answer that was not the job's own. With `--tree`, the code of another checkout is
tried, for a baseline.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Run the fuzz and print what it found; the exit code is 1 if that is anything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--ssm", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tree", type=Path, default=ROOT)
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("only a root daemon has rights that its jobs lack: run it as root")
    sys.path[:0] = [str(options.tree), str(ROOT / "tests")]
    os.environ["PYTHONPATH"] = str(options.tree)
    from engine_worlds import ssm_world  # noqa: PLC0415  it imports the code under test
    from job_fuzz import Fuzz, ready_nodes  # noqa: PLC0415

    from boa_daemon.job.leavings import remove_trees  # noqa: PLC0415

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    found = 0
    path = os.environ["PATH"]
    for engine, count in (("local", options.files), ("ssm", options.ssm)):
        with tempfile.TemporaryDirectory(prefix="boa-fuzz-", dir="/tmp") as name:
            place, began = Path(name), time.monotonic()
            place.chmod(0o755)
            os.environ["PATH"] = f"{place}/tools:{path}"
            if engine == "local":
                fuzz = Fuzz(place, options.seed)
                faults = fuzz.run(count)
            else:
                with ssm_world(place, own_user=True) as make:
                    fuzz = Fuzz(place, options.seed, make=make)
                    ready_nodes(fuzz)
                    faults = fuzz.run(count, at_once=1)
            fuzz.play.close()
            remove_trees(*place.iterdir())  # Jobs left folders deeper than Python's own way of removing them.
        found += len(faults)
        print(
            f"{engine}: {count} files, {fuzz.counts['refused']} refused, {fuzz.counts['ran']} jobs ran, "
            f"{len(faults)} faults in {time.monotonic() - began:.0f} s"
        )
        for fault in faults:
            print(f"  {fault[:2000]}")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
