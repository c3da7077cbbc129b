"""A limit beside the budget: a lower bound of the waiting within both, beside a linear programme."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from boa_daemon.errors import InputError
from boa_daemon.planning.curve import Curve
from boa_daemon.planning.second_limit import Limits, short_fraction, spends_of, within
from boa_daemon.tick.facts.limits import Caps
from policies.model import GpuType, InstanceType, JobClass, Phase, Problem
from policies.optimum.swing import swings
from policies.speedup import Table

SPEEDS = {"big": {1: 1.0, 2: 1.9, 4: 3.4, 8: 5.6}, "small": {1: 0.5, 2: 0.9}}
PRICES = {"big": 3.0, "small": 0.6}
MACHINES = {
    "big": InstanceType(name="big.8", gpus=8, usd_per_hour=24.0, gpu_type="big"),
    "small": InstanceType(name="small.1", gpus=1, usd_per_hour=0.6, gpu_type="small"),
}
RATES = {"short": (4.0, 0.5), "long": (0.5, 12.0)}


def problem_of(kinds: tuple[str, ...]) -> Problem:
    """Return two classes on these GPU types."""
    return Problem(
        gpu_types=tuple(GpuType(name=kind, usd_per_gpu_hour=PRICES[kind]) for kind in kinds),
        classes=tuple(
            JobClass(
                name=name,
                arrivals_per_hour=rate,
                phases=(
                    Phase(
                        size_gpu_hours=size,
                        speedups={
                            kind: Table(gpus=tuple(SPEEDS[kind]), speeds=tuple(SPEEDS[kind].values()))
                            for kind in kinds
                        },
                    ),
                ),
            )
            for name, (rate, size) in RATES.items()
        ),
    )


def by_programme(kinds: tuple[str, ...], budget: float, nodes: float) -> float | None:
    """Return the least mean JCT over all mixes of widths within a budget and a number of nodes."""
    waits, dollars, held, owner = [], [], [], []
    for number, (rate, size) in enumerate(RATES.values()):
        for kind in kinds:
            for gpus, speed in SPEEDS[kind].items():
                hours = size / speed
                waits.append(rate * hours)
                dollars.append(rate * hours * gpus * PRICES[kind])
                held.append(rate * hours * gpus / MACHINES[kind].gpus)
                owner.append(number)
    found = linprog(
        waits,
        A_ub=np.array([dollars, held]),
        b_ub=[budget, nodes],
        A_eq=np.array([[float(one == number) for one in owner] for number in range(len(RATES))]),
        b_eq=np.ones(len(RATES)),
    )
    return float(found.fun) / sum(rate for rate, _ in RATES.values()) if found.success else None


@pytest.mark.parametrize("kinds", [("big",), ("big", "small")])
@pytest.mark.parametrize("budget", [10.0, 14.0, 24.0, 30.0, 45.0, 90.0])
@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8, 13, 40])
def test_the_bound_is_below_the_best_mix_and_close_to_it(
    kinds: tuple[str, ...], budget: float, nodes: int
) -> None:
    """Where it says that no plan is within both, none is."""
    machines = {kind: MACHINES[kind] for kind in kinds}
    found, best = within(problem_of(kinds), machines, budget, nodes), by_programme(kinds, budget, nodes)

    if found is None:
        assert best is None
    elif best is not None:
        assert 0.97 * best <= found[0] <= best * (1.0 + 1e-9)
        assert 0.0 < found[1] <= budget * (1.0 + 1e-9)


@pytest.mark.parametrize("budget", [24.0, 45.0, 90.0])
@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8, 40])
def test_a_limit_binds_where_jobs_wait_longer_under_it(budget: float, nodes: int) -> None:
    """And more money under it brings no less than its floor."""
    kinds = ("big", "small")
    curve = Curve.of(problem_of(kinds), "integer-mixed")
    limit = Limits(nodes=nodes, machines=MACHINES).binding(curve, budget)
    under, without = by_programme(kinds, budget, nodes), by_programme(kinds, budget, 1e9)
    endless = by_programme(kinds, 1e9, nodes)
    assert without is not None

    if limit is None:
        assert under is not None
        assert under <= without * 1.04
    else:
        assert limit.setting == f"max_instances = {nodes}"
        assert limit.without_mean_jct_hours == pytest.approx(without)
        assert limit.floor_mean_jct_hours == (None if endless is None else pytest.approx(endless))
        assert limit.short_fraction is not None
        assert under is None or under > without or limit.short_fraction > 0.01


@pytest.mark.parametrize("nodes", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("budget", [24.0, 45.0])
def test_how_often_the_plan_needs_more_nodes_is_that_of_random_arrivals(nodes: int, budget: float) -> None:
    """Counted over draws of how many jobs hold each width of the plan."""
    curve = Curve.of(problem_of(("big", "small")), "integer-mixed")
    rng, needed = np.random.default_rng(0), np.zeros(100_000, dtype=int)
    for swing in swings(curve.problem, curve.solution_at(budget)):
        gpus = sum(width * rng.poisson(mean, len(needed)) for width, mean in swing.mean_jobs.items())
        needed += -(-gpus // MACHINES[swing.gpu_type].gpus)

    assert short_fraction(curve, MACHINES, budget, nodes) == pytest.approx(
        float(np.mean(needed > nodes)), abs=0.01
    )


@pytest.mark.parametrize(
    ("caps", "left"),
    [
        (Caps(usd_per_day=480.0), ("usd_per_day_cap = 480", 20.0)),
        (Caps(usd_per_month=14600.0), ("usd_per_month_cap = 14600", 20.0)),
        (Caps(usd_per_hour=20.0), ("usd_per_hour_ceiling = 20", 20.0)),
        (Caps(usd_per_hour=20.0, standing_usd_per_hour=1.5), ("usd_per_hour_ceiling = 20", 18.5)),
        (Caps(usd_per_hour=1.0, standing_usd_per_hour=1.5), ("usd_per_hour_ceiling = 1", 0.0)),
    ],
)
def test_a_cap_is_a_budget_of_its_own(caps: Caps, left: tuple[str, float]) -> None:
    """What the site costs beside its jobs is set aside first; the lowest of several caps binds."""
    assert spends_of(caps) == (left,)
    curve = Curve.of(problem_of(("big", "small")), "integer-mixed")
    spends = (("loose", 1e6), *spends_of(caps), ("looser", 1e7))
    limit = Limits(machines=MACHINES, spends=spends).binding(curve, 40.0)

    assert limit is not None
    assert (limit.setting, limit.spend) == left
    best = by_programme(("big", "small"), left[1], 1e9)
    assert (
        limit.mean_jct_hours == limit.floor_mean_jct_hours == (None if best is None else pytest.approx(best))
    )


def test_nothing_binds_above_what_the_plan_spends_or_below_the_least_budget() -> None:
    """A budget that cannot run every job is another matter, and commitments pay for usage beside the caps."""
    curve = Curve.of(problem_of(("big", "small")), "integer-mixed")

    assert Limits(machines=MACHINES, nodes=1000, spends=(("cap", 1e6),)).binding(curve, 40.0) is None
    assert Limits(machines=MACHINES, nodes=1).binding(curve, 0.5 * curve.cheapest) is None
    assert Limits(machines=MACHINES).binding(curve, 40.0) is None
    assert spends_of(Caps(usd_per_hour=20.0), covered_per_hour=5.0)[0][1] == 25.0
    assert spends_of(replace(Caps(), instances=3)) == ()
    with pytest.raises(InputError, match="--max-nodes 3 needs machines"):
        Limits(nodes=3, nodes_setting="--max-nodes ", machines={})
