"""The time to build BOA's policies for many classes, as the daemon does when a class or a price changes.

    python benchmarks/building.py [--classes 1000]

Each class has three phases of 16 widths and a rescale cost, so its phases are coupled. Times are processor
times, the least of five. Set `PYTHONPATH` to another checkout to build that checkout's policies.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from boa_daemon.testing import a_class, a_problem, an_instance_type
from policies.model import Budget
from policies.registry import PolicyOptions, Site, build_policy
from policies.speedup import Amdahl

REPEATS = 5


def a_site(count: int) -> Site:
    """Return a site with this many classes, all different, and twice the budget that their work takes."""
    rng = np.random.default_rng(1)
    classes = tuple(
        a_class(
            f"c{number}",
            sizes=tuple(rng.uniform(1.0, 8.0, 3).tolist()),
            curve=Amdahl(parallel_fraction=float(rng.uniform(0.85, 0.999)), max_gpus=16),
            arrivals_per_hour=float(rng.uniform(0.1, 1.0)),
            rescale_hours=0.02,
        )
        for number in range(count)
    )
    budget = Budget(amount=2.0 * sum(c.size_gpu_hours * c.arrivals_per_hour for c in classes))
    return Site(
        problem=a_problem(*classes, budget=budget),
        budget=budget,
        instance_types={"gpu": an_instance_type(gpus=4)},
        boot_hours=0.05,
    )


def main() -> None:
    """Print a line for each policy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=1000)
    site = a_site(parser.parse_args().classes)
    for name in ("boa", "boa-paced"):
        seconds = []
        for _ in range(REPEATS):
            began = time.process_time()
            build_policy(name, site, PolicyOptions())
            seconds.append(time.process_time() - began)
        print(f"{name:10} {min(seconds):.3f} s")


if __name__ == "__main__":
    main()
