"""The best fixed widths on a fleet: the simulated queue, and the widths chosen from it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_class
from policies.model import JobClass, Phase, Width
from policies.rivals.fixed_widths import (
    Arrival,
    WidthPlan,
    _hull,
    _plans,
    best_fixed_widths,
    mean_response_hours,
)
from policies.rivals.width_menu import WidthMenu
from policies.speedup import Table

CURVE = Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.0))
DRAWN = st.lists(
    st.tuples(st.floats(0.0, 10.0), st.floats(0.1, 3.0), st.integers(1, 4)), min_size=1, max_size=25
).map(lambda found: [Arrival(hour=at, hours=hours, gpus=gpus) for at, hours, gpus in sorted(found)])


def a_menu(*classes: JobClass) -> WidthMenu:
    """Return a menu of one GPU type."""
    return WidthMenu(classes={c.name: c for c in classes}, gpu_type="gpu")


def test_a_short_job_interrupts_a_long_one() -> None:
    """One GPU: 3 h from 0, 1 h from 1; the short job takes 1 h, and the long one 4 h."""
    jobs = [Arrival(hour=0.0, hours=3.0, gpus=1), Arrival(hour=1.0, hours=1.0, gpus=1)]

    assert mean_response_hours(jobs, gpus=1) == pytest.approx((1.0 + 4.0) / 2)


def test_a_job_that_does_not_fit_is_passed_over() -> None:
    """Of three GPUs the first job takes two; another two do not fit beside it, and one does."""
    jobs = [Arrival(hour=0.0, hours=hours, gpus=gpus) for hours, gpus in ((1.0, 2), (1.5, 2), (4.0, 1))]

    assert mean_response_hours(jobs, gpus=3) == pytest.approx((1.0 + 2.5 + 4.0) / 3)


@given(jobs=DRAWN)
def test_with_room_for_all_jobs_no_job_waits(jobs: list[Arrival]) -> None:
    """The mean response is the mean of the jobs' own hours."""
    mean = sum(job.hours for job in jobs) / len(jobs)

    assert mean_response_hours(jobs, gpus=100) == pytest.approx(mean)


@given(jobs=DRAWN)
def test_on_one_gpu_waiting_is_never_longer_than_first_come_first_served(jobs: list[Arrival]) -> None:
    """Shortest remaining time first is optimal on one machine; Lindley's recursion gives the other mean."""
    end = waited = 0.0
    for job in jobs:
        end = max(end, job.hour) + job.hours
        waited += end - job.hour

    assert mean_response_hours(jobs, gpus=1) <= waited / len(jobs) + 1e-9


def test_in_a_large_fleet_jobs_have_their_fastest_width() -> None:
    """400 GPUs for one job an hour give each job four GPUs."""
    menu = a_menu(a_class(curve=CURVE))

    assert best_fixed_widths(menu, gpus=400) == {"c": (Width("gpu", 4),)}


def test_in_a_small_fleet_jobs_have_their_cheapest_width() -> None:
    """Nine one-hour jobs an hour on ten GPUs: at two GPUs each they would hold exactly ten."""
    menu = a_menu(a_class(curve=CURVE, arrivals_per_hour=9.0))

    assert best_fixed_widths(menu, gpus=10) == {"c": (Width("gpu", 1),)}


def test_a_class_that_scales_is_wide_and_one_that_does_not_is_narrow() -> None:
    """One limit for all classes could not give both widths."""
    flat = a_class("flat", curve=Table(gpus=(1, 2, 4), speeds=(1.0, 1.05, 1.1)), arrivals_per_hour=8.0)
    steep = a_class("steep", curve=Table(gpus=(1, 2, 4), speeds=(1.0, 2.0, 4.0)), arrivals_per_hour=8.0)

    found = best_fixed_widths(a_menu(flat, steep), gpus=20)
    assert found == {"flat": (Width("gpu", 1),), "steep": (Width("gpu", 4),)}


@given(
    speeds=st.lists(st.floats(0.3, 6.0), min_size=1, max_size=5),
    rate=st.floats(0.1, 20.0),
    gpus=st.integers(1, 12),
)
def test_no_width_is_wider_than_the_fleet(speeds: list[float], rate: float, gpus: int) -> None:
    """For every load, also beyond the fleet's capacity."""
    curve = Table(gpus=tuple(range(1, len(speeds) + 1)), speeds=tuple(speeds))
    found = best_fixed_widths(a_menu(a_class(curve=curve, arrivals_per_hour=rate)), gpus=gpus)

    assert max(width.gpus for width in found["c"]) <= gpus


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=12))
def test_the_hull_of_plans_is_convex_and_no_plan_is_below_it(points: list[tuple[int, int]]) -> None:
    """From the cheapest plan to the fastest, each step saves less per GPU-hour than the one before."""
    plans = [WidthPlan(widths=(), hours=float(hours), gpu_hours=float(gpu)) for gpu, hours in points]
    hull = [(plan.gpu_hours, plan.hours) for plan in _hull(plans)]
    slopes = [(a[1] - b[1]) / (b[0] - a[0]) for a, b in pairwise(hull)]
    assert all(slope > 0.0 for slope in slopes)
    assert all(first > later for first, later in pairwise(slopes))
    assert hull[0] == min((float(gpu), float(hours)) for gpu, hours in points)
    assert all(np.interp(x, *np.array(hull).T) <= y + 1e-9 for x, y in points)


@pytest.mark.parametrize("price", [0.02, 2.0])
def test_the_candidates_include_the_best_plan_phase_by_phase(price: float) -> None:
    """One phase gains much from many GPUs and the other little, so the plan has two widths."""
    steep = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 2.0, 4.0, 8.0))
    flat = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.2, 1.35, 1.4))
    phases = tuple(Phase(size_gpu_hours=1.0, speedups={"gpu": curve}) for curve in (steep, flat))
    job_class = JobClass(name="c", phases=phases)
    best = []
    for curve in (steep, flat):
        costs = {g: (1.0 + price * g) / s for g, s in zip(curve.gpus, curve.speeds, strict=True)}
        best.append(min(costs, key=costs.__getitem__))
    assert best[0] > best[1]
    found = [tuple(width.gpus for width in plan.widths) for plan in _plans(a_menu(job_class), "c", 8)]
    assert tuple(best) in found
