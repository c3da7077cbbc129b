"""The best schedule of a tiny workload on whole nodes that boot, by trying every schedule in whole steps.

A step is the unit of time; money is in GPU-steps at price 1. A job that begins or returns or changes its
width holds its GPUs for `overhead` steps before it works. Nodes are of one type and are rented for whole
steps; a boot takes `boot` steps that are paid for. A job may run on any GPUs that are on. The search is
best-first with a bound on what is left (each job alone, at its fastest; each GPU-step at its cheapest), so
its answer is the least sum of completion times of all schedules in whole steps.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, product

from boa_daemon.sim.bounds.boot_bound import NodeSupply
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type
from boa_daemon.traces.reader import Trace
from policies.model import Problem
from policies.speedup import Table

WIDTHS = (1, 2, 4)
LENGTHS = ((2, 2, 2), (2, 1, 1), (3, 2, 1), (4, 2, 1), (4, 3, 2), (6, 4, 3), (6, 3, 2), (3, 3, 3))
"""Steps of a job at one, two and four GPUs."""
HOURS_PER_STEP = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyCase:
    """A workload: steps of arrival and of length at each width by job, and the supply of nodes."""

    arrivals: tuple[int, ...]
    lengths: tuple[tuple[int, ...], ...]
    node_gpus: int
    boot: int
    overhead: int
    max_nodes: int | None
    money: int

    def finer(self, parts: int) -> TinyCase:
        """Return the same case with steps divided into parts."""
        return replace(
            self,
            arrivals=tuple(parts * at for at in self.arrivals),
            lengths=tuple(tuple(parts * length for length in lengths) for lengths in self.lengths),
            boot=parts * self.boot,
            overhead=parts * self.overhead,
            money=parts * self.money,
        )

    @property
    def workload(self) -> tuple[Trace, Problem, float, NodeSupply]:
        """The arguments of `lower_bound_with_boots_hours`."""
        overhead = self.overhead * HOURS_PER_STEP
        kinds = sorted(set(self.lengths))
        classes = [
            a_class(
                f"c{number}",
                sizes=[lengths[0] * HOURS_PER_STEP],
                curve=Table(gpus=WIDTHS, speeds=tuple(lengths[0] / length for length in lengths)),
                startup_hours=overhead,
                rescale_hours=overhead,
            )
            for number, lengths in enumerate(kinds)
        ]
        trace = a_trace(
            *(3600.0 * HOURS_PER_STEP * at for at in self.arrivals),
            class_names=[f"c{kinds.index(lengths)}" for lengths in self.lengths],
        )
        supply = NodeSupply(
            instance_types={"gpu": an_instance_type(gpus=self.node_gpus)},
            boot_hours=self.boot * HOURS_PER_STEP,
            max_nodes=self.max_nodes,
        )
        return trace, a_problem(*classes), self.money * HOURS_PER_STEP, supply


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The least sum of completion times, in steps, the least money that reaches it, and the states tried."""

    steps: int
    money: int
    tried: int

    def mean_hours(self, jobs: int) -> float:
        """Return the mean completion time in hours, if a step is `HOURS_PER_STEP`."""
        return self.steps * HOURS_PER_STEP / jobs


_Job = tuple[int, int, int]
"""Units of work left, the width's number (-1: none), and steps of overhead left."""


def best_schedule(case: TinyCase) -> Best | None:
    """Return the best schedule; None if the money is too little for any."""
    units = [math.lcm(*lengths) for lengths in case.lengths]
    rates = [
        tuple(unit // length for length in lengths) for unit, lengths in zip(units, case.lengths, strict=True)
    ]
    cheapest = [min(width / rate for width, rate in zip(WIDTHS, found, strict=True)) for found in rates]
    most = case.max_nodes or len(case.lengths) * WIDTHS[-1]

    def least_left(jobs: tuple[_Job, ...]) -> tuple[int, float]:
        steps, money = 0, 0.0
        for (left, width, overhead), rate, price in zip(jobs, rates, cheapest, strict=True):
            if left:
                steps += -(-left // max(rate)) + (
                    case.overhead if width < 0 else min(overhead, case.overhead)
                )
                money += left * price
        return steps, money

    def steps_on(jobs: tuple[_Job, ...], now: int) -> Iterator[tuple[tuple[_Job, ...], int]]:
        """Yield the jobs after each way to run a step, and the GPUs it takes."""
        ways: list[list[tuple[_Job, int]]] = []
        for (left, width, overhead), rate, at in zip(jobs, rates, case.arrivals, strict=True):
            found: list[tuple[_Job, int]] = [((left, -1, 0), 0)]
            if left and at <= now and now >= case.boot:
                for number, gpus in enumerate(WIDTHS):
                    due = overhead if number == width else case.overhead
                    after = (left, number, due - 1) if due else (max(left - rate[number], 0), number, 0)
                    found.append((after if after[0] else (0, -1, 0), gpus))
            ways.append(found)
        for picked in product(*ways):
            yield tuple(job for job, _ in picked), sum(gpus for _, gpus in picked)

    start = tuple((unit, -1, 0) for unit in units)
    tie = count()
    open_states = [(least_left(start)[0], 0, next(tie), 0, start, 0)]
    least_money: dict[tuple[int, tuple[_Job, ...], int], int] = {}
    tried = 0
    while open_states:
        total, money, _, now, jobs, nodes = heapq.heappop(open_states)
        if not any(left for left, _, _ in jobs):
            return Best(steps=total, money=money, tried=tried)
        last_change = max(*case.arrivals, case.boot)
        key = (min(now, last_change), jobs, nodes)
        if least_money.get(key, math.inf) <= money:
            continue
        least_money[key] = money
        tried += 1
        waited = (
            total
            - least_left(jobs)[0]
            + sum(1 for (left, _, _), at in zip(jobs, case.arrivals, strict=True) if left and at <= now)
        )
        for after, gpus in steps_on(jobs, now):
            needed = -(-gpus // case.node_gpus)
            if needed > most:
                continue
            more, least = least_left(after)
            for on in range(needed, max(needed, nodes) + 1):
                spent = money + case.node_gpus * (on + case.boot * max(on - nodes, 0))
                if spent + least <= case.money + 1e-9:
                    state = (waited + more, spent, next(tie), now + 1, after, on)
                    heapq.heappush(open_states, state)
    return None


def tiny_cases(many: int, *, seed: int) -> Iterator[tuple[TinyCase, Best]]:
    """Yield random cases with their best schedules; the money is what that schedule spends."""
    draw = random.Random(seed)
    found = 0
    while found < many:
        jobs = draw.choice((1, 2, 2, 3, 3))
        gpus = draw.choice((1, 2, 4, 4))
        lengths = tuple(draw.choice(LENGTHS) for _ in range(jobs))
        boot = draw.choice((0, 1, 2, 3))
        least = boot * gpus + sum(min(w * n for w, n in zip(WIDTHS, own, strict=True)) for own in lengths)
        case = TinyCase(
            arrivals=(0, *sorted(draw.choice((0, 0, 1, 2, 3, 5)) for _ in range(jobs - 1))),
            lengths=lengths,
            node_gpus=gpus,
            boot=boot,
            overhead=draw.choice((0, 0, 1)),
            max_nodes=draw.choice((None, None, 1, 2)),
            money=round(least * draw.uniform(1.0, 2.5)) + draw.choice((0, gpus)),
        )
        best = best_schedule(case)
        if best is not None:
            found += 1
            yield replace(case, money=best.money), best
