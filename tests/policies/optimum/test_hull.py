"""Lower hulls of many groups at once, and their merge."""

from __future__ import annotations

import time as clock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from policies.optimum import hull
from policies.optimum.hull import lower_hulls, merge, undominated
from policies.speedup import Floats, Ints

WHOLE = st.integers(1, 12).map(float)
ANY = st.floats(0.01, 100.0)


@st.composite
def grouped_points(draw: st.DrawFn) -> tuple[Floats, Floats, Ints]:
    """Draw (cost, time, group): whole numbers bring ties, duplicates and points on chords."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    group = draw(st.permutations(np.repeat(np.arange(len(sizes)), sizes).tolist()))
    numbers = draw(st.sampled_from([WHOLE, ANY]))
    cost, time = (draw(nps.arrays(float, len(group), elements=numbers)) for _ in range(2))
    return cost, time, np.array(group)


def lower_hull_by_pairs(points: set[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other point, and no pair of others, covers."""

    def covers(a: tuple[float, float], b: tuple[float, float], p: tuple[float, float]) -> bool:
        if a != p and a[0] <= p[0] and a[1] <= p[1]:
            return True
        if not a[0] < p[0] < b[0]:
            return False
        return (b[1] - a[1]) * (p[0] - a[0]) <= (p[1] - a[1]) * (b[0] - a[0])

    return sorted(p for p in points if not any(covers(a, b, p) for a in points for b in points))


@given(grouped_points())
def test_a_chain_holds_the_points_that_no_mix_of_others_beats(drawn: tuple[Floats, Floats, Ints]) -> None:
    """The points are those found by testing every pair; among ties and collinear points at most one stays."""
    cost, time, group = drawn
    groups = int(group.max()) + 1
    chains = lower_hulls(cost, time, group, groups=groups)

    for number in range(groups):
        mine = slice(chains.starts[number], chains.starts[number + 1])
        found = list(zip(chains.cost[mine].tolist(), chains.time[mine].tolist(), strict=True))
        own = group == number
        expected = lower_hull_by_pairs(set(zip(cost[own].tolist(), time[own].tolist(), strict=True)))
        if np.all(cost == np.round(cost)):
            assert found == expected
        else:
            # Points within rounding of a chord may be kept or dropped; the chain's value must not change.
            at = np.array([p[0] for p in expected])
            assert np.interp(at, *np.array(found).T) == pytest.approx([p[1] for p in expected], rel=1e-9)
        assert np.array_equal(cost[chains.option[mine]], chains.cost[mine])


@given(grouped_points())
def test_chains_are_the_same_however_many_options_are_sorted_at_a_time(
    drawn: tuple[Floats, Floats, Ints],
) -> None:
    cost, time, group = drawn
    groups = int(group.max()) + 1
    whole = lower_hulls(cost, time, group, groups=groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hull, "BLOCK", 8)
        assert lower_hulls(cost, time, group, groups=groups).option.tolist() == whole.option.tolist()


def test_an_option_that_never_ends_is_no_vertex() -> None:
    chains = lower_hulls(
        np.array([1.0, 2.0, 3.0, 1.0]),
        np.array([np.inf, 5.0, np.inf, 1.0]),
        np.array([0, 0, 0, 1]),
        groups=2,
    )
    assert chains.option.tolist() == [1, 3]


@given(grouped_points())
def test_undominated_entries_are_faster_than_all_cheaper_ones(drawn: tuple[Floats, Floats, Ints]) -> None:
    """Entries are compared within each group, in order of cost."""
    cost, time, group = drawn
    order = np.lexsort((time, cost, group))
    g, t = group[order], time[order]

    expected = [i for i in range(len(t)) if not (t[:i][g[:i] == g[i]] <= t[i]).any()]
    assert undominated(g, t).tolist() == expected


@given(grouped_points())
def test_the_merged_frontier_is_decreasing_and_convex(drawn: tuple[Floats, Floats, Ints]) -> None:
    """Cost rises, time falls, and slopes never rise."""
    cost, time, group = drawn
    merged = merge(lower_hulls(cost, time, group, groups=int(group.max()) + 1))

    assert np.all(np.diff(merged.cost) > 0)
    assert np.all(np.diff(merged.time) < 0)
    assert np.all(np.diff(merged.slope) <= 0)
    assert merged.vertices_after(len(merged.slope)).tolist() == (merged.chains.starts[1:] - 1).tolist()


def test_equal_costs_keep_the_fastest_and_equal_points_the_first() -> None:
    """Three options have one cost, and two of them are equal."""
    chains = lower_hulls(np.ones(3), np.array([2.0, 1.0, 1.0]), np.zeros(3, dtype=np.int64), groups=1)

    assert chains.option.tolist() == [1]


def test_a_gain_of_a_rounding_error_is_no_vertex() -> None:
    """The option costs twice as much for one part in 1e16 of the time."""
    chains = lower_hulls(
        np.array([1.0, 2.0]), np.array([np.nextafter(1.0, 2.0), 1.0]), np.zeros(2, dtype=np.int64), groups=1
    )

    assert chains.option.tolist() == [0]


def test_costs_a_rounding_error_apart_are_one_cost() -> None:
    """The faster of both options stays, so no edge has an enormous slope."""
    cost = np.array([1.0, np.nextafter(1.0, 2.0), 2.0])
    chains = lower_hulls(cost, np.array([3.0, 2.0, 1.0]), np.zeros(3, dtype=np.int64), groups=1)

    assert chains.option.tolist() == [1, 2]


@pytest.mark.parametrize(
    "last",
    [(0.5, 1e-5), (2e5, 1e-9), (101.0, 1e-9)],
    ids=["first beats all", "last is far", "last is steep"],
)
def test_the_hull_of_a_hundred_thousand_widths_is_quick(last: tuple[float, float]) -> None:
    """One far option covers many others, which are dropped together and not one per round."""
    widths = np.arange(1.0, 100_001.0)
    time = np.append(0.001 + 0.999 / widths, last[1])
    cost = np.append(widths * time[:-1], last[0])
    began = clock.process_time()
    chains = lower_hulls(cost, time, np.zeros(len(cost), dtype=np.int64), groups=1)

    assert clock.process_time() - began < 10.0
    assert len(widths) in chains.option
    slopes = np.diff(chains.time) / np.diff(chains.cost)
    assert np.all(np.diff(slopes) >= 0)


def test_small_totals_at_the_end_keep_their_digits() -> None:
    """A group has 1e12 hours at the start and 1e-6 at the end: totals are summed from the end."""
    chains = lower_hulls(
        np.array([1.0, 2.0, 1.0]), np.array([1e12, 1e-6, 1e-6]), np.array([0, 0, 1]), groups=2
    )

    assert merge(chains).time[-1] == 1e-6 + 1e-6


@given(grouped_points(), st.floats(0.0, 1.2))
def test_a_split_spends_the_budget(drawn: tuple[Floats, Floats, Ints], share: float) -> None:
    """Whole edges and a part of the next cost the budget, up to the largest useful one."""
    cost, time, group = drawn
    merged = merge(lower_hulls(cost, time, group, groups=int(group.max()) + 1))
    budget = merged.cost[0] + share * (merged.cost[-1] - merged.cost[0])
    taken, part = merged.split(float(budget))
    spent = merged.cost[taken] + (part * (merged.cost[taken + 1] - merged.cost[taken]) if part else 0.0)

    assert 0.0 <= part < 1.0
    assert spent == pytest.approx(min(budget, merged.cost[-1]), rel=1e-9)
