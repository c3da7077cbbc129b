"""The hulls that the page solves with: the greedy solution over them is the exact optimum."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies_planner import problems

from boa_daemon.dashboard.frontier import START_MINUTES, frontier_document
from policies.model import Problem
from policies.optimum.frontier import MixedFrontier


def solved(document: dict[str, Any], budget: float) -> tuple[float, float]:
    """Return (least spend, weighted mean hours) as the page computes them."""
    edges, spend, hours = [], 0.0, 0.0
    for group in document["starts"][0]["groups"]:
        one = document["classes"][group["class"]]
        rate, hull = one["arrivals_per_hour"], group["hull"]
        spend += rate * hull[0]["spend"]
        hours += rate * one["weight"] * hull[0]["hours"]
        for before, after in pairwise(hull):
            more = rate * (after["spend"] - before["spend"])
            edges.append((rate * one["weight"] * (before["hours"] - after["hours"]), more))
    least = spend
    for saved, more in sorted(edges, key=lambda edge: -edge[0] / edge[1]):
        part = max(0.0, min(1.0, (budget - spend) / more))
        spend, hours = spend + part * more, hours - part * saved
    return least, hours / sum(one["arrivals_per_hour"] * one["weight"] for one in document["classes"])


@given(problem=problems(), share=st.floats(0.0, 1.2))
def test_the_greedy_over_the_hulls_of_the_page_is_the_optimum(problem: Problem, share: float) -> None:
    """At any budget, least spend and mean hours equal those of the exact frontier."""
    frontier = MixedFrontier.of(problem)
    least, most = frontier.cheapest_feasible_spend, frontier.largest_useful_spend
    budget = least + share * (most - least)

    found_least, hours = solved(frontier_document(problem), budget)

    assert found_least == pytest.approx(least, rel=1e-6, abs=1e-6)
    assert hours == pytest.approx(frontier.solution_at(budget).weighted_mean_jct_hours, rel=5e-5, abs=1e-6)


@given(problem=problems())
def test_a_later_start_makes_no_trade_of_money_and_time_better(problem: Problem) -> None:
    """The first hulls are those of the stated start time.

    The cheapest plan alone may become faster: a longer start can make a wider one the cheapest.
    """
    starts = frontier_document(problem)["starts"]
    assert [one["minutes"] for one in starts] in ([0.0], list(START_MINUTES))
    for usd_per_hour in (0.0, 0.01, 0.3, 1.0, 10.0, 1e4):
        least = [
            sum(
                min(at["spend"] + usd_per_hour * at["hours"] for at in group["hull"])
                for group in one["groups"]
            )
            for one in starts
        ]
        for before, after in pairwise(least):
            assert after >= before * (1.0 - 1e-6) - 1e-9
