"""Facts of which a stage needs one, and whether they hold; `test_decision.py` checks what each stage says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from boa_daemon.testing import a_job, a_node, a_state, rules
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.needs import Fact, facts_of, needs_of, only_with
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.facts.team_money import TeamMoney


@pytest.mark.parametrize(
    ("changes", "site", "fact"),
    [
        ({"teams": {"red": TeamMoney()}}, {}, "teams"),
        ({"not_ready": frozenset({"a"})}, {}, "not-ready"),
        ({"nodes": {"n1": replace(a_node("n1"), phase="stopped", idle_since=None)}}, {}, "pool"),
        ({}, {"max_nodes": 3}, "limits"),
        ({}, {"orders_links": True}, "links"),
    ],
)
def test_a_fact_holds_where_the_state_or_the_rules_say_so(
    changes: dict[str, Any], site: dict[str, Any], fact: Fact
) -> None:
    """Without it none holds."""
    state = a_state(a_job("a"), nodes=[a_node("n1")])

    assert facts_of(state, rules()) == ()
    assert facts_of(replace(state, **changes), rules(**site)) == (fact,)


def test_a_stage_says_what_it_needs_and_stays_the_function_that_it_is() -> None:
    """A stage that says nothing may always have something to do."""

    def stage(state: ClusterState, draft: Draft) -> Draft:
        del state
        return draft

    assert needs_of(stage) is None
    assert only_with("terms", "teams")(stage) is stage
    assert needs_of(stage) == {"terms", "teams"} <= set(get_args(Fact))
