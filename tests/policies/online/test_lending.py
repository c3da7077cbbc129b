"""Lent GPUs: when a job grows onto spare GPUs, and the cost of a move."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_class, a_job, a_problem
from policies.answer import LentWidth
from policies.model import Job, Width
from policies.online.cost_to_go import WidthColumns
from policies.online.lending import hours_lost, lent_width
from policies.speedup import Table

CURVE = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.8, 3.0, 2.5))
"""On eight GPUs it is slower than on four."""
PROBLEM = a_problem(a_class(sizes=(3.0,), curve=CURVE))
COLUMNS = WidthColumns.of(PROBLEM, PROBLEM.classes[0])
RUNNING = a_job(remaining_gpu_hours=3.0, width=Width("gpu", 1))


def stretched(
    *, most_gpus: int, hours_left: float | None, lent_hours: float = math.inf, job: Job = RUNNING
) -> LentWidth | None:
    """Return the lent width of a job on one GPU, with restarts of 0.1 hours."""
    return lent_width(
        COLUMNS,
        job,
        Width("gpu", 1),
        most_gpus=most_gpus,
        hours_left=hours_left,
        lent_hours=lent_hours,
        rescale_hours=0.1,
    )


def test_a_running_job_grows_to_the_fastest_width_that_has_room() -> None:
    """Three hours on one GPU are one on four: two are saved, less two restarts. Eight would be slower."""
    found = stretched(most_gpus=9, hours_left=3.0)

    assert found is not None
    assert (found.width, found.saved_hours) == (Width("gpu", 4), pytest.approx(2.0 - 0.2))
    narrow = stretched(most_gpus=3, hours_left=3.0)
    assert narrow is not None
    assert narrow.width == Width("gpu", 2)
    assert stretched(most_gpus=1, hours_left=3.0) is None


def test_a_width_that_its_class_no_longer_has_is_not_stretched() -> None:
    """A class may be edited while a job runs; the tick must not fail."""
    gone = Width("gpu", 3)
    found = lent_width(
        COLUMNS, RUNNING, gone, most_gpus=8, hours_left=3.0, lent_hours=math.inf, rescale_hours=0.1
    )
    assert found is None
    moved = replace(RUNNING, width=gone)
    lost = hours_lost(COLUMNS, moved, Width("gpu", 1), hours_left=3.0, rescale_hours=0.1, multiplier=0.0)
    assert lost == pytest.approx(0.1)


def test_a_stretch_has_to_save_more_than_two_restarts() -> None:
    """At three times the speed 0.3 hours left save 0.2 hours, which is the cost of both restarts."""
    assert stretched(most_gpus=4, hours_left=0.31) is not None
    assert stretched(most_gpus=4, hours_left=0.3) is None


def test_only_the_time_for_which_the_gpus_stay_spare_counts() -> None:
    """A job of three hours does not grow onto GPUs that are wanted back in 0.3 hours."""
    assert stretched(most_gpus=4, hours_left=3.0, lent_hours=0.3) is None


def test_a_starting_job_takes_spare_gpus_without_a_restart() -> None:
    """A tenth of an hour of work is worth it. The scale of the job counts."""
    job = replace(RUNNING, remaining_gpu_hours=0.1, scale=0.1 / 3.0, width=None)
    found = stretched(most_gpus=4, hours_left=None, job=job)

    assert found is not None
    assert found.saved_hours == pytest.approx(0.1 * 2.0 / 3.0)


def test_a_move_costs_its_restart_and_the_narrower_width() -> None:
    """From four GPUs to two with an hour left: 3 / 1.8 - 1 hours more, and 0.1 (1 + mu 2) of restart."""
    job = replace(RUNNING, width=Width("gpu", 4))
    lost = hours_lost(COLUMNS, job, Width("gpu", 2), hours_left=1.0, rescale_hours=0.1, multiplier=0.5)

    rate = float(COLUMNS.rate[COLUMNS.index[Width("gpu", 2)]])
    assert lost == pytest.approx(3.0 / 1.8 - 1.0 + 0.1 * (1.0 + 0.5 * rate))
    assert (
        hours_lost(COLUMNS, job, Width("gpu", 3), hours_left=1.0, rescale_hours=0.1, multiplier=0.5)
        == math.inf
    )


def test_a_job_that_gets_its_gpus_back_loses_only_the_time_until_then() -> None:
    """From four GPUs to two for one hour of ten: 1 - 1.8 / 3 hours and two restarts."""
    job = replace(RUNNING, width=Width("gpu", 4))
    restart = 0.1 * (1.0 + 0.5 * float(COLUMNS.rate[COLUMNS.index[Width("gpu", 2)]]))

    def lost(back_in_hours: float, then: int = 2) -> float:
        return hours_lost(
            COLUMNS,
            job,
            Width("gpu", then),
            hours_left=10.0,
            rescale_hours=0.1,
            multiplier=0.5,
            back_in_hours=back_in_hours,
        )

    assert lost(1.0) == pytest.approx(1.0 - 1.8 / 3.0 + 2.0 * restart)
    assert lost(100.0) == lost(math.inf) == pytest.approx(10.0 * (3.0 / 1.8 - 1.0) + restart)
    assert lost(1.0, then=4) == lost(math.inf, then=4)


@given(
    left=st.floats(min_value=0.0, max_value=10.0),
    most=st.integers(min_value=1, max_value=12),
    lent=st.floats(min_value=0.0, max_value=10.0),
)
def test_no_stretch_loses_time(left: float, most: int, lent: float) -> None:
    """For any time left and any time lent, a stretch saves time and fits."""
    found = stretched(most_gpus=most, hours_left=left, lent_hours=lent)

    if found is not None:
        assert found.saved_hours > 0.0
        assert 1 < found.width.gpus <= most
