"""Independent solvers agree: HiGHS on hundreds of random problems, CVXPY on continuous ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from strategies_planner import a_class, between, highs_mixed, highs_pure, one_type, random_problem

from policies.model import JobClass, Problem
from policies.optimum.boa import solve
from policies.optimum.continuous import ContinuousFrontier
from policies.optimum.frontier import MixedFrontier
from policies.speedup import Amdahl, PowerLaw, SpeedupCurve, Table, UniversalScalability

pytestmark = pytest.mark.lab

SEEDS = range(10)


@pytest.fixture(scope="module")
def _cvxpy() -> None:
    """Import CVXPY only where a test needs it, because the import takes a second."""
    global cp  # noqa: PLW0603
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its solvers warn on import
        import cvxpy as cp


@pytest.mark.parametrize("rescale", [False, True], ids=["free", "coupled"])
@pytest.mark.parametrize("seed", SEEDS)
def test_highs_agrees_on_the_mixed_optimum(seed: int, rescale: bool) -> None:
    """HiGHS solves a linear program of flows through (phase, option) layers, for 200 problems."""
    rng = np.random.default_rng([seed, rescale])
    for _ in range(10):
        problem = random_problem(
            rng, classes=int(rng.integers(1, 6)), phases=int(rng.integers(2, 5)), rescale=rescale
        )
        frontier = MixedFrontier.of(problem)
        budget = between(
            frontier.cheapest_feasible_spend, frontier.largest_useful_spend, rng.uniform(0.01, 1.1)
        )
        hours = frontier.solution_at(budget).weighted_mean_jct_hours * frontier.weighted_arrivals

        assert hours == pytest.approx(highs_mixed(problem, budget), rel=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_highs_agrees_on_the_pure_optimum(seed: int) -> None:
    """HiGHS solves a mixed-integer program with no gap allowed, for 100 problems."""
    rng = np.random.default_rng([seed, 2])
    for _ in range(10):
        problem = random_problem(
            rng, classes=int(rng.integers(1, 5)), phases=int(rng.integers(1, 4)), types=1
        )
        compare_pure(problem, float(rng.uniform(0.01, 0.9)))


@pytest.mark.parametrize("seed", SEEDS)
def test_highs_agrees_on_the_pure_optimum_of_coupled_classes(seed: int) -> None:
    """HiGHS solves flows with whole edges, for 30 problems."""
    rng = np.random.default_rng([seed, 3])
    for _ in range(3):
        problem = random_problem(rng, classes=2, phases=3, widths=4, types=1, rescale=True)
        compare_pure(problem, float(rng.uniform(0.01, 0.9)))


def compare_pure(problem: Problem, share: float) -> None:
    """Assert that HiGHS, which meets its budget only to 1e-6, lies between two budgets a little apart."""
    frontier = MixedFrontier.of(problem)
    budget = between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, share)
    here, above = (solve(problem, b, version="integer-pure") for b in (budget, budget * (1 + 1e-5)))
    found = highs_pure(problem, budget) / frontier.weighted_arrivals

    assert found <= here.weighted_mean_jct_hours * (1 + 1e-7)
    assert found >= above.weighted_mean_jct_hours * (1 - 1e-7)


def cvxpy_hours(problem: Problem, budget: float) -> float:
    """Return the least weighted sum of hours on one GPU type, as a convex program in z = 1 / speed."""
    objective, spend, limits = [], [], []
    price = problem.price_of("gpu")
    for job_class in problem.classes:
        for number, phase in enumerate(job_class.phases):
            startup = job_class.startup_hours if number == 0 else 0.0
            z = cp.Variable()
            per_work, gpus, box = CVXPY_FORMS[type(phase.speedups["gpu"])](phase.speedups["gpu"], z)
            limits += box
            rate = job_class.arrivals_per_hour
            objective.append(rate * job_class.weight * (phase.size_gpu_hours * z + startup))
            spend.append(
                rate * price * (phase.size_gpu_hours * per_work + (startup * gpus if startup else 0.0))
            )
    program = cp.Problem(cp.Minimize(sum(objective)), [sum(spend) <= budget, *limits])
    program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert program.status == "optimal"
    return float(program.value)


Form = "tuple[cp.Expression, cp.Expression, list[cp.Constraint]]"


def of_table(curve: Table, z: cp.Variable) -> Form:
    """Return segments of the envelope: s = alpha + beta k, so k z = (1 - alpha z) / beta (as the authors)."""
    widths, speeds = curve.envelope()
    beta = np.diff(speeds) / np.diff(widths)
    alpha = speeds[:-1] - beta * widths[:-1]
    lines = [(1.0 - a * z) / b for a, b in zip(alpha, beta, strict=True)]
    per_work = cp.maximum(widths[0] / speeds[0], *lines)
    return per_work, per_work, [z >= 1 / speeds[-1], z <= 1 / speeds[0]]


def of_amdahl(curve: Amdahl, z: cp.Variable) -> Form:
    """K = p / (v z - (1 - p)), convex in z, and k z too."""
    p, v = curve.parallel_fraction, curve.speed
    inverse = cp.inv_pos(v * z - (1 - p))
    least, most = 1 / float(curve.speed_at(curve.max_gpus)), 1 / float(curve.speed_at(curve.min_gpus))
    return p / v * (1 + (1 - p) * inverse), p * inverse, [z >= least, z <= most]


def of_power(curve: PowerLaw, z: cp.Variable) -> Form:
    """K = (v z)^(-1/a), k z = (v z)^(1 - 1/a) / v."""
    a, v = curve.exponent, curve.speed
    least, most = 1 / float(curve.speed_at(curve.max_gpus)), 1 / float(curve.speed_at(curve.min_gpus))
    return cp.power(v * z, 1 - 1 / a) / v, cp.power(v * z, -1 / a), [z >= least, z <= most]


def of_usl(curve: UniversalScalability, z: cp.Variable) -> Form:
    """In k: z >= ((1 - sigma) / k + (sigma - kappa) + kappa k) / v, k z = (... + kappa k^2) / v."""
    s, c, v = curve.contention, curve.crosstalk, curve.speed
    k = cp.Variable()
    time = ((1 - s) * cp.inv_pos(k) + (s - c) + c * k) / v
    return ((1 - s) + (s - c) * k + c * cp.square(k)) / v, k, [z >= time, k >= 1, k <= curve.max_gpus]


CVXPY_FORMS: dict[type, Callable[..., Form]] = {
    Table: of_table,
    Amdahl: of_amdahl,
    PowerLaw: of_power,
    UniversalScalability: of_usl,
}


def random_curve(rng: np.random.Generator, kind: str) -> SpeedupCurve:
    """Return a random curve of one kind with several widths."""
    speed = float(rng.uniform(0.5, 2.0))
    if kind == "amdahl":
        return Amdahl(parallel_fraction=float(rng.uniform(0.6, 0.99)), speed=speed)
    if kind == "power":
        return PowerLaw(exponent=float(rng.choice([0.25, 0.5, 0.75, 0.8])), speed=speed)
    if kind == "usl":
        return UniversalScalability(
            contention=float(rng.uniform(0.0, 0.1)), crosstalk=float(rng.uniform(1e-4, 1e-2)), speed=speed
        )
    widths = np.array([1, 2, 4, 8, 16])
    speeds = speed * widths ** rng.uniform(0.4, 0.95) * rng.lognormal(0.0, 0.1, 5)
    return Table(gpus=tuple(widths.tolist()), speeds=tuple(speeds.tolist()))


def random_smooth_problem(rng: np.random.Generator, kinds: tuple[str, ...], *, startup: bool) -> Problem:
    """Return three classes of two phases on one type at price 2.5."""
    classes: list[JobClass] = []
    for number in range(3):
        phases = [(float(rng.lognormal()), random_curve(rng, str(rng.choice(kinds)))) for _ in range(2)]
        classes.append(
            a_class(
                f"c{number}",
                *phases,
                arrivals_per_hour=float(rng.lognormal()),
                weight=float(rng.choice([0.5, 1.0, 3.0])),
                startup_hours=0.2 if startup else 0.0,
            )
        )
    return one_type(*classes, price=2.5)


@pytest.mark.parametrize(
    ("kinds", "startup"),
    [
        (("table",), False),
        (("amdahl",), False),
        (("power",), False),
        (("usl",), False),
        (("amdahl", "power", "usl"), True),
        (("table", "amdahl", "power", "usl"), False),
    ],
    ids=["tables", "amdahl", "power", "usl", "with start-up", "all"],
)
@pytest.mark.filterwarnings("ignore:Power atom:UserWarning")
@pytest.mark.usefixtures("_cvxpy")
@pytest.mark.parametrize("seed", range(3))
def test_cvxpy_agrees_on_the_continuous_optimum(seed: int, kinds: tuple[str, ...], startup: bool) -> None:
    """The JCT is equal to 1e-6 at two budgets for each problem."""
    rng = np.random.default_rng([seed, len(kinds), startup])
    problem = random_smooth_problem(rng, kinds, startup=startup)
    frontier = ContinuousFrontier.of(problem)
    for share in (0.1, 0.5):
        budget = between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, share)
        hours, _ = frontier.curve_at(np.array([budget]))

        assert float(hours[0]) == pytest.approx(cvxpy_hours(problem, budget), rel=1e-6)


def test_a_table_with_a_start_up_is_solved_along_its_envelope() -> None:
    """The JCT is the least of seven hundred thousand widths that the budget pays for."""
    table = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.8, 3.0, 4.0))
    problem = one_type(a_class("c", (2.0, table), startup_hours=0.3))
    widths = np.linspace(1.0, 8.0, 700_001)
    hours = 2.0 / table.speed_at(widths) + 0.3
    for budget in (3.0, 4.0, 6.0):
        fits = hours[widths * hours <= budget]

        assert solve(problem, budget, version="continuous").mean_jct_hours == pytest.approx(
            float(fits.min()), rel=1e-5
        )
