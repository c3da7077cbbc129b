"""Real widths: the fastest width in closed form, and the best width at a multiplier against a grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boa_daemon.testing import a_class, a_problem
from policies.model import GpuType, JobClass, Phase, Problem
from policies.optimum.real_widths import _breakpoints, best_width, lay_out, least_lagrangian, real_speed
from policies.speedup import Amdahl, PowerLaw, SpeedupCurve, Table, UniversalScalability


def test_a_curve_that_falls_again_is_fastest_at_its_peak() -> None:
    """The peak is at sqrt((1 - contention) / crosstalk); a curve without a peak is fastest at its widest."""
    curve = UniversalScalability(contention=0.1, crosstalk=0.004, max_gpus=64)
    best = best_width(curve)
    assert best == pytest.approx(15.0)
    around = curve.speed_at(np.array([0.99 * best, best, 1.01 * best]))
    assert around.argmax() == 1
    flat = UniversalScalability(contention=0.1, crosstalk=0.0, max_gpus=64)
    assert [best_width(flat), best_width(Amdahl(parallel_fraction=0.9, max_gpus=32))] == [64.0, 32.0]


@pytest.mark.parametrize("step", [0.01, 0.1])
def test_the_grid_of_widths_is_as_fine_as_its_step(step: float) -> None:
    """Wide neighbours differ by at most the step; whole widths from 2 to 32 are in the grid."""
    curve = Amdahl(parallel_fraction=0.9, min_gpus=2, max_gpus=4096)
    problem = a_problem(a_class(curve=curve))
    types, widths = _breakpoints(problem, problem.classes[0], step=step)
    assert set(types.tolist()) == {0}
    assert (widths[0], widths[-1]) == (2.0, 4096.0)
    assert np.all(np.diff(widths) > 0.0)
    assert np.all((widths[1:] / widths[:-1])[widths[:-1] >= 1.0 / step] <= 1.0 + step + 1e-9)
    assert set(range(2, 33)) <= set(widths.tolist())


CURVES: dict[str, SpeedupCurve] = {
    "amdahl": Amdahl(parallel_fraction=0.9, speed=1.5, min_gpus=2, max_gpus=32),
    "power": PowerLaw(exponent=0.6, speed=0.5, max_gpus=16),
    "falls": UniversalScalability(contention=0.05, crosstalk=0.01, speed=2.0, max_gpus=40),
    "table": Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.8, 3.0, 4.0)),
    "late": Table(gpus=(2, 4, 8), speeds=(1.0, 3.0, 4.0)),
    "one": Table(gpus=(4,), speeds=(3.0,)),
}
MULTIPLIERS = (1e-9, 0.03, 0.2, 1.0, 7.0)


def two_types(startup: float, *names: str) -> Problem:
    """Return a class of weight two per curve at 1.5 dollars; the first also runs half as fast at 0.5."""
    curves = [CURVES[name] for name in names]
    half = replace(curves[0], speed=curves[0].speed / 2.0) if hasattr(curves[0], "speed") else None
    classes = tuple(
        JobClass(
            name=name,
            weight=2.0,
            arrivals_per_hour=1.0 + number,
            startup_hours=startup,
            phases=(
                Phase(
                    size_gpu_hours=6.0,
                    speedups={"gpu": curve} | ({"old": half} if half is not None and not number else {}),
                ),
            ),
        )
        for number, (name, curve) in enumerate(zip(names, curves, strict=True))
    )
    prices = (GpuType(name="old", usd_per_gpu_hour=0.5), GpuType(name="gpu", usd_per_gpu_hour=1.5))
    return Problem(classes=classes, gpu_types=prices)


@pytest.mark.parametrize("startup", [0.0, 0.25])
@pytest.mark.parametrize(
    "names", [("amdahl", "power", "falls", "table", "late", "one"), *((one,) for one in CURVES)]
)
def test_no_width_of_a_fine_grid_costs_less_than_the_chosen_one(
    startup: float, names: tuple[str, ...]
) -> None:
    """The cost is weight x hours + multiplier x spend, on the GPU type of the chosen term."""
    problem = two_types(startup, *names)
    found = lay_out(problem)
    chosen = found.best(np.array(MULTIPLIERS))
    prices = [gpu.usd_per_gpu_hour for gpu in problem.gpu_types]
    for group, job_class in enumerate(problem.classes):
        assert (found.arrivals[group], found.weight[group], found.owner[group]) == (1.0 + group, 2.0, group)
        for row, multiplier in enumerate(MULTIPLIERS):
            kind = int(found.gpu_type[chosen.term[row, group]])
            gpus, hours = chosen.gpus[row, group], chosen.hours[row, group]
            curve = job_class.phases[0].speedups[problem.gpu_types[kind].name]
            assert hours == pytest.approx(startup + 6.0 / float(real_speed(curve, np.array([gpus]))[0]))
            assert chosen.spend[row, group] == pytest.approx(prices[kind] * gpus * hours)
            cost = 2.0 * hours + multiplier * chosen.spend[row, group]
            for name, curve in job_class.phases[0].speedups.items():
                price = prices[[gpu.name for gpu in problem.gpu_types].index(name)]
                grid = np.linspace(curve.min_gpus, curve.max_gpus, 4001)
                took = startup + 6.0 / real_speed(curve, grid)
                assert cost <= float((2.0 * took + multiplier * price * grid * took).min()) * (1.0 + 1e-9)
    fastest = found.fastest(1e-9)
    for group, job_class in enumerate(problem.classes):
        best = min(
            startup + 6.0 / float(real_speed(curve, np.array([min(best_width(curve), curve.max_gpus)]))[0])
            for curve in job_class.phases[0].speedups.values()
        )
        assert fastest.hours[0, group] == pytest.approx(best)
    arrivals = 1.0 + np.arange(len(names))
    assert found.total_spend(chosen) == pytest.approx(chosen.spend @ arrivals)
    assert found.total_hours(chosen) == pytest.approx(chosen.hours @ arrivals * 2.0)
    assert found.is_stepwise is all(
        isinstance(CURVES[name], Table) and (startup == 0.0 or name == "one") for name in names
    )


@pytest.mark.parametrize("multiplier", MULTIPLIERS[1:])
def test_a_coupled_plan_is_between_the_bound_and_every_pair_of_whole_widths(multiplier: float) -> None:
    """Two phases have a rescale in between; the bound is within 3 % of the plan."""
    early, late = CURVES["power"], CURVES["amdahl"]
    phases = tuple(Phase(size_gpu_hours=6.0, speedups={"gpu": curve}) for curve in (early, late))
    one = JobClass(name="c", weight=2.0, startup_hours=0.25, rescale_hours=0.1, phases=phases)
    problem = Problem(classes=(one,), gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=1.5),))
    found = lay_out(problem)
    chosen = found.best(np.array([multiplier]))
    cost = 2.0 * float(chosen.hours[0, 0]) + multiplier * float(chosen.spend[0, 0])
    pairs = []
    for k in range(early.min_gpus, early.max_gpus + 1):
        for n in range(late.min_gpus, late.max_gpus + 1):
            first = 0.25 + 6.0 / float(early.speed_at([k])[0])
            then = 6.0 / float(late.speed_at([n])[0]) + (0.1 if n != k else 0.0)
            pairs.append(2.0 * (first + then) + multiplier * 1.5 * (k * first + n * then))
    bound = least_lagrangian(problem, one, multiplier)
    assert bound <= cost * (1.0 + 1e-9)
    assert cost <= min(pairs) * (1.0 + 1e-6)
    assert bound >= 0.97 * cost
    assert found.is_stepwise
