"""Idle nodes are released when their hold is over: the policy's hold, or else the site's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from drafts import a_draft, a_plan
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.stages.nodes.release import release
from policies.answer import NodeRetention

NOW = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding(Known):
    """Node prices that keep some `gpu` nodes for 100 s, and two nodes of other types for 50 s."""

    def hold(self, gpu_type: str) -> NodeRetention:
        """Return how many nodes of a type are kept, and for how long."""
        return (
            NodeRetention(nodes=self.nodes, seconds=100.0)
            if gpu_type == "gpu"
            else NodeRetention(nodes=2, seconds=50.0)
        )


def idle(*ages: float) -> list[NodeState]:
    """Return ready nodes that have been idle for these seconds."""
    return [a_node(f"n{number}", idle_since=NOW - age) for number, age in enumerate(ages)]


def planned(nodes: Sequence[NodeState], **changes: Any) -> Plan:
    """Return the plan at NOW."""
    return release(a_state(nodes=nodes, now=NOW), a_draft(**changes)).plan


def test_an_idle_node_is_released_exactly_at_the_end_of_the_sites_hold() -> None:
    """The hold is 60 s: a node idle for 59 s stays for one second more."""
    plan = planned(idle(59.0, 60.0, 61.0))
    assert (plan.releases, plan.wake_at) == (("n1", "n2"), NOW + 1.0)
    assert planned(idle(10.0, 20.0)).wake_at == NOW + 40.0


def test_no_node_of_a_fixed_fleet_is_released() -> None:
    """The node has been idle for 500 s."""
    assert planned(idle(500.0), policy={"nodes": {"gpu-x4": 1}}).releases == ()


def test_nodes_that_are_used_claimed_or_not_ready_are_not_released() -> None:
    """A job starts on n0, n1 is claimed, n2 boots, n3 is stopped, and n4 is busy."""
    nodes = [
        *idle(500.0, 500.0),
        a_node("n2", phase="requested"),
        a_node("n3", phase="stopped"),
        a_node("n4"),
    ]
    state = a_state(a_job("b"), nodes=nodes, held={"b": some_slots("n4", 0)}, now=NOW)
    draft = a_draft(plan=a_plan(slots={"a": some_slots("n0", 0)}), claimed=frozenset({"n1"}))
    assert release(state, draft) is draft


def test_an_idle_node_whose_end_is_announced_is_released_at_once() -> None:
    """It became idle in this second."""
    assert planned([replace(idle(0.0)[0], ends_by=NOW + 500.0)]).releases == ("n0",)


def test_at_the_node_limit_unclaimed_idle_nodes_are_released_at_once() -> None:
    """The plan wakes up a second later; without a node to release there is no wake-up."""
    plan = planned(idle(1.0), is_at_node_limit=True)
    assert (plan.releases, plan.wake_at) == (("n0",), NOW + 1.0)
    assert planned([], is_at_node_limit=True).wake_at is None
    assert planned(idle(60.0)).wake_at is None


@pytest.mark.parametrize(("nodes", "releases"), [(0, "n0 n1 n2"), (1, "n0 n2"), (2, "n2"), (3, "")])
def test_the_policy_keeps_the_nodes_that_became_idle_last(nodes: int, releases: str) -> None:
    """The nodes have been idle for 20, 10 and 30 s."""
    policy = {"node_prices": Holding(widths={}, nodes=nodes)}
    plan = planned(idle(20.0, 10.0, 30.0), policy=policy)
    assert set(plan.releases) == set(releases.split())


def test_the_policys_hold_is_limited_by_the_sites_longest_hold() -> None:
    """The policy's hold is 100 s; the site allows 80, 99.5 or 200 s."""
    policy = {"node_prices": Holding(widths={}, nodes=3)}
    for longest, releases, wake_at in (
        (None, ("n1", "n2"), NOW + 1.0),
        (80.0, ("n0", "n1", "n2"), None),
        (99.5, ("n1", "n2"), NOW + 0.5),
        (200.0, ("n1", "n2"), NOW + 1.0),
    ):
        plan = planned(idle(99.0, 100.0, 101.0), policy=policy, site=rules(longest_hold_seconds=longest))
        assert (set(plan.releases), plan.wake_at) == (set(releases), wake_at)


def test_kept_nodes_are_counted_per_type_and_unknown_types_are_released_at_once() -> None:
    """One `gpu` node and two `other` nodes are kept; the settings do not name the third type."""
    other, third = an_instance_type(gpu_type="other"), an_instance_type(gpu_type="third")
    nodes = [
        *idle(10.0, 20.0),
        *(a_node(f"o{at}", kind=other, idle_since=NOW - 10.0 - at) for at in range(3)),
        a_node("t", kind=third, idle_since=NOW),
    ]
    site = rules(instance_types={"gpu": an_instance_type(), "other": other})
    plan = planned(nodes, policy={"node_prices": Holding(widths={}, nodes=1)}, site=site)
    assert set(plan.releases) == {"n1", "o2", "t"}
    assert plan.wake_at == NOW + 39.0
