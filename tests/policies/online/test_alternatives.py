"""What a width costs in money and waiting, beside its next best."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_class, a_job, a_problem
from policies.model import Width
from policies.online.alternatives import weigh
from policies.online.cost_to_go import WidthColumns

PROBLEM = a_problem(a_class(), usd_per_gpu_hour=1.0)
COLUMNS = {"c": WidthColumns.of(PROBLEM, PROBLEM.classes[0])}


def cost_by_hand(width: Width, *, left: float, multiplier: float) -> float:
    """Return hours of the rest of the phase times what one costs: 1 / mu for waiting, a dollar per GPU."""
    own = PROBLEM.classes[0]
    hours = left / float(own.phases[0].speedups[width.gpu_type].speed_at(width.gpus)) + own.startup_hours
    return hours * (own.weight / multiplier + width.gpus * 1.0)


@given(
    left=st.floats(0.01, 1.0),
    multiplier=st.floats(0.01, 100.0),
    planned=st.sampled_from(COLUMNS["c"].widths),
)
def test_the_next_best_is_the_cheapest_of_the_others(left: float, multiplier: float, planned: Width) -> None:
    """Both costs are those worked out by hand, and no other width costs less than the runner-up."""
    job = a_job(remaining_gpu_hours=left * PROBLEM.classes[0].phases[0].size_gpu_hours)
    found = weigh([job], {job.id: planned}, COLUMNS, multiplier=multiplier)[job.id]
    costs = {
        width: cost_by_hand(width, left=job.remaining_gpu_hours, multiplier=multiplier)
        for width in COLUMNS["c"].widths
        if math.isfinite(COLUMNS["c"].hours[0][COLUMNS["c"].index[width]])
    }
    assert found.width == planned != found.other
    assert found.cost == pytest.approx(costs.pop(planned))
    assert found.other_cost == pytest.approx(min(costs.values()))
    assert found.other_cost == pytest.approx(costs[found.other])


def test_a_width_that_is_held_costs_no_restart() -> None:
    """A running job pays the change at any width but its own; one that waits pays a start at each."""
    held = COLUMNS["c"].widths[0]
    job = a_job(width=held)
    running = weigh([job], {job.id: held}, COLUMNS, multiplier=1.0)[job.id]
    waiting = weigh([a_job()], {job.id: held}, COLUMNS, multiplier=1.0)[job.id]
    price = 1.0 + held.gpus
    assert waiting.cost - running.cost == pytest.approx(PROBLEM.classes[0].startup_hours * price)


def test_nothing_is_weighed_where_money_has_no_price() -> None:
    """A multiplier of zero says that more money saves nothing: waiting has no price in dollars then."""
    assert weigh([a_job()], {"a": COLUMNS["c"].widths[0]}, COLUMNS, multiplier=0.0) == {}
