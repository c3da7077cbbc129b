"""Random planner problems, and oracles that use none of the planner's methods.

The oracles read only a problem's prices, arrivals, sizes and `speed_at`. They enumerate whole plans, or solve
the problem with HiGHS.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from policies.model import GpuType, JobClass, Phase, Problem
from policies.optimum.coupled_plans import CoupledClass
from policies.speedup import Amdahl, Floats, PowerLaw, SpeedupCurve, Table, UniversalScalability

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)


def one_type(*classes: JobClass, price: float = 1.0) -> Problem:
    """Return a problem on one GPU type, "gpu", that counts dollars."""
    return Problem(classes=classes, gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=price),))


def a_class(name: str, *phases: tuple[float, SpeedupCurve], **changes: float) -> JobClass:
    """Return a class of (size, curve) phases on the type "gpu"."""
    made = tuple(Phase(size_gpu_hours=size, speedups={"gpu": curve}) for size, curve in phases)
    return JobClass(name=name, phases=made, **changes)


# Strategies


def numbers(least: float, most: float) -> st.SearchStrategy[float]:
    """Return floats of a range, evenly spread on a logarithmic scale."""
    return st.floats(np.log(least), np.log(most)).map(lambda x: float(np.exp(x)))


@st.composite
def tables(draw: st.DrawFn, *, most_widths: int = 5) -> Table:
    """Draw measured speeds: dips, super-linear stretches, duplicates and straight lines included."""
    widths = sorted(draw(st.sets(st.sampled_from(WIDTHS), min_size=1, max_size=most_widths)))
    shape = draw(st.sampled_from(["any", "linear", "flat", "power", "round"]))
    if shape == "any":
        speeds = [draw(numbers(0.2, 20.0)) for _ in widths]
    elif shape == "round":
        speeds = [float(draw(st.integers(1, 6))) for _ in widths]
    else:
        exponent = {"linear": 1.0, "flat": 0.0}.get(shape) if shape != "power" else draw(st.floats(0.1, 1.3))
        speeds = [float(k) ** float(exponent or 0.0) for k in widths]
    # Nine decimals: speeds that differ less than the solver's own tolerance may fall either way.
    return Table(gpus=tuple(widths), speeds=tuple(round(speed, 9) for speed in speeds))


@st.composite
def smooth_curves(draw: st.DrawFn, *, most_gpus: int = 64) -> SpeedupCurve:
    """Draw Amdahl, power-law and universal-scalability curves, extreme parameters included."""
    kind = draw(st.sampled_from(["amdahl", "power", "usl"]))
    speed, most = draw(numbers(0.3, 4.0)), draw(st.integers(1, most_gpus))
    fraction = draw(st.one_of(st.sampled_from([0.0, 1.0, 0.5]), st.floats(0.0, 1.0)))
    if kind == "amdahl":
        return Amdahl(parallel_fraction=fraction, speed=speed, max_gpus=most)
    if kind == "power":
        return PowerLaw(exponent=fraction, speed=speed, max_gpus=most)
    crosstalk = draw(st.one_of(st.just(0.0), numbers(1e-5, 0.5)))
    return UniversalScalability(contention=fraction, crosstalk=crosstalk, speed=speed, max_gpus=most)


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    curves: st.SearchStrategy[SpeedupCurve] | None = None,
    most_classes: int = 3,
    most_phases: int = 3,
    most_types: int = 2,
    weights: bool = True,
    startup: bool = True,
    rescale: bool = True,
) -> Problem:
    """Draw a problem small enough to list all its plans."""
    curves = tables() if curves is None else curves
    types = [f"t{i}" for i in range(draw(st.integers(1, most_types)))]
    prices = [draw(st.sampled_from([1.0, 1.0, 2.0, 0.7, 3.06])) for _ in types]
    classes = []
    for number in range(draw(st.integers(1, most_classes))):
        phases = []
        for _ in range(draw(st.integers(1, most_phases))):
            used = draw(st.sets(st.sampled_from(types), min_size=1))
            phases.append(
                Phase(
                    size_gpu_hours=draw(numbers(0.05, 20.0)),
                    speedups={name: draw(curves) for name in sorted(used)},
                )
            )
        zero = st.just(0.0)
        classes.append(
            JobClass(
                name=f"c{number}",
                phases=tuple(phases),
                arrivals_per_hour=draw(numbers(0.1, 10.0)),
                weight=draw(st.one_of(st.just(1.0), numbers(0.1, 10.0))) if weights else 1.0,
                startup_hours=draw(st.one_of(zero, numbers(0.01, 2.0))) if startup else 0.0,
                rescale_hours=draw(st.one_of(zero, numbers(0.01, 2.0))) if rescale else 0.0,
            )
        )
    return Problem(
        classes=tuple(classes),
        gpu_types=tuple(GpuType(name=n, usd_per_gpu_hour=p) for n, p in zip(types, prices, strict=True)),
    )


@st.composite
def coupled_classes(draw: st.DrawFn) -> CoupledClass:
    """Draw up to 4 phases and 4 columns, some options forbidden; whole numbers make ties."""
    phases, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    amounts = draw(st.sampled_from([st.integers(1, 4).map(float), numbers(0.01, 100.0)]))
    time = np.array([[draw(amounts) for _ in range(columns)] for _ in range(phases)])
    for row in time:
        row[[draw(st.integers(0, 3)) == 0 for _ in range(columns)]] = np.inf
        if np.isinf(row).all():
            row[0] = 1.0
    return CoupledClass(
        phase_time=time,
        rate=np.array([draw(amounts) for _ in range(columns)]),
        startup_hours=draw(st.sampled_from([0.0, 0.5])),
        rescale_hours=draw(st.sampled_from([1e-9, 0.5, 1e6])),
    )


def plan_cost_and_time(job_class: CoupledClass, plan: tuple[int, ...]) -> tuple[float, float]:
    """Return (cost, time) of one plan."""
    cost = time = 0.0
    for phase, column in enumerate(plan):
        hours = float(job_class.phase_time[phase, column])
        if phase == 0:
            hours += job_class.startup_hours
        elif plan[phase - 1] != column:
            hours += job_class.rescale_hours
        time += hours
        cost += hours * float(job_class.rate[column])
    return cost, time


def every_plan(job_class: CoupledClass) -> Floats:
    """Return (cost, time) of all allowed plans."""
    phases, columns = job_class.phase_time.shape
    points = np.array(
        [plan_cost_and_time(job_class, plan) for plan in itertools.product(range(columns), repeat=phases)]
    )
    return points[np.isfinite(points[:, 1])]


def shares() -> st.SearchStrategy[float]:
    """Return places of a budget between the least (0) and the largest useful one (1), and one beyond."""
    return st.one_of(st.sampled_from([0.0, 1.0, 1.5]), st.floats(0.0, 1.0))


def between(least: float, most: float, share: float) -> float:
    """Return the budget at a share of the way from `least` to `most`, never below `least` by rounding."""
    return max(least, least + share * (most - least))


def random_problem(
    rng: np.random.Generator,
    *,
    classes: int = 4,
    phases: int = 3,
    widths: int = 5,
    types: int = 2,
    rescale: bool = False,
) -> Problem:
    """Return a problem with noisy rising tables, weights and start-ups."""
    names = [f"t{i}" for i in range(types)]
    made = []
    for number in range(classes):
        parts = []
        for _ in range(phases):
            speedups: dict[str, SpeedupCurve] = {}
            for name in names:
                gpus = np.sort(rng.choice(WIDTHS, size=widths, replace=False))
                speeds = gpus ** rng.uniform(0.3, 1.0) * rng.lognormal(0.0, 0.2, size=widths)
                speedups[name] = Table(gpus=tuple(gpus.tolist()), speeds=tuple(speeds.tolist()))
            parts.append(Phase(size_gpu_hours=float(rng.lognormal(0.0, 1.0)), speedups=speedups))
        made.append(
            JobClass(
                name=f"c{number}",
                phases=tuple(parts),
                arrivals_per_hour=float(rng.lognormal(0.0, 1.0)),
                weight=float(rng.choice([0.5, 1.0, 3.0])),
                startup_hours=float(rng.choice([0.0, 0.1])),
                rescale_hours=float(rng.choice([0.05, 0.3])) if rescale else 0.0,
            )
        )
    return Problem(
        classes=tuple(made),
        gpu_types=tuple(GpuType(name=n, usd_per_gpu_hour=float(rng.uniform(0.5, 3.0))) for n in names),
    )


# Enumeration


def steps_of(problem: Problem, phase: Phase) -> list[tuple[str, int, float, float]]:
    """Return (type, width, hours, dollars per hour) of every option of a phase, overheads left out."""
    return [
        (name, k, phase.size_gpu_hours / float(curve.speed_at(k)), problem.price_of(name) * k)
        for name, curve in phase.speedups.items()
        for k in curve.whole_widths().tolist()
    ]


def plan_totals(problem: Problem, job_class: JobClass) -> Iterator[tuple[float, float]]:
    """Yield (spend, hours) of one job on every plan of the class, overheads included."""
    for plan in itertools.product(*(steps_of(problem, phase) for phase in job_class.phases)):
        spend = hours = 0.0
        before = None
        for name, k, work, rate in plan:
            overhead = job_class.startup_hours if before is None else job_class.rescale_hours
            here = work + (overhead if before != (name, k) else 0.0)
            before = name, k
            hours += here
            spend += rate * here
        yield spend, hours


def undominated(points: Floats) -> Floats:
    """Return the (cost, time) rows that are faster than every cheaper row by more than rounding."""
    points = points[np.lexsort((points[:, 1], points[:, 0]))]
    best = np.concatenate([[np.inf], np.minimum.accumulate(points[:, 1])[:-1]])
    return points[points[:, 1] < best * (1 - 1e-12)]


def all_points(problem: Problem) -> Floats:
    """Return (cost, weighted time) of every undominated pure answer, by enumeration."""
    total = np.zeros((1, 2))
    for job_class in problem.classes:
        own = np.array(list(plan_totals(problem, job_class)))
        own *= job_class.arrivals_per_hour * np.array([1.0, job_class.weight])
        total = undominated((total[:, None, :] + undominated(own)[None]).reshape(-1, 2))
    return total


def least_pure(points: Floats, budget: float) -> float:
    """Return the least time of a pure answer within the budget."""
    return float(points[points[:, 0] <= budget * (1 + 1e-12), 1].min())


def least_mixed(points: Floats, budget: float) -> float:
    """Return the least time of any mix of pure answers: the lowest chord over the budget."""
    left = points[points[:, 0] <= budget * (1 + 1e-12)]
    right = points[points[:, 0] > budget * (1 + 1e-12)]
    best = float(left[:, 1].min())
    if len(right):
        share = (budget - left[:, None, 0]) / (right[None, :, 0] - left[:, None, 0])
        mixed = left[:, None, 1] + np.maximum(share, 0.0) * (right[None, :, 1] - left[:, None, 1])
        best = min(best, float(mixed.min()))
    return best


# HiGHS


def flow_program(problem: Problem) -> tuple[Floats, Floats, sparse.csr_matrix]:
    """Return (time, cost, conservation) of one unit of flow per class through (phase, option) layers.

    An edge leads from an option of the phase before to an option of this phase. It carries this phase's time
    and cost, with the rescale overhead if the options differ. One unit leaves each class's source.
    """
    time, cost = [], []
    rows, cols, values = [], [], []
    nodes = 0
    for job_class in problem.classes:
        source, arrivals = nodes, job_class.arrivals_per_hour
        nodes += 1
        before: list[tuple[int, tuple[str, int] | None]] = [(source, None)]
        for phase in job_class.phases:
            here = []
            for name, k, work, rate in steps_of(problem, phase):
                here.append((nodes, (name, k)))
                for tail, width in before:
                    overhead = job_class.startup_hours if width is None else job_class.rescale_hours
                    hours = work + (overhead if width != (name, k) else 0.0)
                    edge = len(time)
                    time.append(arrivals * job_class.weight * hours)
                    cost.append(arrivals * rate * hours)
                    rows += [tail, nodes]
                    cols += [edge, edge]
                    values += [1.0, -1.0]
                nodes += 1
            before = here
        for tail, _ in before:  # Edges that leave the network at no cost.
            rows.append(tail)
            cols.append(len(time))
            values.append(1.0)
            time.append(0.0)
            cost.append(0.0)
    matrix = sparse.csr_matrix((values, (rows, cols)), shape=(nodes, len(time)))
    return np.array(time), np.array(cost), matrix


def _sources(problem: Problem) -> Floats:
    """Return one at each class's source, zero elsewhere."""
    supply: list[float] = []
    for job_class in problem.classes:
        supply.append(1.0)
        supply += [0.0] * sum(len(steps_of(problem, phase)) for phase in job_class.phases)
    return np.array(supply)


def highs_mixed(problem: Problem, budget: float) -> float:
    """Return the least weighted sum of hours of the linear program, by HiGHS."""
    time, cost, flow = flow_program(problem)
    found = linprog(
        time,
        A_ub=sparse.csr_matrix(cost),
        b_ub=[budget],
        A_eq=flow,
        b_eq=_sources(problem),
        bounds=(0, None),
        method="highs",
    )
    assert found.status == 0, found.message
    return float(found.fun)


def highs_pure(problem: Problem, budget: float) -> float:
    """Return the least weighted sum of hours with every choice whole, by HiGHS with no gap allowed."""
    time, cost, flow = flow_program(problem)
    supply = _sources(problem)
    found = milp(
        time,
        constraints=[
            LinearConstraint(flow, supply, supply),
            LinearConstraint(sparse.csr_matrix(cost), -np.inf, budget),
        ],
        integrality=np.ones(len(time), dtype=np.int64),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0.0},
    )
    assert found.status == 0, found.message
    return float(found.fun)


def weighted_hours(problem: Problem, jct_by_class: Sequence[float]) -> float:
    """Return the sum of arrivals x weight x JCT."""
    return sum(
        c.arrivals_per_hour * c.weight * hours for c, hours in zip(problem.classes, jct_by_class, strict=True)
    )
