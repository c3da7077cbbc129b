"""A record decides again as it was decided, and says so only if facts, actions and costs are the same."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.daemon.service.replay import replay
from boa_daemon.errors import InputError
from boa_daemon.learning.policy_record import DOWN_POLICY, PolicyRecord
from boa_daemon.testing import a_job, a_node, a_problem, a_state, rules
from boa_daemon.tick.facts.codec import digest, dumps, encode
from policies.model import Budget
from policies.registry import PolicyOptions, Site

STATE = a_state(a_job("a"), nodes=[a_node("n1")], now=1000.0)
SITE = Site(problem=a_problem(), budget=Budget(amount=4.0), instance_types=rules().instance_types)
POLICY = PolicyRecord(name=DOWN_POLICY, options=PolicyOptions(), placer="lwf", site=SITE, rules=rules())


def a_record(**changes: Any) -> dict[str, Any]:
    """Return the record of a decision to release the one node."""
    plain = {
        "tick": "7",
        "state": encode(STATE),
        "policy_document": encode(POLICY.document),
        "inputs_hash": digest(dumps(STATE)),
        "outputs_hash": "",
        "chosen": {"usd_of_money_and_waiting": None},
        "runner_up": {"usd_of_money_and_waiting": None},
    }
    return plain | changes


def test_a_replay_is_the_same_if_facts_actions_and_costs_are() -> None:
    """Each of them alone makes it another decision."""
    first = replay(a_record())
    assert first.tick == 7
    assert first.decision.actions
    assert not first.is_same
    whole = a_record(outputs_hash=first.outputs_hash)
    assert replay(whole).is_same
    assert not replay(whole | {"inputs_hash": "another"}).is_same
    assert not replay(whole | {"chosen": {"usd_of_money_and_waiting": 1.0}}).is_same
    later = a_state(a_job("a"), nodes=[a_node("n1")], now=1001.0)
    assert not replay(whole | {"state": encode(later)}).is_same


@pytest.mark.parametrize("key", list(a_record()))
def test_an_incomplete_record_is_refused(key: str) -> None:
    """The error says how to write one."""
    whole = a_record()
    del whole[key]
    with pytest.raises(InputError, match=r"not the record of a decision.*boa decisions --record"):
        replay(whole)
