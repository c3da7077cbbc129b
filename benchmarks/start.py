"""The start time of the command line: processor seconds of each verb's help, and of questions to a daemon.

    python benchmarks/start.py [--times 9] [COMMAND ...]

A COMMAND is a command line without `boa`, such as "status" or "plan --help"; by default all helps, and
`status` and `jobs` of a daemon that runs meanwhile. User and system time count, so a busy machine disturbs
little; each is the median of `--times` runs, taken in turns with `boa --help`; the last column is the ratio.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from boa_daemon.cli.verbs import VERBS

BOA = (sys.executable, "-m", "boa_daemon")
START_SECONDS = 60.0


def seconds(words: list[str], environment: dict[str, str]) -> float:
    """Return the processor time of one command.

    Raises:
        subprocess.CalledProcessError: when it fails.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*BOA, *words], env=environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def a_daemon() -> Iterator[dict[str, str]]:
    """Run a daemon of the simulated cloud; yield the environment in which commands find it."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: text for name, text in os.environ.items() if not name.startswith("BOA_")}
        environment |= {"BOA_DAEMON_STATE_DIR": folder, "BOA_CLOUD_PROVIDER": "simulated"}
        with subprocess.Popen(
            [*BOA, "daemon"], env=environment, cwd=folder, stderr=subprocess.DEVNULL
        ) as daemon:
            end = time.monotonic() + START_SECONDS
            while not (Path(folder) / "boa.sock").exists() and time.monotonic() < end:
                time.sleep(0.1)
            try:
                yield environment
            finally:
                daemon.terminate()


def main() -> None:
    """Time the commands and print them, the fastest first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commands", nargs="*", metavar="COMMAND")
    parser.add_argument("--times", type=int, default=9)
    given = parser.parse_args()
    commands = given.commands or ["status", "jobs", *(f"{verb} --help" for verb in VERBS)]
    rows = []
    with a_daemon() as environment:
        for command in commands:
            pairs = [
                (seconds(["--help"], environment), seconds(command.split(), environment))
                for _ in range(given.times)
            ]
            base, own = (statistics.median(column) for column in zip(*pairs, strict=True))
            rows.append((own / base, own, base, command))
    print("  s    --help  ratio")
    for ratio, own, base, command in sorted(rows):
        print(f"{own:5.2f}  {base:5.2f}   {ratio:5.2f}  boa {command}")


if __name__ == "__main__":
    main()
