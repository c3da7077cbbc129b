"""The authors' rounding and gluing: within the budget, and never better than the exact optimum."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.testing import a_class, a_job, a_problem
from policies.errors import InfeasibleBudget
from policies.model import JobClass, Width
from policies.optimum.boa import solve
from policies.rivals.boa_authors import GluedWidths
from policies.rivals.long_run_averages import long_run_of
from policies.speedup import Table

TABLES = st.lists(st.floats(0.5, 2.0), min_size=2, max_size=5).map(
    lambda steps: Table(gpus=tuple(range(1, len(steps) + 1)), speeds=tuple(np.cumsum(steps).tolist()))
)
CLASSES = st.lists(
    st.tuples(TABLES, st.integers(1, 12), st.sampled_from([0.0, 0.02])), min_size=1, max_size=3
)


def glued(classes: dict[str, JobClass], gpus: float, seed: int = 0) -> GluedWidths:
    """Return the plan for a number of GPUs."""
    return GluedWidths.within(classes, "gpu", gpus=gpus, draws=8, rng=np.random.default_rng(seed))


@settings(max_examples=sampled(40))
@given(drawn=CLASSES, factor=st.floats(3.0, 8.0))
def test_the_plan_stays_within_the_budget_and_never_beats_the_optimum(
    drawn: list[tuple[Table, int, float]], factor: float
) -> None:
    """The optimum at the planned spend has no longer mean JCT."""
    classes = {
        f"c{n}": a_class(f"c{n}", sizes=[0.5] * phases, curve=table, rescale_hours=rescale)
        for n, (table, phases, rescale) in enumerate(drawn)
    }
    gpus = factor * sum(
        0.5 * len(c.phases) / float(p.speed_at(1))
        for c, (p, _, _) in zip(classes.values(), drawn, strict=True)
    )
    promise = long_run_of(glued(classes, gpus).plans, classes)
    best = solve(a_problem(*classes.values()), promise.gpus * (1.0 + 1e-9))
    assert promise.gpus <= gpus * (1.0 + 1e-6)
    assert promise.mean_jct_hours >= best.mean_jct_hours * (1.0 - 1e-6)


def test_one_class_rounds_to_the_nearer_vertex() -> None:
    """A job takes 1 GPU-hour on one GPU and 1.05 on two, so a budget of 1.04 is nearer to 2 GPUs.

    Rounding up spends 1.05, more than the budget; lowered by 1 % twice, the budget is nearer to 1 GPU.
    """
    classes = {"c": a_class(curve=Table(gpus=(1, 2), speeds=(1.0, 1.9)))}

    assert glued(classes, 1.04).plans["c"] == (Width("gpu", 1),)
    assert glued(classes, 1.06).plans["c"] == (Width("gpu", 2),)


@pytest.mark.parametrize("unit", [0.01, 0.3, 40.0])
def test_the_nearer_vertex_does_not_depend_on_the_unit_of_work(unit: float) -> None:
    """Jobs of a hundredth of the work, a hundred times as often, are rounded alike."""
    phase = a_class(curve=Table(gpus=(1, 2), speeds=(1.0, 1.9))).phases[0]
    phases = (replace(phase, size_gpu_hours=phase.size_gpu_hours * unit),)
    classes = {"c": JobClass(name="c", phases=phases, arrivals_per_hour=1.0 / unit)}
    assert glued(classes, 1.04).plans["c"] == (Width("gpu", 1),)
    assert glued(classes, 1.06).plans["c"] == (Width("gpu", 2),)


def test_gluing_avoids_rescales() -> None:
    """Twenty phases alternate between flat and steep; a rescale costs more than it gains."""
    flat, steep = Table(gpus=(1, 2), speeds=(1.0, 1.2)), Table(gpus=(1, 2), speeds=(1.0, 1.9))
    phases = tuple(a_class(sizes=[0.1], curve=c).phases[0] for c in (flat, steep) * 10)
    job_class = JobClass(name="c", phases=phases, arrivals_per_hour=1.0, rescale_hours=0.05)

    plan = glued({"c": job_class}, 2.6).plans["c"]

    changes = sum(a != b for a, b in itertools.pairwise(plan))
    assert changes <= 1


def test_the_same_seed_gives_the_same_plan() -> None:
    """The generator is an argument."""
    classes = {"c": a_class(sizes=[0.1] * 20, rescale_hours=0.01)}

    assert glued(classes, 3.0, seed=3) == glued(classes, 3.0, seed=3)


def test_a_budget_below_every_rounding_names_the_least_spend() -> None:
    """One GPU-hour of work an hour needs one GPU."""
    with pytest.raises(InfeasibleBudget, match=r"0\.50 GPUs on average are too few") as caught:
        glued({"c": a_class(arrivals_per_hour=1.0)}, 0.5)
    assert caught.value.least_spend == pytest.approx(1.0)


def test_every_job_gets_the_width_of_its_class_and_phase() -> None:
    """The number of nodes is not fixed."""
    policy = GluedWidths(plans={"c": (Width("gpu", 1), Width("gpu", 2))})

    allocation = policy.allocate([a_job("a"), a_job("b", phase=1)], now=0.0)

    assert allocation.widths == {"a": Width("gpu", 1), "b": Width("gpu", 2)}
    assert allocation.nodes is None
