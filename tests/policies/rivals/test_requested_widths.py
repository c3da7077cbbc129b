"""Requested widths: rungs in a band of efficiencies, one chosen by each user's draw."""

from __future__ import annotations

import pytest

from boa_daemon.testing import a_class, a_job, a_problem, an_instance_type
from policies.errors import InfeasibleBudget, InvalidProblem
from policies.model import Budget, Width
from policies.rivals.requested_widths import (
    ASKED,
    ASKED_HOLD,
    HALF_BAND,
    HOLD_SECONDS,
    TUNED_EFFICIENCY,
    RequestedWidths,
)
from policies.rivals.width_menu import WidthMenu
from policies.site import BuiltPolicy, PolicyOptions, Site
from policies.speedup import Table

CLASS = a_class(curve=Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.6, 2.6, 4.0)), arrivals_per_hour=2.0)
"""Efficiencies of 1, 0.8, 0.65 and 0.5, and an hour of work."""


def asked(efficiency: float) -> RequestedWidths:
    """Return the requested widths of users around an efficiency."""
    return RequestedWidths(menu=WidthMenu(classes={"c": CLASS}, gpu_type="gpu"), efficiency=efficiency)


@pytest.mark.parametrize(
    ("efficiency", "rungs"),
    [
        (TUNED_EFFICIENCY, (1, 2, 3)),
        (0.64, (2, 3)),
        (0.66, (1, 2)),
        (0.95, (0, 1)),
        (1.0, (0,)),
        (0.35, (3,)),
        (0.3, (3,)),
        (0.0, (3,)),
    ],
)
def test_the_band_includes_its_edges_and_an_empty_band_gives_the_fastest_above(
    efficiency: float, rungs: tuple[int, ...]
) -> None:
    """The band reaches 0.15 to each side."""
    assert asked(efficiency).rungs == {"c": rungs}
    assert HALF_BAND == 0.15


@pytest.mark.parametrize(("draw", "gpus"), [(0.0, 2), (0.33, 2), (0.34, 4), (0.66, 4), (0.67, 8), (0.999, 8)])
def test_every_rung_of_the_band_is_equally_likely(draw: float, gpus: int) -> None:
    """Each of three rungs is requested by a third of the draws."""
    assert asked(TUNED_EFFICIENCY).widths_of(a_job(draw=draw)) == (Width("gpu", gpus),)


@pytest.mark.parametrize("efficiency", [-0.01, 1.01])
def test_an_efficiency_outside_of_zero_to_one_is_refused(efficiency: float) -> None:
    """Zero and one are allowed, as another test shows."""
    with pytest.raises(InvalidProblem, match="a number from 0 to 1"):
        asked(efficiency)


def built(usd: float, **options: float) -> BuiltPolicy:
    """Return the policy for a budget, at a dollar for a GPU-hour."""
    site = Site(
        problem=a_problem(CLASS), budget=Budget(amount=usd), instance_types={"gpu": an_instance_type()}
    )
    return ASKED.build(site, PolicyOptions(**options))  # type: ignore[arg-type]


def test_the_planned_averages_are_the_mean_over_the_rungs() -> None:
    """An hour of work runs at 2, 4 and 8 GPUs, with two jobs an hour."""
    hours = [1.0 / 1.6, 1.0 / 2.6, 1.0 / 4.0]
    promise = asked(TUNED_EFFICIENCY).promise()
    assert promise.mean_jct_hours == pytest.approx(sum(hours) / 3)
    assert promise.gpus == pytest.approx(2.0 * (2 * hours[0] + 4 * hours[1] + 8 * hours[2]) / 3)


@pytest.mark.parametrize("usd", [2.0, 2.4, 2.5, 3.0, 3.1, 99.0])
def test_the_chosen_efficiency_is_the_fastest_that_the_budget_pays_for(usd: float) -> None:
    """Choices are 1, 0.8, 0.65 and 0.5; a given efficiency is used at any price."""
    promises = [asked(efficiency).promise() for efficiency in (1.0, 0.8, 0.65, 0.5)]
    best = min((one for one in promises if one.gpus <= usd), key=lambda one: one.mean_jct_hours)
    found = built(usd)
    assert found.planned_spend == pytest.approx(best.gpus)
    assert found.planned_mean_jct_hours == pytest.approx(best.mean_jct_hours)
    given = built(0.1, efficiency=0.5)
    assert given.planned_spend == pytest.approx(promises[3].gpus)
    assert given.planned_mean_jct_hours == pytest.approx(promises[3].mean_jct_hours)


def test_a_budget_below_the_least_work_is_infeasible() -> None:
    """The work is two GPU-hours an hour. The two rivals differ in how long they keep an idle node."""
    with pytest.raises(InfeasibleBudget, match=r"what users ask for takes at least \$2.00"):
        built(1.99)
    assert built(2.0).idle_hold_seconds == 0.0
    site = Site(
        problem=a_problem(CLASS), budget=Budget(amount=5.0), instance_types={"gpu": an_instance_type()}
    )
    assert ASKED_HOLD.build(site, PolicyOptions()).idle_hold_seconds == HOLD_SECONDS == 300.0
