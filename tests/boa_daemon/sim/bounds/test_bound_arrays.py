"""Workloads as arrays for the bound with boots: nothing in them is larger than it is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.sim.bounds.bound_arrays import (
    LEAST_CELL_HOURS,
    MOST_CHOICES,
    anchors_of,
    choices_of,
    edges_of,
    rounded_scales,
    times_of,
    wait_hours,
)
from boa_daemon.sim.bounds.lower_bound import MOST_GROUPS
from boa_daemon.testing import a_class, a_problem, a_trace
from policies.model import GpuType, JobClass, Phase, Problem
from policies.speedup import PowerLaw, Table


@pytest.mark.parametrize(("startup", "rescale", "wait"), [(0.5, 0.2, 0.3), (0.2, 0.5, 0.0), (0.0, 0.0, 0.0)])
def test_only_what_a_start_up_takes_beyond_a_rescale_comes_before_all_work(
    startup: float, rescale: float, wait: float
) -> None:
    """Each stint has the rest of it."""
    job_class = a_class(startup_hours=startup, rescale_hours=rescale)
    assert wait_hours(job_class) == pytest.approx(wait)
    assert times_of(job_class, 1.0, ["gpu"], [(0, 1)]).overhead_hours == pytest.approx(min(startup, rescale))


def test_few_scales_stay_and_many_are_rounded_down() -> None:
    """A bound on smaller jobs holds for these."""
    few = a_trace(0.0, 1.0, scales=[2.0, 3.0])
    assert rounded_scales(few) == [("c", 2.0), ("c", 3.0)]
    scales = np.geomspace(1.0, 50.0, MOST_GROUPS + 20).tolist()
    many = rounded_scales(a_trace(*range(len(scales)), scales=scales))
    assert all(found <= scale * (1 + 1e-12) for (_, found), scale in zip(many, scales, strict=True))
    assert len({found for _, found in many}) <= MOST_GROUPS + 1


def test_a_choice_is_a_type_and_a_width_that_some_phase_may_use() -> None:
    """Of each type in the order of the names; wide ranges are thinned and keep the narrowest."""
    small = Phase(size_gpu_hours=1.0, speedups={"b": Table(gpus=(2, 4), speeds=(2.0, 3.0))})
    large = Phase(size_gpu_hours=1.0, speedups={"a": Table(gpus=(1, 4), speeds=(1.0, 3.0))})
    types = tuple(GpuType(name=name, usd_per_gpu_hour=1.0) for name in "ab")
    job_class = JobClass(name="c", phases=(small, large))
    problem = Problem(classes=(job_class,), gpu_types=types, budget_unit="usd_per_hour")
    assert choices_of(problem, ["a", "b"]) == [(0, 1), (0, 4), (1, 2), (1, 4)]
    wide = a_class(curve=PowerLaw(exponent=0.5, speed=1.0, max_gpus=500, min_gpus=1))
    found = choices_of(a_problem(wide), ["gpu"])
    assert found[0] == (0, 1)
    assert len(found) <= MOST_CHOICES
    assert [width for _, width in found[:8]] == list(range(1, 9))


def test_a_block_of_widths_has_the_speed_of_its_fastest() -> None:
    """Half of the size at twice the speed; a phase that a type cannot run takes for ever there."""
    table = Table(gpus=(1, 2, 3, 4), speeds=(1.0, 1.9, 2.5, 3.0))
    job_class = JobClass(
        name="c",
        phases=(
            Phase(size_gpu_hours=6.0, speedups={"a": table}),
            Phase(size_gpu_hours=2.0, speedups={"b": Table(gpus=(1,), speeds=(2.0,))}),
        ),
    )
    times = times_of(job_class, 0.5, ["a", "b"], [(0, 1), (0, 3), (1, 1)])
    assert times.hours[0] == pytest.approx([3.0 / 1.9, 1.0, math.inf])
    assert times.hours[1] == pytest.approx([math.inf, math.inf, 0.5])


@given(last=st.floats(0.0, 500.0), more=st.floats(0.0, 5000.0), cells=st.sampled_from([50, 100, 200]))
def test_the_edges_of_cells_rise_from_zero_beyond_the_end(last: float, more: float, cells: int) -> None:
    """Equal while jobs arrive, at least half a minute long, then each longer than the one before."""
    edges = edges_of(last, last + more, cells)
    lengths = np.diff(edges)
    assert edges[0] == 0.0
    assert edges[-1] >= last + more
    assert lengths.min() >= LEAST_CELL_HOURS * (1 - 1e-9)
    before = lengths[edges[:-1] < last]
    assert before == pytest.approx(before[:1].repeat(len(before)) if len(before) else [])
    assert np.all(np.diff(lengths) > -1e-9)
    assert lengths.max() <= lengths[0] * 1.1 ** len(lengths)


def test_the_anchor_of_a_cell_is_the_present_job_that_stays_longest() -> None:
    """A job that arrives within the cell is not present, one that has left neither."""
    edges, arrived, hours = (
        np.array([0.0, 1.0, 2.0, 3.0]),
        np.array([0.0, 0.5, 1.0]),
        np.array([1.5, 3.0, 0.5]),
    )
    assert anchors_of(edges, arrived, hours).tolist() == [0, 1, 1]
    assert anchors_of(np.array([4.0, 5.0]), arrived, hours).tolist() == [-1]
