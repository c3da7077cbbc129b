"""Claims of jobs on scarce capacity: the corners of their speed curves, and their urgency."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_narrowing import Claim, claims_of

from boa_daemon.testing import a_job
from policies.capacity_claims import Claims, PhaseWidths
from policies.model import Width

MENUS = st.dictionaries(st.integers(1, 64), st.integers(1, 50), min_size=1, max_size=8).map(
    lambda found: PhaseWidths(
        widths=tuple(Width("gpu", gpus) for gpus in sorted(found)),
        speeds=tuple(float(found[gpus]) for gpus in sorted(found)),
    )
)


@given(MENUS)
def test_corners_are_those_of_the_concave_hull_from_zero(menu: PhaseWidths) -> None:
    """Steps gain less and less per GPU, the last width is a corner, and no speed is above the hull."""
    slopes = [slope for slope, _ in menu.steps]
    assert all(first > later for first, later in pairwise(slopes))
    assert menu.corners[-1] == len(menu.widths) - 1
    assert sum(gpus for _, gpus in menu.steps) == menu.gpus[-1]
    gpus = [0, *(menu.gpus[corner] for corner in menu.corners)]
    speeds = [0.0, *(menu.speeds[corner] for corner in menu.corners)]
    assert speeds[-1] == pytest.approx(sum(slope * more for slope, more in menu.steps))
    at_all = np.interp(menu.gpus, gpus, speeds)
    assert all(at_all >= np.array(menu.speeds) - 1e-9)
    assert [menu.numbers[width] for width in menu.widths] == list(range(len(menu.widths)))


MENU = PhaseWidths(widths=(Width("gpu", 1), Width("gpu", 2)), speeds=(1.0, 1.5))


def claims_with(**changes: object) -> Claims:
    """Return the claim of a job with three hours of work that runs on one GPU."""
    values: dict[str, object] = {
        "job": a_job(width=Width("gpu", 1)),
        "menu": MENU,
        "weight": 2.0,
        "work": 3.0,
        "size_per_gpu": 0.5,
        "money_per_gpu": 1.0,
    }
    return claims_of([Claim(**(values | changes))])  # type: ignore[arg-type]


def test_an_overdue_job_is_more_urgent() -> None:
    """Urgency is the weight times `overdue`, and the weight alone while `overdue` is below 1."""
    for overdue, urgency in ((0.0, 2.0), (1.0, 2.0), (1.5, 3.0)):
        claims = claims_with(overdue=overdue)
        assert claims.urgency.tolist() == [urgency]
        assert claims.room_hours_over_weight.tolist() == [pytest.approx(3.0 * 0.5 / urgency)]


def test_a_restart_costs_its_share_of_the_time_that_the_change_lasts() -> None:
    """A change lasts until other jobs come or the job ends. The share is at most 1; a waiting job has 0."""
    for share, claims in (
        (0.3 / 3.0, claims_with(restart_hours=0.3)),
        (0.3 * (1.0 + 1.0 / 3.0), claims_with(restart_hours=0.3, lasts_hours=1.0)),
        (1.0, claims_with(restart_hours=30.0)),
        (1.0, claims_with(restart_hours=0.3, work=0.0)),
        (0.0, claims_with()),
        (0.0, claims_with(restart_hours=0.3, job=a_job())),
        (0.0, claims_with(restart_hours=0.3, job=a_job(width=Width("gpu", 8)))),
    ):
        assert claims.restart_share.tolist() == [pytest.approx(share)]


def test_claims_in_columns_equal_claims_made_one_by_one() -> None:
    """Each job has its own menu of widths."""
    steep = PhaseWidths(widths=(Width("gpu", 2), Width("gpu", 4)), speeds=(1.5, 4.0))
    rows = [
        Claim(
            job=a_job(width=width),
            menu=menu,
            weight=2.0,
            work=work,
            size_per_gpu=0.5,
            money_per_gpu=1.0,
            restart_hours=0.3,
            overdue=work / 2.0,
        )
        for work, menu, width in (
            (1.0, MENU, None),
            (3.0, steep, Width("gpu", 4)),
            (5.0, MENU, Width("gpu", 2)),
        )
    ]
    claims = claims_of(rows)

    assert claims.urgency.tolist() == [row.urgency for row in rows]
    assert claims.room_hours_over_weight.tolist() == [row.room_hours_over_weight for row in rows]
    assert claims.restart_share.tolist() == [row.restart_share for row in rows]
