"""Idle nodes go back when their hold is over: the policy's, where it knows one, else the site's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from drafts import a_draft, a_plan
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.stages.release import release
from boa_daemon.tick.state import NodeState, Plan
from policies.answer import NodeRetention

NOW = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding(Known):
    """Node prices that hold some nodes of type "gpu" for 100 s, and two others for 50 s."""

    def hold(self, gpu_type: str) -> NodeRetention:
        """Return what is worth holding of a type."""
        return (
            NodeRetention(nodes=self.nodes, seconds=100.0)
            if gpu_type == "gpu"
            else NodeRetention(nodes=2, seconds=50.0)
        )


def idle(*ages: float) -> list[NodeState]:
    """Return ready nodes that fell idle so many seconds ago."""
    return [a_node(f"n{number}", idle_since=NOW - age) for number, age in enumerate(ages)]


def planned(nodes: Sequence[NodeState], **changes: Any) -> Plan:
    """Return the plan at NOW."""
    return release(a_state(nodes=nodes, now=NOW), a_draft(**changes)).plan


def test_the_sites_hold_is_kept_to_the_second() -> None:
    """60 s: one of 59 s stays a second more, one of 60 goes, and so does one of 61."""
    plan = planned(idle(59.0, 60.0, 61.0))
    assert (plan.releases, plan.wake_at) == (("n1", "n2"), NOW + 1.0)
    assert planned(idle(10.0, 20.0)).wake_at == NOW + 40.0


def test_a_fixed_fleet_is_not_touched() -> None:
    """Its count says what goes back."""
    assert planned(idle(500.0), policy={"nodes": {"gpu-x4": 1}}).releases == ()


def test_nodes_that_are_used_or_claimed_or_not_ready_stay() -> None:
    """A job is to start on n0, another counts on n1; n2 still boots, n3 is stopped, n4 is busy."""
    nodes = [
        *idle(500.0, 500.0),
        a_node("n2", phase="requested"),
        a_node("n3", phase="stopped"),
        a_node("n4"),
    ]
    state = a_state(a_job("b"), nodes=nodes, held={"b": some_slots("n4", 0)}, now=NOW)
    draft = a_draft(plan=a_plan(slots={"a": some_slots("n0", 0)}), claimed=frozenset({"n1"}))
    assert release(state, draft) is draft


def test_a_node_whose_end_is_announced_is_not_held() -> None:
    """It fell idle this second."""
    assert planned([replace(idle(0.0)[0], ends_by=NOW + 500.0)]).releases == ("n0",)


def test_at_the_limit_on_nodes_whatever_nobody_claims_goes_at_once_and_the_next_look_is_soon() -> None:
    """The limit has room then; without an idle node there is nothing to look at."""
    plan = planned(idle(1.0), is_at_node_limit=True)
    assert (plan.releases, plan.wake_at) == (("n0",), NOW + 1.0)
    assert planned([], is_at_node_limit=True).wake_at is None
    assert planned(idle(60.0)).wake_at is None


@pytest.mark.parametrize(("nodes", "releases"), [(0, "n0 n1 n2"), (1, "n0 n2"), (2, "n2"), (3, "")])
def test_the_policy_says_how_many_stay_and_those_that_fell_idle_last_do(nodes: int, releases: str) -> None:
    """Idle for 20, 10 and 30 s."""
    policy = {"node_prices": Holding(widths={}, nodes=nodes)}
    plan = planned(idle(20.0, 10.0, 30.0), policy=policy)
    assert set(plan.releases) == set(releases.split())


def test_the_policys_hold_ends_to_the_second_and_at_the_sites_longest() -> None:
    """100 s by the policy; 80 s where the site allows no more, and 100 where it allows 200."""
    policy = {"node_prices": Holding(widths={}, nodes=3)}
    for longest, releases, wake_at in (
        (None, ("n1", "n2"), NOW + 1.0),
        (80.0, ("n0", "n1", "n2"), None),
        (99.5, ("n1", "n2"), NOW + 0.5),
        (200.0, ("n1", "n2"), NOW + 1.0),
    ):
        plan = planned(idle(99.0, 100.0, 101.0), policy=policy, site=rules(longest_hold_seconds=longest))
        assert (set(plan.releases), plan.wake_at) == (set(releases), wake_at)


def test_types_are_counted_apart_and_one_that_is_gone_from_the_settings_goes_at_once() -> None:
    """One of "gpu" stays and two of "other"; the third type nobody knows."""
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
