"""The bound of few jobs, beside the best schedules of tiny workloads."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest
from best_schedules import Best, TinyCase, best_schedule, tiny_cases
from sampling import sampled

from boa_daemon.sim.bounds.boot_bound import (
    NodeSupply,
    SearchEffort,
    few_jobs,
    lower_bound_with_boots_hours,
)
from boa_daemon.testing import a_class, a_trace, an_instance_type
from policies.model import GpuType, Problem
from policies.speedup import Table

LONE = TinyCase(
    arrivals=(0,), lengths=((4, 2, 1),), node_gpus=1, boot=2, overhead=1, max_nodes=None, money=100
)
PAIR = TinyCase(
    arrivals=(0, 0), lengths=((2, 2, 2), (2, 2, 2)), node_gpus=1, boot=3, overhead=0, max_nodes=None, money=10
)


@pytest.mark.parametrize(
    ("case", "steps", "money"),
    [
        # A boot of 2, an overhead of 1, and a step at four GPUs.
        (LONE, 4, 4 * 4),
        # The same on two GPUs: 2 boots of 2, and 3 steps on each.
        (replace(LONE, money=15), 5, 2 * 5),
        (replace(LONE, money=9), 7, 7),
        (replace(LONE, node_gpus=4, money=19), 4, 16),
        # Whole nodes: one GPU costs as much as four.
        (replace(LONE, node_gpus=4, money=16), 4, 16),
        # Each on its own node, or both in turn on one.
        (PAIR, 10, 10),
        (replace(PAIR, money=9), 12, 7),
        (replace(PAIR, max_nodes=1), 12, 7),
        # They share a node of two GPUs.
        (replace(PAIR, node_gpus=2, money=10), 10, 10),
        # The second comes later: the node waits for 1, or is booted twice.
        (replace(PAIR, arrivals=(0, 6), money=8), 7, 8),
        (replace(PAIR, arrivals=(0, 9), money=10), 7, 10),
    ],
)
def test_the_best_schedule_of_cases_solved_by_hand(case: TinyCase, steps: int, money: int) -> None:
    """The exhaustive search finds the least sum of completion times, and the money for it."""
    best = best_schedule(case)

    assert best is not None
    assert (best.steps, best.money) == (steps, money)


def test_too_little_money_has_no_schedule() -> None:
    """A boot, an overhead and four steps on one GPU cost 7."""
    assert best_schedule(replace(LONE, money=6)) is None
    assert few_jobs(*replace(LONE, money=6).workload).least_hours(100).hours == float("inf")


def test_the_bound_is_close_below_the_best_schedule_of_random_cases() -> None:
    """Steps of a half count too. Each bound is below the best; the median is 0.97 of it, the worst 0.85."""
    ratios = []
    for case, coarse in tiny_cases(min(60, sampled(160)), seed=3):
        halves = best_schedule(case.finer(2))
        assert halves is not None
        best = min(coarse.steps, halves.steps / 2)
        found = few_jobs(*case.workload).least_hours(400)
        ratios.append(found.hours * 4.0 / best)

    assert max(ratios) <= 1.0 + 1e-9
    assert median(ratios) >= 0.97
    assert min(ratios) >= 0.85


def test_a_search_that_stops_early_gives_a_lower_bound() -> None:
    """More programs never lower the bound."""
    for case, best in tiny_cases(8, seed=11):
        bounds = [few_jobs(*case.workload).least_hours(programs).hours for programs in (1, 10, 1000)]

        assert bounds == sorted(bounds)
        assert bounds[-1] <= _hours(best) * (1.0 + 1e-9)


def _hours(best: Best) -> float:
    return best.steps * 0.25


def test_a_cap_holds_for_both_types_of_nodes_at_any_time_and_not_for_their_sum() -> None:
    """With a cap of one node, a node of each type may be on, one after the other."""
    only_a = a_class("a", sizes=[1.0], curve=Table(gpus=(1,), speeds=(1.0,)), gpu_type="a")
    only_b = a_class("b", sizes=[1.0], curve=Table(gpus=(1,), speeds=(1.0,)), gpu_type="b")
    problem = Problem(
        classes=(only_a, only_b),
        gpu_types=tuple(GpuType(name=name, usd_per_gpu_hour=1.0) for name in "ab"),
        budget_unit="usd_per_hour",
    )
    supply = NodeSupply(
        instance_types={name: an_instance_type(gpu_type=name, gpus=1) for name in "ab"},
        boot_hours=0.5,
        max_nodes=1,
    )
    trace = a_trace(0.0, 0.0, class_names=["a", "b"])

    assert lower_bound_with_boots_hours(trace, problem, 10.0, supply) == pytest.approx(2.0, rel=1e-3)


def test_without_programs_the_bound_is_that_of_prices() -> None:
    """The search over orders raises the bound of two jobs that share a node of four GPUs."""
    case = TinyCase(
        arrivals=(0, 3, 5),
        lengths=((2, 1, 1), (2, 2, 2), (4, 3, 2)),
        node_gpus=4,
        boot=0,
        overhead=0,
        max_nodes=None,
        money=12,
    )

    prices = lower_bound_with_boots_hours(*case.workload, effort=SearchEffort(programs=0))
    orders = lower_bound_with_boots_hours(*case.workload)

    assert orders > 2.0 * prices
