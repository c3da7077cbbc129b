"""Costs of the rest of a job: the width chosen at a scale is the one from the table of that exact scale."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.testing import a_class, a_job, a_problem
from policies.model import JobClass, Phase, Problem, Width
from policies.online import cost_to_go
from policies.online.cost_to_go import CostsByScale, CostToGo, WidthColumns
from policies.speedup import Table

WIDTHS = (1, 2, 4, 8, 16)


def columns_of(*, seed: int, phases: int, rescale_hours: float, startup_hours: float = 0.05) -> WidthColumns:
    """Return a class with random curves, some of them not concave, and widths that some phases lack."""
    rng = np.random.default_rng(seed)
    curves = []
    for _ in range(phases):
        steps = rng.uniform(0.8, 2.0, len(WIDTHS) - 1)
        speeds = np.cumprod([1.0, *steps])
        kept = [0, *(n for n in range(1, len(WIDTHS)) if rng.random() > 0.2)]
        curves.append(
            Table(gpus=tuple(WIDTHS[n] for n in kept), speeds=tuple(float(speeds[n]) for n in kept))
        )
    drawn = JobClass(
        name="c",
        phases=tuple(
            Phase(size_gpu_hours=float(rng.uniform(0.1, 2.0)), speedups={"gpu": curve}) for curve in curves
        ),
        startup_hours=startup_hours,
        rescale_hours=rescale_hours,
    )
    problem: Problem = a_problem(replace(a_class("c"), name="c"))
    return WidthColumns.of(replace(problem, classes=(drawn,)), drawn)


def exact_costs(columns: WidthColumns, *, scale: float, multiplier: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the cost of each whole phase, and of all later ones, by the recursion at one scale."""
    price = columns.job_class.weight + multiplier * columns.rate
    change = columns.job_class.rescale_hours * price
    phase_cost = scale * columns.hours * price
    after = np.zeros_like(phase_cost)
    for phase in range(len(phase_cost) - 1, 0, -1):
        whole = phase_cost[phase] + after[phase]
        after[phase - 1] = np.minimum(whole, (whole + change).min())
    return phase_cost, after


@settings(deadline=None, max_examples=sampled(60))
@given(
    seed=st.integers(0, 10_000),
    phases=st.integers(1, 6),
    rescale_hours=st.sampled_from([0.0, 0.01, 0.2]),
    multiplier=st.floats(0.001, 3.0),
    jobs=st.lists(
        st.tuples(
            st.floats(0.003, 300.0), st.floats(0.0, 1.0), st.integers(0, 5), st.sampled_from([0, *WIDTHS])
        ),
        min_size=1,
        max_size=25,
    ),
)
def test_widths_are_those_of_exact_minimisation_at_the_scale_of_each_job(
    seed: int,
    phases: int,
    rescale_hours: float,
    multiplier: float,
    jobs: list[tuple[float, float, int, int]],
) -> None:
    """No width costs less than the chosen one, its change or start included."""
    columns = columns_of(seed=seed, phases=phases, rescale_hours=rescale_hours)
    costs = CostsByScale(columns=columns, multiplier=multiplier)
    price = columns.job_class.weight + multiplier * columns.rate
    for scale, part, number, gpus in jobs:
        phase, left = min(number, phases - 1), max(part, 1e-6)
        phase_cost, after = exact_costs(columns, scale=scale, multiplier=multiplier)
        rest = left * phase_cost[phase] + after[phase]
        change = columns.job_class.rescale_hours * price
        held = Width("gpu", gpus)
        can_hold = held in columns.index and math.isfinite(rest[columns.index[held]])
        begins = columns.job_class.startup_hours * price if phase == 0 and not can_hold else change
        bill = rest + begins
        if can_hold:
            bill[columns.index[held]] = rest[columns.index[held]]
        found = costs.width_for(phase, scale=scale, left=left, holds=held if can_hold else None, margin=0.0)
        assert bill[columns.index[found]] == pytest.approx(float(bill.min()), rel=1e-9)


@settings(deadline=None, max_examples=sampled(60))
@given(
    seed=st.integers(0, 10_000),
    phases=st.integers(1, 6),
    rescale_hours=st.sampled_from([0.0, 0.01, 0.2]),
    margin=st.sampled_from([0.0, 0.05]),
    jobs=st.lists(
        st.tuples(st.sampled_from([0.1, 0.5, 1.0, 7.0]), st.integers(0, 5), st.sampled_from(WIDTHS)),
        min_size=1,
        max_size=25,
    ),
)
def test_a_job_that_certainly_keeps_its_width_keeps_it_whatever_was_asked_in_between(
    seed: int,
    phases: int,
    rescale_hours: float,
    margin: float,
    jobs: list[tuple[float, int, int]],
) -> None:
    """What is remembered as certain agrees with the table of the exact scale, whatever is left."""
    columns = columns_of(seed=seed, phases=phases, rescale_hours=rescale_hours)
    costs = CostsByScale(columns=columns, multiplier=0.3)
    for scale, number, gpus in [*jobs, *jobs]:
        phase, held = min(number, phases - 1), Width("gpu", gpus)
        if costs.keeps(phase, scale=scale, holds=held, margin=margin):
            assert costs.keeps(phase, scale=scale, holds=held, margin=margin)
            alone = CostToGo.of(columns, scale=scale, multiplier=0.3)
            for left in (1.0, 0.4, 1e-6):
                width = alone.width_for(phase, scale=scale, left=left, holds=held, margin=margin)
                assert width == held


def test_no_more_certain_widths_are_remembered_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two, the third one drops both others."""
    monkeypatch.setattr(cost_to_go, "MOST_KEPT", 2)
    costs = CostsByScale(columns=columns_of(seed=1, phases=1, rescale_hours=5.0), multiplier=0.3)
    for scale, remembered in ((0.001, 1), (0.002, 2), (0.003, 1)):
        assert costs.keeps(0, scale=scale, holds=Width("gpu", 1), margin=0.05)
        assert len(costs._kept) == remembered


@pytest.mark.parametrize("first", [1e-3, 0.1, 0.5, 0.8, 2.0, 40.0])
def test_the_first_scale_asked_about_does_not_affect_other_scales(first: float) -> None:
    """Only large jobs change width here, so a table without changes is not valid for all scales."""
    phases = (
        Phase(size_gpu_hours=1.0, speedups={"gpu": Table(gpus=(1, 4), speeds=(1.0, 1.01))}),
        Phase(size_gpu_hours=1.0, speedups={"gpu": Table(gpus=(1, 4), speeds=(1.0, 3.5))}),
    )
    problem = replace(
        a_problem(), classes=(JobClass(name="c", phases=phases, startup_hours=0.3, rescale_hours=0.1),)
    )
    columns = WidthColumns.by_class(problem)["c"]
    costs = CostsByScale(columns=columns, multiplier=1.0)
    costs.width_for(0, scale=first, left=1.0, holds=None, margin=0.0)

    for scale in (0.01, 0.2, 0.5, 0.7, 0.9, 1.0, 1.5, 3.0, 30.0):
        for left in (1.0, 0.3, 1e-6):
            alone = CostToGo.of(columns, scale=scale, multiplier=1.0)
            expected = alone.width_for(0, scale=scale, left=left, holds=None, margin=0.0)
            assert costs.width_for(0, scale=scale, left=left, holds=None, margin=0.0) == expected


def test_the_width_changes_at_the_scale_where_a_rescale_pays() -> None:
    """Two phases, r = 0.1 h at multiplier 1: growing from 1 to 4 GPUs pays from a scale of 0.875 on.

    Phase 1 takes x hours on one GPU (2 an hour) and x / 3.5 on four (5 an hour): 2 x against 0.5 + 1.4286 x,
    equal at x = 0.875.
    """
    first = Phase(size_gpu_hours=1.0, speedups={"gpu": Table(gpus=(1, 4), speeds=(1.0, 1.01))})
    second = Phase(size_gpu_hours=1.0, speedups={"gpu": Table(gpus=(1, 4), speeds=(1.0, 3.5))})
    grown = JobClass(name="c", phases=(first, second), rescale_hours=0.1)
    problem = replace(a_problem(a_class("c")), classes=(grown,))
    assert problem.price_of("gpu") == 1.0
    costs = CostsByScale(columns=WidthColumns.of(problem, grown), multiplier=1.0)

    widths = [
        costs.width_for(1, scale=scale, left=1.0, holds=Width("gpu", 1), margin=0.0).gpus
        for scale in (0.5, 0.874, 0.876, 1.0)
    ]
    assert widths == [1, 1, 4, 4]


@given(seed=st.integers(0, 1000), scale=st.floats(0.01, 100.0))
def test_one_phase_needs_one_table(seed: int, scale: float) -> None:
    """Without a later phase the cost of the rest is proportional to the scale."""
    columns = columns_of(seed=seed, phases=1, rescale_hours=0.1)
    table = CostToGo.of(columns, scale=1.0, multiplier=0.3)

    assert table.is_straight
    assert table.rest(0, scale=scale, left=0.5) == pytest.approx(0.5 * scale * table.phase_cost[0])


def test_the_size_of_the_table_cache_changes_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scales of all sizes in any order get the same widths with a cache of 3 tables and of 256."""
    rng = np.random.default_rng(2)
    columns = columns_of(seed=4, phases=3, rescale_hours=0.2)
    jobs = [
        (float(scale), Width("gpu", int(gpus)))
        for scale, gpus in zip(10.0 ** rng.uniform(-3, 3, 60), rng.choice([1, 2, 4], 60), strict=True)
    ]
    found, kept = [], []
    for most in (256, 3):
        monkeypatch.setattr(cost_to_go, "MOST_TABLES", most)
        costs = CostsByScale(columns=columns, multiplier=0.3)
        found.append([costs.width_for(0, scale=s, left=0.5, holds=h, margin=0.1) for s, h in jobs])
        kept.append(len(costs._tables))
    assert found[0] == found[1]
    # Of sixty scales only a few need a table of their own.
    assert kept[1] < kept[0] <= 12, "of sixty scales the bounds leave few in doubt"


def test_the_part_left_of_a_phase_is_a_fraction_of_its_size() -> None:
    """Phases have 2 and 1 GPU-hours, and three times as much at scale 3. The part is never above 1."""
    table = Table(gpus=(1, 2), speeds=(1.0, 1.5))
    drawn = JobClass(
        name="c", phases=tuple(Phase(size_gpu_hours=size, speedups={"gpu": table}) for size in (2.0, 1.0))
    )
    columns = WidthColumns.of(replace(a_problem(a_class("c")), classes=(drawn,)), drawn)

    def left(phase: int, hours: float, scale: float = 1.0) -> float:
        return columns.part_left(a_job("a", phase=phase, remaining_gpu_hours=hours, scale=scale))

    assert [left(0, hours) for hours in (3.0, 2.0, 1.5, 4.0, 9.0)] == [1.0, 0.5, 0.25, 1.0, 1.0]
    assert [left(1, hours) for hours in (1.0, 0.5)] == [1.0, 0.5]
    assert left(0, 6.0, scale=3.0) == 0.5
    assert left(0, 0.5) == left(1, 0.0) == cost_to_go.LEAST_PART


def test_a_width_stays_unless_a_change_saves_more_than_the_margin() -> None:
    """The work takes an hour on one GPU and half an hour on two; a change costs 0.25 hours."""
    table = Table(gpus=(1, 2), speeds=(1.0, 2.0))
    drawn = JobClass(
        name="c", phases=(Phase(size_gpu_hours=1.0, speedups={"gpu": table}),), rescale_hours=0.25
    )
    columns = WidthColumns.of(replace(a_problem(a_class("c")), classes=(drawn,)), drawn)
    costs = CostsByScale(columns=columns, multiplier=0.0)
    one, two = Width("gpu", 1), Width("gpu", 2)
    for left, margin, found in (
        (1.0, 0.1, two),
        (1.0, 0.3, one),
        (0.5, 0.0, one),
        (0.6, 0.0, two),
        (0.6, 0.2, one),
    ):
        assert costs.width_for(0, scale=1.0, left=left, holds=one, margin=margin) == found
    assert costs.width_for(0, scale=1.0, left=1.0, holds=None, margin=0.0) == two
    assert costs.width_for(0, scale=1.0, left=1.0, holds=Width("gone", 1), margin=0.0) == two
    assert costs.width_for(0, scale=1.0, left=0.1, holds=two, margin=0.0) == two


def test_tables_are_kept_in_the_order_of_their_scales() -> None:
    """A scale lies between two tables, and gets its own table where these two leave doubt."""
    columns = columns_of(seed=3, phases=3, rescale_hours=0.2)
    costs = CostsByScale(columns=columns, multiplier=0.3)
    for scale in (1.0, 5.0, 0.3, 0.31, 40.0, 2.0, 0.01, 3.0):
        width = costs.width_for(0, scale=scale, left=0.5, holds=None, margin=0.0)
        exact = CostToGo.of(columns, scale=scale, multiplier=0.3)
        assert width == exact.width_for(0, scale=scale, left=0.5, holds=None, margin=0.0)
        scales = [table.scale for table in costs._tables]
        assert scales == sorted(set(scales))
        assert scales[0] <= scale <= scales[-1]


@pytest.mark.parametrize("phases", [1, 2, 4])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_a_table_equals_the_recursion_in_every_phase(phases: int, scale: float) -> None:
    """Costs of phases and of later phases, the best columns and the first column are compared."""
    for seed in range(4):
        columns = columns_of(seed=seed, phases=phases, rescale_hours=0.1, startup_hours=0.5)
        table = CostToGo.of(columns, scale=scale, multiplier=0.4)
        phase_cost, after = exact_costs(columns, scale=scale, multiplier=0.4)
        price = columns.job_class.weight + 0.4 * columns.rate

        assert table.phase_cost * scale == pytest.approx(phase_cost)
        assert table.after_slope * scale + table.after_constant == pytest.approx(after)
        assert table.best.tolist() == (phase_cost + after).argmin(axis=1).tolist()
        assert table.start_cost == pytest.approx(0.5 * price)
        assert table.change_cost == pytest.approx(0.1 * price)
        assert table.first == (phase_cost[0] + after[0] + 0.5 * price).argmin()
        assert table.is_straight == (phases == 1)
        for phase in range(phases):
            later = columns.hours[phase + 1 :].sum(axis=0)
            assert columns.hours_after[phase] == pytest.approx(later)
            assert columns.size_after[phase] == pytest.approx(
                sum(one.size_gpu_hours for one in columns.job_class.phases[phase + 1 :])
            )
    assert CostToGo.of(columns_of(seed=0, phases=3, rescale_hours=0.0), scale=1.0, multiplier=1.0).is_straight


def test_the_scale_up_to_which_a_width_always_stays_is_exact() -> None:
    """An hour on one GPU, half on two, 0.25 h for a change: one GPU stays up to a scale of 0.25 / 0.401."""
    table = Table(gpus=(1, 2), speeds=(1.0, 2.0))
    phase = Phase(size_gpu_hours=1.0, speedups={"gpu": table})

    def costs(phases: int, rescale_hours: float) -> CostToGo:
        drawn = JobClass(name="c", phases=(phase,) * phases, rescale_hours=rescale_hours)
        columns = WidthColumns.of(replace(a_problem(a_class("c")), classes=(drawn,)), drawn)
        return CostToGo.of(columns, scale=2.0, multiplier=0.0)

    # With a margin of 0.1 a change has to save a tenth of the cost; the code relies on 0.99 of that.
    assert costs(1, 0.25)._stays_to(0, 0, 0.1) == pytest.approx(0.25 / (0.901 - 0.5))
    assert costs(1, 0.25)._stays_to(0, 1, 0.1) == math.inf
    # Costs of two phases are not proportional: a width stays up to the table's own scale, or never.
    assert [costs(2, 5.0)._stays_to(0, held, 0.1) for held in (0, 1)] == [2.0, 2.0]
    assert [costs(2, 0.5)._stays_to(0, held, 0.1) for held in (0, 1)] == [0.0, 2.0]


def test_a_scale_between_two_tables_is_judged_by_its_own_costs() -> None:
    """At scale 0.8 one GPU is cheaper, although the table of scale 1 chooses four.

    At 0.8 the second phase stays on one GPU for 1.60; at scale 1 it changes, which would be 1.643 at 0.8. On
    four GPUs it costs 1.143, and their start costs 3 x 0.16 more. One GPU is cheaper by 0.023, and would seem
    dearer by 0.020 by the table of scale 1.
    """
    first = Phase(size_gpu_hours=1.0, speedups={"gpu": Table(gpus=(1, 4), speeds=(1.0, 1.01))})
    second = Phase(size_gpu_hours=1.0, speedups={"gpu": Table(gpus=(1, 4), speeds=(1.0, 3.5))})
    grown = JobClass(name="c", phases=(first, second), startup_hours=0.16, rescale_hours=0.1)
    problem = replace(a_problem(a_class("c")), classes=(grown,))
    costs = CostsByScale(columns=WidthColumns.of(problem, grown), multiplier=1.0)
    widths = [
        costs.width_for(0, scale=scale, left=1e-9, holds=None, margin=0.0).gpus for scale in (0.5, 1.0, 0.8)
    ]
    assert widths == [1, 4, 1]


@settings(deadline=None, max_examples=sampled(60))
@given(
    drawn=st.tuples(st.integers(0, 10_000), st.integers(2, 6), st.sampled_from([0.01, 0.2, 1.0])),
    multiplier=st.floats(0.001, 3.0),
    margin=st.sampled_from([0.01, 0.1, 0.3]),
    ends=st.tuples(st.floats(0.01, 100.0), st.floats(1.01, 8.0)),
    places=st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(1e-12, 1.0)), min_size=1, max_size=8),
)
def test_a_width_that_stays_between_two_tables_stays_at_every_scale_between(
    drawn: tuple[int, int, float],
    multiplier: float,
    margin: float,
    ends: tuple[float, float],
    places: list[tuple[float, float]],
) -> None:
    """The table of the exact scale agrees, for any work left. Without a margin no width is sure to stay."""
    (seed, phases, rescale_hours), (low, ratio) = drawn, ends
    columns = columns_of(seed=seed, phases=phases, rescale_hours=rescale_hours)
    below, above = (CostToGo.of(columns, scale=s, multiplier=multiplier) for s in (low, low * ratio))
    for share, left in places:
        scale = low + share * (low * ratio - low)
        exact = CostToGo.of(columns, scale=scale, multiplier=multiplier)
        for phase in range(phases):
            for held, width in enumerate(columns.widths):
                assert not below._stays_between(above, phase, held, 0.0)
                if below._stays_between(above, phase, held, margin):
                    found = exact.width_for(phase, scale=scale, left=left, holds=width, margin=margin)
                    assert found == width


def test_the_best_width_of_each_phase_stays_between_two_tables() -> None:
    """A width at which a phase is never done does not stay."""
    columns = columns_of(seed=3, phases=3, rescale_hours=0.2)
    below, above = (CostToGo.of(columns, scale=scale, multiplier=0.3) for scale in (1.0, 2.0))
    for phase in range(3):
        stays = [below._stays_between(above, phase, held, 0.1) for held in range(len(columns.widths))]
        never_done = ~np.isfinite(columns.hours[phase])
        assert stays[below.best[phase]]
        assert not any(np.array(stays) & never_done)
