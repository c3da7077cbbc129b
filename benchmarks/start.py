"""The start time of the command line: processor seconds for the help of each verb.

    python benchmarks/start.py [--times 3] [VERB ...]

Each time is the best of `--times`, because the machine may be busy.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

from boa_daemon.cli.verbs import VERBS


def seconds(*words: str) -> float:
    """Return the processor time of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "boa_daemon", *words], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Time the verbs and print them, the fastest first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verbs", nargs="*", metavar="VERB")
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    commands = [("--help",), *((verb, "--help") for verb in given.verbs or VERBS)]
    found = [(min(seconds(*words) for _ in range(given.times)), words) for words in commands]
    for taken, words in sorted(found):
        print(f"{taken:5.2f} s  boa {' '.join(words)}")


if __name__ == "__main__":
    main()
