"""The hull of a job's options, which the bound goes down."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policies.optimum.calendar import CalendarJob, Option
from policies.optimum.calendar_bound import _hull
from policies.optimum.job_list import ListedJob

POINTS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=12)


@given(POINTS)
def test_the_hull_is_convex_and_no_option_is_below_it(points: list[tuple[int, int]]) -> None:
    """From the cheapest option to the fastest, each step saving less per dollar than the one before."""
    options = tuple(
        Option(gpu_type="g", instances=1, gpus=1, hours=float(h), usd=float(usd)) for usd, h in points
    )
    listed = ListedJob(id="a", class_name="c", submit_hours=0.0, deadline_hours=None)
    hull = _hull(CalendarJob(job=listed, options=options))
    slopes = [(a[1] - b[1]) / (b[0] - a[0]) for a, b in pairwise(hull)]
    assert all(slope > 0.0 for slope in slopes)
    assert all(first > later for first, later in pairwise(slopes))
    assert hull[0] == min((float(usd), float(hours)) for usd, hours in points)
    assert hull[-1][1] == min(hours for _, hours in points)
    usd, hours = np.array(hull).T
    assert all(np.interp(x, usd, hours) <= y + 1e-9 for x, y in points)
