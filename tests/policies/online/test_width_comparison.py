"""The cost of a width in money and waiting, beside its next best."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_class, a_job, a_problem
from policies.model import Width
from policies.online.cost_to_go import WidthColumns
from policies.online.width_comparison import compare_widths
from policies.speedup import Table

START, RESCALE = 0.05, 0.02
PROBLEM = a_problem(a_class(sizes=(1.0, 2.0), startup_hours=START, rescale_hours=RESCALE, weight=3.0))
OWN = PROBLEM.classes[0]
COLUMNS = {"c": WidthColumns.of(PROBLEM, OWN)}
WIDTHS = COLUMNS["c"].widths


def cost_by_hand(width: Width, *, work: float, phase: int, held: Width | None, multiplier: float) -> float:
    """Return the hours left in the phase times the cost of one: 3 / mu for waiting, a dollar per GPU."""
    hours = work / float(OWN.phases[phase].speedups[width.gpu_type].speed_at(width.gpus))
    if width != held:
        hours += START if held is None and phase == 0 else RESCALE
    return hours * (3.0 / multiplier + width.gpus)


@given(
    left=st.floats(0.0, 1.0),
    scale=st.floats(0.1, 10.0),
    phase=st.sampled_from([0, 1]),
    held=st.sampled_from([None, *WIDTHS]),
    multiplier=st.floats(0.01, 100.0),
    planned=st.sampled_from(WIDTHS),
)
def test_the_next_best_is_the_cheapest_other_width(
    *, left: float, scale: float, phase: int, held: Width | None, multiplier: float, planned: Width
) -> None:
    """Costs are those by hand; every width but the held one pays for a restart."""
    work = left * OWN.phases[phase].size_gpu_hours * scale
    later = 2.0 * scale if phase == 0 else 0.0
    job = a_job(phase=phase, width=held, scale=scale, remaining_gpu_hours=work + later)
    found = compare_widths([job], {job.id: planned}, COLUMNS, multiplier=multiplier)[job.id]
    costs = {
        width: cost_by_hand(width, work=work, phase=phase, held=held, multiplier=multiplier)
        for width in WIDTHS
    }
    assert found.width == planned != found.other
    assert found.cost == pytest.approx(costs.pop(planned), abs=1e-9)
    assert found.other_cost == pytest.approx(min(costs.values()), abs=1e-9)
    assert found.difference == pytest.approx(found.other_cost - found.cost)


def test_an_only_width_has_no_next_best() -> None:
    """A width that the class does not have has no next best either."""
    problem = a_problem(a_class(curve=Table(gpus=(2,), speeds=(1.8,))))
    columns = {"c": WidthColumns.of(problem, problem.classes[0])}
    for width in (Width("gpu", 2), Width("gpu", 3), None):
        widths = {} if width is None else {"a": width}
        assert compare_widths([a_job()], widths, columns, multiplier=1.0) == {}


def test_widths_are_not_compared_where_money_has_no_price() -> None:
    """At a multiplier of zero more money saves nothing, so waiting has no price in dollars."""
    assert compare_widths([a_job()], {"a": COLUMNS["c"].widths[0]}, COLUMNS, multiplier=0.0) == {}
