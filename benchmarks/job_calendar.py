"""Calendars beside lists by deadline, submission and size: mean JCT, missed deadlines and seconds.

    python benchmarks/job_calendar.py

Random lists of 40, 200 and 1,000 jobs of three classes on two machines, with a monthly budget, an hourly
budget and a quota, and a total budget. A rival is the better of its two lists: earliest end, or cheapest
width.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from policies.model import GpuType, InstanceType, JobClass, Phase, Problem
from policies.optimum.calendar import CalendarLimits, calendar_jobs
from policies.optimum.calendar_search import CHEAPEST, RULES, calendar_by_rule, deadline_fixes, search
from policies.optimum.job_list import ListedJob
from policies.speedup import Table

MACHINES = {
    "a100": InstanceType(name="p4d.24xlarge", gpu_type="a100", gpus=8, usd_per_hour=21.96),
    "a10g": InstanceType(name="g5.xlarge", gpu_type="a10g", gpus=1, usd_per_hour=1.006),
}
SPEEDUPS = {
    "a100": Table(gpus=(1, 2, 4, 8, 16, 32), speeds=(1.0, 1.9, 3.6, 6.5, 11.0, 17.0)),
    "a10g": Table(gpus=(1, 2, 4), speeds=(0.3, 0.55, 0.9)),
}


def a_problem() -> Problem:
    """Return three classes, of 4, 20 and 60 GPU-hours."""
    return Problem(
        classes=tuple(
            JobClass(
                name=f"c{number}",
                arrivals_per_hour=1.0,
                phases=(Phase(size_gpu_hours=size, speedups=dict(SPEEDUPS)),),
            )
            for number, size in enumerate((4.0, 20.0, 60.0))
        ),
        gpu_types=tuple(
            GpuType(name=name, usd_per_gpu_hour=machine.usd_per_gpu_hour)
            for name, machine in MACHINES.items()
        ),
    )


def a_list(jobs: int, seed: int) -> list[ListedJob]:
    """Return jobs that arrive evenly; six of ten have a deadline."""
    rng = np.random.default_rng(seed)
    return [
        ListedJob(
            id=f"j{number}",
            class_name=f"c{rng.integers(3)}",
            scale=float(rng.uniform(0.3, 3.0)),
            weight=float(rng.choice([1.0, 1.0, 3.0])),
            submit_hours=float(rng.uniform(0.0, jobs * 0.7)),
            deadline_hours=float(rng.uniform(5.0, 150.0)) if rng.random() < 0.6 else None,
        )
        for number in range(jobs)
    ]


def main() -> None:
    """Print one line for each list and limit."""
    print(
        "jobs  limit      seconds  saves s  missed  at least   gap   EDF, FIFO, SRPT: weight missed, waiting"
    )
    prices = {name: machine.usd_per_hour for name, machine in MACHINES.items()}
    for jobs in (40, 200, 1000):
        listed = calendar_jobs(a_problem(), a_list(jobs, 3), MACHINES, boot_hours=0.05)
        for name, most in (
            ("40000/month", CalendarLimits(usd_per_period=40_000.0, period_hours=730.0)),
            ("60/h, 3", CalendarLimits(usd_per_hour=60.0, instances={"a100": 3})),
            ("in all, 6", CalendarLimits(usd_in_all=jobs * 110.0, instances={"a100": 6})),
        ):
            begin = perf_counter()
            found = search(listed, most, prices)
            searched = perf_counter()
            deadline_fixes(found, most)
            saved = perf_counter()
            own = found.calendar.key
            rivals = []
            for rule in RULES:
                key = min(calendar_by_rule(listed, rule, most, price).key for price in (0.0, CHEAPEST))
                assert own <= key, "a list by hand is better"
                rivals.append(f"{key[1] - own[1]:+.0f} {key[2] / own[2]:.2f}x")
            gap = "  -" if found.gap is None else f"{found.gap:.2f}"
            print(
                f"{jobs:4}  {name:11} {searched - begin:6.1f} {saved - searched:8.1f} "
                f"{len(found.calendar.missed):7} {found.least_missed:9} {gap:>6}   {'   '.join(rivals)}"
            )


if __name__ == "__main__":
    main()
