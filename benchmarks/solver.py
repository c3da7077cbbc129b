"""The speed of the planner's solver, each figure beside its baseline in the same run.

    python benchmarks/solver.py           about three minutes on one core; needs the extra `test` (CVXPY)
    python benchmarks/solver.py --quick   smaller baselines, under half a minute

Times are medians over repeats, of solving only: problems and CVXPY programs are built beforehand unless a
line says otherwise. Answers are compared before times.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import statistics
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import cvxpy as cp
import numpy as np
from rich.console import Console
from rich.table import Table as RichTable
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from policies.model import GpuType, JobClass, Phase, Problem
from policies.optimum.boa import solve
from policies.optimum.continuous import ContinuousFrontier
from policies.optimum.frontier import MixedFrontier
from policies.optimum.knapsack import solve_pure
from policies.optimum.options import whole_width_options
from policies.speedup import Amdahl, Floats, PowerLaw, SpeedupCurve, Table

GPU = (GpuType(name="gpu", usd_per_gpu_hour=1.0),)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the report: its name, our figure, the baseline's figure, and the outcome."""

    what: str
    here: str
    baseline: str
    ratio: str
    verdict: str


def median_seconds(work: Callable[[], T], *, repeats: int) -> tuple[float, T]:
    """Return (median seconds, last answer) without the garbage collector, after one call to warm up."""
    answer = work()
    taken = []
    for _ in range(repeats):
        gc.collect()
        began = time.perf_counter()
        answer = work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken), answer


def in_time(seconds: float) -> str:
    """Return seconds in a readable unit."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def target(is_met: bool, words: str) -> str:
    """Return the text of a target and whether it is met."""
    return f"{words}: {'met' if is_met else 'MISSED'}"


def equal(a: float, b: float, *, to: float) -> float:
    """Return the relative difference, or stop the run if it is above `to`."""
    difference = abs(a - b) / abs(b)
    if difference > to:
        raise SystemExit(f"answers differ by {difference:.2g}: {a!r} and {b!r}")
    return difference


# Problems


def epoch_tables(rng: np.random.Generator, phases: int, widths: Sequence[int]) -> list[Table]:
    """Return one table per epoch: scaling improves as training goes on, with dips where nodes end and noise.

    Shaped after measured goodput: an elasticity of about 0.35 in the first epochs and 0.9 in the last.
    """
    k = np.array(widths, dtype=float)
    dips = np.exp(rng.normal(0.0, 0.08, len(k)))
    tables = []
    for epoch in range(phases):
        elasticity = 0.35 + 0.55 * epoch / max(phases - 1, 1)
        speeds = k**elasticity * dips * np.exp(rng.normal(0.0, 0.03, len(k)))
        tables.append(Table(gpus=tuple(widths), speeds=tuple((speeds / speeds[0]).tolist())))
    return tables


def applications(rng: np.random.Generator, count: int, phases: int, *, rescale_seconds: float) -> Problem:
    """Return applications of `phases` epochs x 16 widths, of about 1.5, 3 and 15 GPU-hours."""
    classes = []
    for number in range(count):
        hours = (1.5, 3.0, 15.0)[number % 3] / phases
        classes.append(
            JobClass(
                name=f"app{number}",
                phases=tuple(
                    Phase(size_gpu_hours=hours * float(rng.uniform(0.8, 1.2)), speedups={"gpu": table})
                    for table in epoch_tables(rng, phases, range(1, 17))
                ),
                arrivals_per_hour=(8.88, 1.61, 0.94)[number % 3],
                rescale_hours=rescale_seconds / 3600,
            )
        )
    return Problem(classes=tuple(classes), gpu_types=GPU)


def many_classes(rng: np.random.Generator, count: int, widths: int = 64, machines: int = 1) -> Problem:
    """Return classes of one phase and a noisy table of 1 to `widths` GPUs on each of some machines.

    A machine has one GPU; each further machine costs a fifth more and has its own table.
    """
    k = np.arange(1, widths + 1)
    gpus = tuple(
        GpuType(name=f"gpu@{number}" if number else "gpu", usd_per_gpu_hour=1.2**number)
        for number in range(machines)
    )
    classes = []
    for number, elasticity in enumerate(rng.uniform(0.3, 0.95, count).tolist()):
        speeds = k**elasticity * np.exp(rng.normal(0.0, 0.05, (machines, widths)))
        classes.append(
            JobClass(
                name=f"c{number}",
                phases=(
                    Phase(
                        size_gpu_hours=float(rng.lognormal()),
                        speedups={
                            gpu.name: Table(gpus=tuple(k.tolist()), speeds=tuple(row))
                            for gpu, row in zip(gpus, speeds.tolist(), strict=True)
                        },
                    ),
                ),
                arrivals_per_hour=float(rng.uniform(0.5, 2.0)),
            )
        )
    return Problem(classes=tuple(classes), gpu_types=gpus)


def curves(rng: np.random.Generator, count: int) -> Problem:
    """Return classes of one phase each, alternately Amdahl and power laws."""
    classes = []
    for number in range(count):
        curve: SpeedupCurve = (
            Amdahl(parallel_fraction=float(rng.uniform(0.7, 0.99)))
            if number % 2
            else PowerLaw(exponent=float(rng.choice([0.5, 0.75])))
        )
        classes.append(
            JobClass(
                name=f"c{number}",
                phases=(Phase(size_gpu_hours=float(rng.lognormal()), speedups={"gpu": curve}),),
                arrivals_per_hour=float(rng.uniform(0.5, 2.0)),
            )
        )
    return Problem(classes=tuple(classes), gpu_types=GPU)


# Baselines


def highs_flow(problem: Problem, budget: float) -> float:
    """Return the least sum of arrivals x hours: unit flows through (epoch, width) layers, by HiGHS.

    An edge carries the hours of the width that it leads to, the rescale included.
    """
    time_of: list[Floats] = []
    cost_of: list[Floats] = []
    tails: list[Floats] = []
    heads: list[Floats] = []
    supply: list[float] = []
    nodes = 0
    for job_class in problem.classes:
        rate = job_class.arrivals_per_hour
        source, nodes = nodes, nodes + 1
        supply.append(1.0)
        before = np.array([source])
        for number, phase in enumerate(job_class.phases):
            table = phase.speedups["gpu"]
            k = table.whole_widths().astype(float)
            here = nodes + np.arange(len(k))
            nodes += len(k)
            supply += [0.0] * len(k)
            change = np.zeros((1, len(k))) if number == 0 else 1.0 - np.eye(len(k))
            hours = phase.size_gpu_hours / table.speed_at(k) + job_class.rescale_hours * change
            time_of.append(rate * hours.ravel())
            cost_of.append(rate * (hours * k).ravel())
            tails.append(np.repeat(before, len(k)).astype(float))
            heads.append(np.tile(here, len(before)).astype(float))
            before = here
        time_of.append(np.zeros(len(before)))
        cost_of.append(np.zeros(len(before)))
        tails.append(before.astype(float))
        heads.append(np.full(len(before), -1.0))
    hours_all, cost_all = np.concatenate(time_of), np.concatenate(cost_of)
    tail, head = np.concatenate(tails).astype(int), np.concatenate(heads).astype(int)
    edge = np.arange(len(tail))
    inner = head >= 0
    flow = sparse.csr_matrix(
        (
            np.concatenate([np.ones(len(tail)), -np.ones(int(inner.sum()))]),
            (np.concatenate([tail, head[inner]]), np.concatenate([edge, edge[inner]])),
        ),
        shape=(nodes, len(tail)),
    )
    found = linprog(
        hours_all, A_ub=sparse.csr_matrix(cost_all), b_ub=[budget], A_eq=flow, b_eq=supply, method="highs"
    )
    return float(found.fun)


def choice_program(problem: Problem) -> tuple[Floats, Floats, Any]:
    """Return (time, cost, one row per group of ones) of a problem without coupled classes."""
    options = whole_width_options(problem)
    arrivals = options.arrivals[options.group]
    count = len(options.group)
    ones = sparse.csr_matrix((np.ones(count), (options.group, np.arange(count))))
    return arrivals * options.hours, arrivals * options.spend, ones


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Discard what HiGHS writes to standard output, past Python."""
    sys.stdout.flush()
    kept = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def highs_choice(problem: Problem, budget: float, *, is_whole: bool) -> float:
    """Return the least sum of arrivals x hours of one option per phase, mixed or whole, by HiGHS."""
    hours, cost, ones = choice_program(problem)
    budget_row = sparse.csr_matrix(cost)
    if not is_whole:
        found = linprog(
            hours, A_ub=budget_row, b_ub=[budget], A_eq=ones, b_eq=np.ones(ones.shape[0]), method="highs"
        )
        return float(found.fun)
    constraints = [LinearConstraint(ones, 1.0, 1.0), LinearConstraint(budget_row, -np.inf, budget)]
    with silence():
        found = milp(
            hours,
            constraints=constraints,
            integrality=np.ones(len(hours), dtype=np.int64),
            bounds=Bounds(0, 1),
            options={"mip_rel_gap": 0.0, "time_limit": 60.0},
        )
    return float(found.fun)


def cvxpy_program(problem: Problem, budget: float) -> cp.Problem:
    """Return the convex program in z = 1 / speed, one variable per phase, as the BOA authors state it.

    Spend per unit of work is the maximum over the segments of a table's envelope; curves in closed form.
    """
    hours, spend, limits = [], [], []
    for job_class in problem.classes:
        z = cp.Variable(len(job_class.phases))
        for number, phase in enumerate(job_class.phases):
            load = job_class.arrivals_per_hour * phase.size_gpu_hours
            curve = phase.speedups["gpu"]
            if isinstance(curve, Table):
                base, slope = segments(curve)
                per_work = cp.max(base + slope * z[number])
            elif isinstance(curve, Amdahl):
                p = curve.parallel_fraction
                per_work = p * (1 + (1 - p) * cp.inv_pos(z[number] - (1 - p)))
            elif isinstance(curve, PowerLaw):
                per_work = cp.power(z[number], 1 - 1 / curve.exponent)
            hours.append(load * z[number])
            spend.append(load * per_work)
            limits += [z[number] >= least_z(curve), z[number] <= greatest_z(curve)]
    return cp.Problem(cp.Minimize(cp.sum(cp.hstack(hours))), [cp.sum(cp.hstack(spend)) <= budget, *limits])


def segments(table: Table) -> tuple[Floats, Floats]:
    """Return (base, slope) of spend per work, base + slope z: the best speed per GPU, then each segment."""
    widths, speeds = table.envelope()
    beta = np.diff(speeds) / np.diff(widths)
    alpha = speeds[:-1] - beta * widths[:-1]
    return np.append(widths[0] / speeds[0], 1 / beta), np.append(0.0, -alpha / beta)


def least_z(curve: SpeedupCurve) -> float:
    """Return hours per unit of work at the top speed."""
    return float(1 / curve.speed_at(curve.whole_widths()).max())


def greatest_z(curve: SpeedupCurve) -> float:
    """Return hours per unit of work at the best speed per GPU."""
    return float(1 / curve.envelope()[1][0]) if isinstance(curve, Table) else 1.0


def cvxpy_vectorised(problem: Problem, budget: float) -> cp.Problem:
    """Return the same program with one variable and one row per segment for all phases, CVXPY's best form."""
    loads = [
        (c.arrivals_per_hour * p.size_gpu_hours, p.speedups["gpu"]) for c in problem.classes for p in c.phases
    ]
    rho = np.array([load for load, _ in loads])
    z = cp.Variable(len(loads))
    limits = [
        z >= np.array([least_z(curve) for _, curve in loads]),
        z <= np.array([greatest_z(curve) for _, curve in loads]),
    ]
    spend = []
    table = [i for i, (_, curve) in enumerate(loads) if isinstance(curve, Table)]
    if table:
        per_work = cp.Variable(len(table))
        lines = [segments(loads[i][1]) for i in table]  # type: ignore[arg-type]
        row = np.repeat(np.arange(len(table)), [len(base) for base, _ in lines])
        base, slope = (np.concatenate(parts) for parts in zip(*lines, strict=True))
        limits.append(per_work[row] >= base + cp.multiply(slope, z[np.array(table)[row]]))
        spend.append(rho[table] @ per_work)
    amdahl = [i for i, (_, curve) in enumerate(loads) if isinstance(curve, Amdahl)]
    if amdahl:
        p = np.array([loads[i][1].parallel_fraction for i in amdahl])  # type: ignore[attr-defined]
        spend.append(rho[amdahl] @ cp.multiply(p, 1 + cp.multiply(1 - p, cp.inv_pos(z[amdahl] - (1 - p)))))
    for exponent in sorted({curve.exponent for _, curve in loads if isinstance(curve, PowerLaw)}):
        power = [i for i, (_, c) in enumerate(loads) if isinstance(c, PowerLaw) and c.exponent == exponent]
        spend.append(rho[power] @ cp.power(z[power], 1 - 1 / exponent))
    return cp.Problem(cp.Minimize(rho @ z), [sum(spend) <= budget, *limits])


def by_cvxpy(program: Callable[[Problem, float], cp.Problem], problem: Problem, budget: float) -> float:
    """Return the least sum of arrivals x hours: state the program, compile it and solve it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(program(problem, budget).solve(solver="CLARABEL"))


# The report


def budget_of(frontier: MixedFrontier | ContinuousFrontier, share: float) -> float:
    """Return the budget at a share of the way from the least to the largest useful one."""
    least, most = frontier.cheapest_feasible_spend, frontier.largest_useful_spend
    return least + share * (most - least)


def rescaling(*, is_quick: bool) -> Iterator[Line]:
    """Applications of 100 epochs x 16 widths, coupled by a rescale cost."""
    for seconds in (30.0, 150.0):
        rng = np.random.default_rng(1)
        problem = applications(rng, 3, 100, rescale_seconds=seconds)
        budget = budget_of(MixedFrontier.of(problem), 0.25)
        here, solution = median_seconds(partial(solve, problem, budget), repeats=9)
        small = problem if not is_quick else applications(rng, 1, 30, rescale_seconds=seconds)
        small_budget = budget_of(MixedFrontier.of(small), 0.25)
        own, own_solution = median_seconds(partial(solve, small, small_budget), repeats=9)
        other, value = median_seconds(partial(highs_flow, small, small_budget), repeats=1)
        arrivals = sum(c.arrivals_per_hour for c in small.classes)
        equal(own_solution.mean_jct_hours * arrivals, value, to=1e-6)
        plans = sum(len(c.plans) for c in solution.classes)
        size = "the same" if small is problem else "1 x 30 epochs"
        yield Line(
            what=f"3 applications x 100 epochs x 16 widths, rescale {seconds:g} s ({plans} plans in use)",
            here=in_time(here),
            baseline=f"HiGHS, flow program, {size}: {in_time(other)}",
            ratio=f"{other / own:,.0f}",
            verdict=target(here <= 0.2, "at most 0.2 s"),
        )


def scale(*, is_quick: bool) -> Iterator[Line]:
    """Ten thousand classes; HiGHS on a tenth of them."""
    rng = np.random.default_rng(2)
    seconds = {}
    for count in (1_000, 10_000):
        problem = many_classes(rng, count)
        budget = budget_of(MixedFrontier.of(problem), 0.2)
        seconds[count], solution = median_seconds(partial(solve, problem, budget), repeats=5)
        if count == 1_000:
            repeats = 1 if is_quick else 3
            other, value = median_seconds(
                partial(highs_choice, problem, budget, is_whole=False), repeats=repeats
            )
            equal(solution.mean_jct_hours * sum(c.arrivals_per_hour for c in problem.classes), value, to=1e-6)
            yield Line(
                what="1,000 classes x 64 widths",
                here=in_time(seconds[count]),
                baseline=f"HiGHS, linear program: {in_time(other)}",
                ratio=f"{other / seconds[count]:,.0f}",
                verdict="equal answers",
            )
    yield Line(
        what="10,000 classes x 64 widths",
        here=in_time(seconds[10_000]),
        baseline=f"1,000 classes here: {in_time(seconds[1_000])}",
        ratio=f"{seconds[10_000] / seconds[1_000]:.1f} times for 10 times the classes",
        verdict=target(seconds[10_000] <= 1.0, "at most 1 s"),
    )


def several_machines() -> Iterator[Line]:
    """Ten thousand classes on four machines, in processor seconds: as many options as on one, and more."""
    seconds = {}
    for widths, machines in ((64, 1), (16, 4), (64, 4)):
        problem = many_classes(np.random.default_rng(2), 10_000, widths, machines)
        budget = budget_of(MixedFrontier.of(problem), 0.2)
        taken = []
        for _ in range(3):
            gc.collect()
            began = time.process_time()
            solve(problem, budget)
            taken.append(time.process_time() - began)
        seconds[widths, machines] = statistics.median(taken)
    one, equally_many, all_of_it = seconds.values()
    yield Line(
        what="10,000 classes x 16 widths x 4 machines",
        here=in_time(equally_many),
        baseline=f"64 widths x 1 machine: {in_time(one)}",
        ratio=f"{equally_many / one:.2f} times",
        verdict=target(equally_many <= 2.0 * one, "at most twice"),
    )
    yield Line(
        what="10,000 classes x 64 widths x 4 machines",
        here=in_time(all_of_it),
        baseline=f"64 widths x 1 machine: {in_time(one)}",
        ratio=f"{all_of_it / one:.1f} times for 4 times the options",
        verdict=target(all_of_it <= 5.0, "at most 5 s"),
    )


def whole_curve() -> Iterator[Line]:
    """Two hundred budgets from one sweep, both versions."""
    rng = np.random.default_rng(3)
    for name, problem in (
        ("3 applications x 100 epochs, rescale 30 s", applications(rng, 3, 100, rescale_seconds=30.0)),
        ("1,000 classes x 64 widths", many_classes(rng, 1_000)),
    ):
        frontier = MixedFrontier.of(problem)
        budgets = np.linspace(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, 200)

        def curve(p: Problem = problem, b: Floats = budgets) -> Floats:
            swept = MixedFrontier.of(p)
            return np.stack([swept.mean_jct_at(b), swept.multiplier_at(b), swept.lower_bound_at(b)])

        one, _ = median_seconds(partial(solve, problem, float(budgets[50])), repeats=9)
        all_of_them, values = median_seconds(curve, repeats=9)
        began = time.perf_counter()
        single = [solve(problem, float(b)).mean_jct_hours for b in budgets]
        many = time.perf_counter() - began
        equal(float(values[0].sum()), float(np.sum(single)), to=1e-9)
        yield Line(
            what=f"200-point frontier, {name}",
            here=in_time(all_of_them),
            baseline=f"one solve: {in_time(one)}; 200 solves: {in_time(many)}",
            ratio=f"{all_of_them / one:.2f} solves; {many / all_of_them:,.0f} times faster than 200",
            verdict=target(all_of_them <= 2.0 * one, "at most twice one solve"),
        )


def against_cvxpy(*, is_quick: bool) -> Iterator[Line]:
    """The same continuous problem solved by ContinuousFrontier, and by CVXPY with Clarabel."""
    rng = np.random.default_rng(4)
    cases = [
        ("3 applications x 100 epochs of tables", applications(rng, 3, 100, rescale_seconds=0.0)),
        ("300 Amdahl and power-law classes", curves(rng, 300)),
    ]
    for name, problem in cases:
        budget = budget_of(ContinuousFrontier.of(problem), 0.2)
        here, solution = median_seconds(partial(solve, problem, budget, version="continuous"), repeats=9)
        arrivals = sum(c.arrivals_per_hour for c in problem.classes)
        for form, program in (("one variable per phase", cvxpy_program), ("vectorised", cvxpy_vectorised)):
            other, value = median_seconds(
                partial(by_cvxpy, program, problem, budget), repeats=1 if is_quick else 5
            )
            difference = equal(solution.mean_jct_hours * arrivals, value, to=1e-6)
            yield Line(
                what=f"continuous, {name}",
                here=in_time(here),
                baseline=f"CVXPY with Clarabel, {form}: {in_time(other)}",
                ratio=f"{other / here:,.0f}, answers within {difference:.0e}",
                verdict=target(other >= 100.0 * here, "100 times faster") if program is cvxpy_program else "",
            )


def memory() -> Iterator[Line]:
    """Peak bytes per option while solving, at two sizes."""
    rng = np.random.default_rng(5)
    per_option = {}
    for count in (1_000, 10_000):
        problem = many_classes(rng, count)
        budget = budget_of(MixedFrontier.of(problem), 0.2)
        gc.collect()
        tracemalloc.start()
        solve(problem, budget)
        per_option[count] = tracemalloc.get_traced_memory()[1] / (count * 64)
        tracemalloc.stop()
    ratio = per_option[10_000] / per_option[1_000]
    yield Line(
        what="peak memory, 10,000 classes x 64 widths",
        here=f"{per_option[10_000]:.0f} bytes per option",
        baseline=f"1,000 classes: {per_option[1_000]:.0f} bytes per option",
        ratio=f"{ratio:.2f}",
        verdict=target(0.8 <= ratio <= 1.25, "in proportion to options"),
    )


def whole_widths(*, is_quick: bool) -> Iterator[Line]:
    """One whole width per phase, against HiGHS as a mixed-integer program with no gap allowed."""
    rng = np.random.default_rng(6)
    for phases in (50, 200) if is_quick else (50, 200, 800, 2_000):
        problem = many_classes(rng, phases, widths=16)
        budget = budget_of(MixedFrontier.of(problem), 0.2)
        here, solution = median_seconds(partial(solve_pure, problem, budget), repeats=5)
        other, value = median_seconds_once(partial(highs_choice, problem, budget, is_whole=True))
        arrivals = sum(c.arrivals_per_hour for c in problem.classes)
        # HiGHS may exceed its budget by one part in a million, so its answer may be better by as much.
        equal(solution.mean_jct_hours * arrivals, value, to=1e-5)
        limit = " (its time limit)" if other > 59 else ""
        yield Line(
            what=f"integer-pure, {phases:,} phases x 16 widths",
            here=in_time(here),
            baseline=f"HiGHS, mixed-integer program: {in_time(other)}{limit}",
            ratio=f"{other / here:,.3g}",
            verdict="proven optimal",
        )


def median_seconds_once(work: Callable[[], T]) -> tuple[float, T]:
    """Return (seconds, answer) of one call without a warm-up: for baselines that take long."""
    began = time.perf_counter()
    answer = work()
    return time.perf_counter() - began, answer


def main() -> None:
    """Run all parts and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="smaller baselines, fewer repeats")
    is_quick = parser.parse_args().quick
    console = Console(width=170)
    report = RichTable("what", "here", "baseline, same run", "ratio", "target", show_lines=True)
    parts = (
        rescaling(is_quick=is_quick),
        scale(is_quick=is_quick),
        several_machines(),
        whole_curve(),
        against_cvxpy(is_quick=is_quick),
        memory(),
        whole_widths(is_quick=is_quick),
    )
    for part in parts:
        for line in part:
            report.add_row(line.what, line.here, line.baseline, line.ratio, line.verdict)
            console.print(f"[dim]{line.what}: {line.here}[/dim]", highlight=False)
    console.print(report)


if __name__ == "__main__":
    main()
