"""The time to decide which jobs wait and which are narrowed at a cap: the fast rule beside the plain one.

Jobs are of ten classes with arbitrary speed-ups; a third of them run, one in fifty is overdue. The room is
half a GPU or four GPUs per job on average. The plain rule is the oracle of the tests; both answers are
checked to be equal. Times are milliseconds of processor time, the least of several runs.

    python benchmarks/narrowing.py [--most 2000]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from plain_narrowing import Claim, claims_of, plain_shares, plain_worths

from policies.capacity_claims import PhaseWidths
from policies.model import Job, Width
from policies.online.scarce_room import RoomShares, shares, worths

CLASSES = 10
REPEATS = 5


def some_claims(jobs: int, widest: int, *, seed: int = 0) -> list[Claim]:
    """Draw jobs whose menus have every width up to `widest`."""
    rng = np.random.default_rng(seed)
    gpus = range(1, widest + 1)
    menus = []
    for _ in range(CLASSES):
        power, factor = rng.uniform(0.3, 0.98), 10.0 ** rng.uniform(-1.0, 1.0)
        speeds = tuple(factor * k**power for k in gpus)
        menus.append(PhaseWidths(widths=tuple(Width("gpu", k) for k in gpus), speeds=speeds))
    claims = []
    for number in range(jobs):
        menu = menus[number % CLASSES]
        work = 10.0 ** rng.uniform(-1.5, 1.5) * menu.speeds[0]
        held = menu.widths[rng.integers(widest)] if rng.random() < 1.0 / 3.0 else None
        job = Job(
            id=str(number), class_name="c", arrived_at=float(number), phase=0,
            remaining_gpu_hours=max(work, 0.1), width=held,
        )  # fmt: skip
        claims.append(
            Claim(
                job=job,
                menu=menu,
                weight=1.0,
                work=work,
                size_per_gpu=0.25,
                money_per_gpu=0.02,
                restart_hours=0.02,
                lasts_hours=0.3,
                overdue=2.0 if rng.random() < 0.02 else 0.3,
            )
        )
    return claims


def milliseconds(do: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    spans = []
    for _ in range(REPEATS):
        began = time.process_time()
        do()
        spans.append(time.process_time() - began)
    return 1e3 * min(spans)


def is_same(one: RoomShares, other: RoomShares) -> bool:
    """Return whether two answers are equal to the last bit."""
    return (one.widths, one.order, one.price) == (other.widths, other.order, other.price)


def report(claims: Sequence[Claim], room: float, widest: int) -> None:
    """Print one row."""
    columns = claims_of(claims)
    plain, fast = plain_shares(claims, room), shares(columns, room)
    both = [milliseconds(partial(plain_shares, claims, room)), milliseconds(partial(shares, columns, room))]
    worth = [milliseconds(partial(plain_worths, claims, room)), milliseconds(partial(worths, columns, room))]
    print(
        f"{len(claims):5d} {widest:7d} {room:9.0f}  {both[0]:8.2f} {both[1]:8.2f}  "
        f"{worth[0]:8.2f} {worth[1]:8.2f}  {'same' if is_same(plain, fast) else 'DIFFERENT'}"
    )


def main() -> None:
    """Print a row for each size, menu and room."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=2000)
    most = parser.parse_args().most
    print(" jobs  widest    nodes     plain     fast    (worths     fast)   answers")
    for jobs in (50, 500, 2000):
        for widest in (8, 16, 64):
            for nodes in (jobs / 8, jobs):
                if jobs <= most:
                    report(some_claims(jobs, widest), nodes, widest)


if __name__ == "__main__":
    main()
