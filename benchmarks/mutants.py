"""How many small changes of a module its tests notice: mutation testing of one module, in a copy of the tree.

    python benchmarks/mutants.py boa_daemon/tick/ledger.py tests/boa_daemon/tick/test_ledger.py

cosmic-ray changes the module in every way that it knows, one change at a time, and the tests run once each.
What survives is printed as a difference: either a test is missing, or the change means the same.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("boa_daemon", "policies", "tests", "examples", "infra", "pyproject.toml", "README.md")
CONFIG = """
[cosmic-ray]
module-path = "{module}"
timeout = {timeout}
excluded-modules = []
test-command = "{python} -m pytest -q -x -p no:cacheprovider {tests}"

[cosmic-ray.distributor]
name = "local"
"""


def survivors(module: str, tests: list[str], *, timeout: float) -> tuple[int, list[str]]:
    """Return how many changes there were, and the differences that no test noticed."""
    with tempfile.TemporaryDirectory(prefix="boa-mutants-") as name:
        copy = Path(name)
        for part in COPIED:
            source = ROOT / part
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / part)
        config = CONFIG.format(module=module, timeout=timeout, python=sys.executable, tests=" ".join(tests))
        (copy / "mutants.toml").write_text(config)
        environment = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'tests'}"}

        def call(*words: str) -> str:
            command = [str(Path(sys.executable).with_name("cosmic-ray")), *words]
            done = subprocess.run(
                command, cwd=copy, env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            return done.stdout

        call("baseline", "mutants.toml")
        call("init", "mutants.toml", "session.sqlite")
        call("exec", "mutants.toml", "session.sqlite")
        found = [json.loads(line) for line in call("dump", "session.sqlite").splitlines()]
    results = [result for _, result in found if result is not None]
    return len(results), [one["diff"] for one in results if one["test_outcome"] == "survived"]


def main() -> None:
    """Print the figures of one module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", help="a file of boa_daemon/ or policies/")
    parser.add_argument("tests", nargs="+", help="the tests that should notice a change of it")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds of one run of the tests")
    flags = parser.parse_args()
    count, alive = survivors(flags.module, flags.tests, timeout=flags.timeout)
    for difference in alive:
        print(difference, end="\n\n")
    print(f"{flags.module}: {count - len(alive)} of {count} changes noticed, {len(alive)} survived")


if __name__ == "__main__":
    main()
