"""Commitments: the newsvendor's quantile, the bill hour by hour, and levels against linear programs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled
from scipy.optimize import linprog

from policies.errors import InvalidProblem
from policies.optimum.commitments import (
    Commitment,
    LoadDistribution,
    _thinned,
    best_levels,
    bill_of,
    load_of_swings,
    newsvendor,
)
from policies.optimum.swing import _swing


def a_load(*counts: tuple[float, ...]) -> LoadDistribution:
    """Return a load of equally long hours."""
    gpus = np.array(counts, dtype=float)
    return LoadDistribution(
        gpu_types=tuple("ab"[: gpus.shape[1]]), gpus=gpus, share=np.full(len(gpus), 1.0 / len(gpus))
    )


COUNTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=12)
DISCOUNTS = st.floats(0.05, 0.7)


def least_by_linear_programme(
    load: LoadDistribution, prices: list[float], commitments: list[Commitment]
) -> float:
    """Return the least bill where every hour uses the commitments in the best way."""
    hours, types = load.gpus.shape
    pairs = [(n, g) for n, c in enumerate(commitments) for g in range(types) if c.rates[g] is not None]
    columns = len(commitments) + hours * (len(pairs) + types)
    cost = np.zeros(columns)
    cost[: len(commitments)] = 1.0
    a_ub, b_ub, a_eq, b_eq = [], [], [], []
    for hour in range(hours):
        begin = len(commitments) + hour * (len(pairs) + types)
        cost[begin + len(pairs) : begin + len(pairs) + types] = np.array(prices) * load.share[hour]
        for n in range(len(commitments)):
            row = np.zeros(columns)
            row[n] = -1.0
            for at, (m, g) in enumerate(pairs):
                if m == n:
                    row[begin + at] = commitments[n].rates[g]
            a_ub.append(row)
            b_ub.append(0.0)
        for g in range(types):
            row = np.zeros(columns)
            for at, (_, h) in enumerate(pairs):
                row[begin + at] = float(g == h)
            row[begin + len(pairs) + g] = 1.0
            a_eq.append(row)
            b_eq.append(load.gpus[hour, g])
    return float(linprog(cost, A_ub=a_ub, b_ub=b_ub, A_eq=a_eq, b_eq=b_eq).fun)


@pytest.mark.parametrize("discount", [0.1, 0.27, 0.4, 0.55])
def test_one_commitment_is_the_quantile_of_a_poisson_load(discount: float) -> None:
    """P(K > c) <= q / p: the quantile of 1 - q / p of the jobs present."""
    load = load_of_swings([_swing("a", {1: 20.0})])
    found = best_levels(load, [2.0], [Commitment(name="plan", rates=(2.0 * (1.0 - discount),))])

    quantile = scipy.stats.poisson(20.0).ppf(discount)
    assert found.levels[0] / (2.0 * (1.0 - discount)) == pytest.approx(quantile)


def test_the_bill_of_a_poisson_load_is_the_sum_by_hand() -> None:
    """The sum is q c + p E[(K - c)+]."""
    load = load_of_swings([_swing("a", {1: 6.0})])
    counts = np.arange(60)
    beyond = float(scipy.stats.poisson(6.0).pmf(counts) @ np.maximum(counts - 5, 0))
    bill = bill_of(load, [3.0], [Commitment(name="plan", rates=(2.0,))], [2.0 * 5])

    assert (bill.committed, bill.on_demand) == pytest.approx((2.0 * 5, 3.0 * beyond))
    assert bill.used[0] == pytest.approx(2.0 * (6.0 - beyond))


@given(counts=COUNTS, discount=DISCOUNTS)
@settings(max_examples=sampled(40), deadline=None)
def test_no_whole_level_of_one_commitment_is_cheaper(counts: list[tuple[int, int]], discount: float) -> None:
    """Brute force tries every level; the newsvendor's quantile is one of the best."""
    load = a_load(*((a,) for a, _ in counts))
    plan = Commitment(name="plan", rates=(1.0 - discount,))
    least = min(bill_of(load, [1.0], [plan], [(1.0 - discount) * c]).total for c in range(32))
    level = newsvendor(load.gpus[:, 0], load.share, 1.0 - discount)

    assert best_levels(load, [1.0], [plan]).bill.total == pytest.approx(least, rel=1e-6)
    assert bill_of(load, [1.0], [plan], [(1.0 - discount) * level]).total == pytest.approx(least)


@given(counts=COUNTS, narrow=DISCOUNTS, first=DISCOUNTS, second=DISCOUNTS)
@settings(max_examples=sampled(40), deadline=None)
def test_several_commitments_cost_as_much_as_a_linear_program_finds(
    counts: list[tuple[int, int]], narrow: float, first: float, second: float
) -> None:
    """One covers each type and one covers both; the program assigns them freely in every hour."""
    load, prices = a_load(*counts), [2.0, 5.0]
    commitments = [
        Commitment(name="a", rates=(2.0 * (1.0 - narrow), None)),
        Commitment(name="b", rates=(None, 5.0 * (1.0 - narrow))),
        Commitment(name="both", rates=(2.0 * (1.0 - first), 5.0 * (1.0 - second))),
    ]
    found = best_levels(load, prices, commitments)
    least = least_by_linear_programme(load, prices, commitments)

    assert found.bill.total == pytest.approx(least, rel=1e-5, abs=1e-6)
    assert found.bound <= found.bill.total * (1.0 + 1e-9) + 1e-9


@given(counts=COUNTS, discount=DISCOUNTS)
@settings(max_examples=sampled(25), deadline=None)
def test_whole_instances_are_the_best_whole_number(counts: list[tuple[int, int]], discount: float) -> None:
    """A reservation is for whole instances of 8 GPUs."""
    load = a_load(*((a,) for a, _ in counts))
    plan = Commitment(name="plan", rates=(1.0 - discount,), step=8 * (1.0 - discount))
    least = min(bill_of(load, [1.0], [plan], [plan.step * n]).total for n in range(6))

    assert best_levels(load, [1.0], [plan]).bill.total == pytest.approx(least)


def test_a_commitment_that_is_no_cheaper_is_not_advised() -> None:
    """At the on-demand price a commitment saves nothing."""
    assert best_levels(a_load((4,), (9,)), [1.0], [Commitment(name="x", rates=(1.0,))]).levels == (0.0,)


def test_the_load_of_two_types_has_the_mean_gpus_of_each() -> None:
    """The bill on demand is the sum of price times mean GPUs."""
    load = load_of_swings([_swing("a", {2: 3.0}), _swing("b", {1: 4.0, 8: 0.5})])

    assert load.mean_gpus == pytest.approx([6.0, 8.0])
    assert bill_of(load, [1.0, 2.0], (), ()).total == pytest.approx(6.0 + 2.0 * 8.0)


def test_a_load_scales_with_its_rates() -> None:
    """Twice as many jobs have twice the mean GPUs and the root of two times the spread."""
    before, after = _swing("a", {4: 2.0}), _swing("a", {4: 2.0}).at_rates_times(2.0)

    assert (after.mean_gpus, after.sd_gpus) == pytest.approx((16.0, before.sd_gpus * 2**0.5))


def test_too_many_states_are_merged_and_keep_their_mean() -> None:
    """At most 200,000 states are left."""
    load = load_of_swings([_swing(name, {1: 9.0, 7: 80.0}) for name in "abc"])

    assert len(load.share) <= 200_000
    assert load.mean_gpus == pytest.approx([569.0] * 3)


def test_commitments_that_only_compete_are_refused() -> None:
    """Of two commitments for the same GPUs the cheaper one is always better."""
    pair = [Commitment(name=name, rates=(1.0,)) for name in ("x", "y")]
    with pytest.raises(InvalidProblem, match="x, y cover the same GPUs"):
        best_levels(a_load((1,)), [2.0], pair)


def test_without_commitments_the_bill_is_on_demand() -> None:
    """Two hours of 3 and 5 GPUs at two dollars cost eight dollars an hour, which is also the bound."""
    found = best_levels(a_load((3.0,), (5.0,)), [2.0], [])
    assert (found.levels, found.bound) == ((), found.bill.total)
    assert found.bill.total == pytest.approx(8.0)
    twice = best_levels(a_load((3.0,), (5.0,)).times(2.0), [2.0], [])
    assert twice.bill.total == pytest.approx(16.0)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"gpus": np.ones((2, 1)), "share": np.array([1.0])}, "one share for each state"),
        ({"gpus": np.ones((0, 1)), "share": np.array([])}, "one share for each state"),
        ({"gpus": -np.ones((1, 1)), "share": np.array([1.0])}, "zero or more"),
        ({"gpus": np.ones((2, 1)), "share": np.array([-0.5, 1.5])}, "shares that add up to 1"),
        ({"gpus": np.ones((1, 1)), "share": np.array([0.9])}, "shares that add up to 1"),
    ],
)
def test_an_invalid_load_is_refused(values: dict[str, np.ndarray], says: str) -> None:
    """Shapes, signs and shares are checked."""
    with pytest.raises(InvalidProblem, match=says):
        LoadDistribution(gpu_types=("a",), **values)


def test_a_commitment_covers_something_at_a_rate() -> None:
    """A commitment without a type, or with a rate of zero, is refused."""
    with pytest.raises(InvalidProblem, match="x covers no GPU type"):
        Commitment(name="x", rates=(None, None))
    for rate in (0.0, -1.0):
        with pytest.raises(InvalidProblem, match="x: a rate is more than zero"):
            Commitment(name="x", rates=(1.0, rate))


def test_a_broad_commitment_pays_for_the_largest_discount_first() -> None:
    """In half of all hours one GPU of each type: `b` at 4 of 5 dollars, `a` at 1 of 2."""
    load, prices = a_load((1, 1), (0, 0)), [2.0, 5.0]
    for rates, level, used, on_demand in (
        ((1.0, 4.0), 4.0, 0.5 * 4.0, 0.5 * 5.0 * 0.25),
        ((1.9, 4.0), 4.0, 0.5 * 4.0, 0.5 * 2.0),
        ((1.0, 4.0), 9.0, 0.5 * 5.0, 0.0),
        ((None, 4.0), 9.0, 0.5 * 4.0, 0.5 * 2.0),
        ((1.0, None), 0.25, 0.5 * 0.25, 0.5 * (2.0 * 0.75 + 5.0)),
    ):
        commitment = Commitment(name="x", rates=rates)
        bill = bill_of(load, prices, [commitment], [level])
        assert commitment.is_broad is (None not in rates)
        assert bill.used == pytest.approx((used,))
        assert (bill.committed, bill.on_demand) == pytest.approx((level, on_demand))
        assert bill.total == pytest.approx(level + on_demand)


@pytest.mark.parametrize(
    ("ratio", "count"),
    [(0.0, 4.0), (0.24, 4.0), (0.25, 3.0), (0.5, 2.0), (0.74, 2.0), (0.75, 1.0), (1.0, 0.0)],
)
def test_the_quantile_is_the_least_count_exceeded_at_most_as_often(ratio: float, count: float) -> None:
    """The counts are 1 to 4 GPUs, each a quarter of the time."""
    assert newsvendor(np.array([3.0, 1.0, 4.0, 2.0]), np.full(4, 0.25), ratio) == count


@pytest.mark.parametrize("most", [1, 2, 4, 1000])
def test_merged_counts_keep_their_total_share_and_their_mean(most: int) -> None:
    """There are at most the given number of counts."""
    counts, share = _thinned(_swing("a", {1: 4.0, 3: 2.0}), most)
    assert len(counts) <= most
    assert (share.sum(), share @ counts) == pytest.approx((1.0, 4.0 + 3.0 * 2.0))
    assert len(_thinned(_swing("a", {1: 4.0}), 1000)[0]) > 15


@pytest.mark.parametrize("seed", range(12))
def test_whole_steps_are_those_of_a_search_over_all_of_them(seed: int) -> None:
    """Up to three types, each with its own step, and one commitment for all; the bound is no higher."""
    draw = np.random.default_rng(seed)
    types = int(draw.integers(1, 4))
    share = draw.random(int(draw.integers(3, 12)))
    load = LoadDistribution(
        gpu_types=tuple("abc"[:types]),
        gpus=draw.integers(0, 12, (len(share), types)).astype(float),
        share=share / share.sum(),
    )
    prices = draw.uniform(1.0, 4.0, types)
    offers = [
        Commitment(
            name=f"only-{g}",
            rates=tuple(float(prices[g] * draw.uniform(0.4, 0.8)) if g == n else None for n in range(types)),
            step=float(draw.choice([2.0, 5.0]) * prices[g]),
        )
        for g in range(types)
    ]
    if types > 1:
        rates = tuple((prices * draw.uniform(0.5, 0.9, types)).tolist())
        offers.append(Commitment(name="all", rates=rates, step=7.0))
    most = [
        sum(load.gpus[:, g].max() * rate for g, rate in enumerate(offer.rates) if rate is not None)
        for offer in offers
    ]
    grids = [np.arange(0.0, top + offer.step, offer.step) for top, offer in zip(most, offers, strict=True)]
    least = min(bill_of(load, prices, offers, levels).total for levels in product(*grids))
    found = best_levels(load, prices, offers)
    assert found.bill.total == pytest.approx(least, rel=1e-6)
    assert found.bound <= least * (1.0 + 1e-6)
    assert found.bound >= least * (1.0 - 1e-6), "the bound proves it"
