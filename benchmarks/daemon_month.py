"""A month of the daemon under faults, on a simulated clock: leaks, caps, the ledger and the spend.

python benchmarks/daemon_month.py              thirty days, some minutes
python benchmarks/daemon_month.py --days 3     a short look
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from daemon_chaos import rehearse


def main() -> None:
    """Run the month and print its outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        outcome = rehearse(Path(folder), days=options.days, seed=options.seed)
    for name, value in asdict(outcome).items():
        print(f"{name:32} {value}")
    print(f"{'spent / budget':32} {outcome.spent_usd / outcome.budget_usd:.3f}")
    print(f"{'wall seconds':32} {time.perf_counter() - began:.0f}")


if __name__ == "__main__":
    main()
