"""Sites: the price of a node, boots in start-ups, and hints for misspelt words."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.testing import a_class, a_problem, an_instance_type
from policies.model import Budget
from policies.site import Site, closest, with_boots


def test_a_node_costs_dollars_under_a_dollar_budget_and_gpus_under_a_gpu_budget() -> None:
    """A node of four GPUs at 3 USD each costs 12 dollars or 4 GPUs."""
    kind = an_instance_type(gpus=4, usd_per_gpu_hour=3.0)
    dollars, gpus = Budget(amount=8.0), Budget(amount=8.0, unit="gpus")
    for budget, price in ((dollars, 12.0), (gpus, 4.0)):
        problem = a_problem(a_class(), budget=budget)
        assert Site(problem=problem, budget=budget, instance_types={"gpu": kind}).node_price(kind) == price


def test_a_boot_is_part_of_each_start_up() -> None:
    """The boot is added to the start-up of every class; nothing else changes."""
    problem = a_problem(a_class("a", startup_hours=0.5), a_class("b"))
    found = with_boots(problem, 0.25)
    assert [one.startup_hours for one in found.classes] == [0.5 + 0.25, 0.25]
    assert with_boots(found, 0.0) == found
    assert found.gpu_types == problem.gpu_types


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("nodse", frozenset({"nodes", "node_s", "share"}), "Did you mean 'nodes'?"),
        ("quux", {"b": 1, "a": 2}, "Known: a, b"),
        ("quux", frozenset(), "It has no options"),
    ],
)
def test_a_hint_names_the_closest_word_or_all(word: str, known: Any, hint: str) -> None:
    """Without a close word the hint lists all known words in alphabetical order."""
    assert closest(word, known) == hint
