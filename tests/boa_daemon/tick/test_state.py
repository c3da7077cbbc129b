"""What a tick looks at: holds of idle nodes under a policy, purses of users, wake-ups."""

from __future__ import annotations

import pytest

from boa_daemon.testing import a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.state import Plan, UserMoney
from policies.answer import Allocation
from policies.site import BuiltPolicy


class Nobody:
    """An allocator that is never asked."""

    def allocate(self, jobs: object, *, now: float, money: object = None) -> Allocation:
        """Return nothing."""
        return Allocation(widths={})


@pytest.mark.parametrize(
    ("by_policy", "longest", "held"),
    [(None, None, 60.0), (None, 10.0, 60.0), (90.0, None, 90.0), (90.0, 40.0, 40.0), (30.0, 40.0, 30.0)],
)
def test_a_policy_that_prices_the_hold_of_idle_nodes_keeps_to_the_sites_longest(
    by_policy: float | None, longest: float | None, held: float
) -> None:
    """The site's own hold where the policy has none; never longer than the site allows otherwise."""
    built = BuiltPolicy(allocator=Nobody(), idle_hold_seconds=by_policy, round_seconds=7.0)
    found = rules(longest_hold_seconds=longest).under(built)
    assert (found.idle_hold_seconds, found.round_seconds) == (held, 7.0)


def test_who_holds_gpus_runs() -> None:
    """A job with slots, and a node with a job on it, are not idle."""
    state = a_state(
        a_job("a"), a_job("b"), nodes=[a_node("n1"), a_node("n2")], held={"a": some_slots("n1", 0)}
    )
    assert {name: job.is_running for name, job in state.jobs.items()} == {"a": True, "b": False}
    assert {name: (node.is_idle, node.free_gpus) for name, node in state.nodes.items()} == {
        "n1": (False, 3),
        "n2": (True, 4),
    }
    assert state.usd_per_hour == 8.0


def test_a_purse_is_spent_when_nothing_is_left() -> None:
    """To the cent."""
    assert [UserMoney(cap_usd=5.0, spent_usd=spent).is_spent for spent in (4.99, 5.0, 5.01)] == [
        False,
        True,
        True,
    ]


def test_a_plan_wakes_up_at_the_earliest() -> None:
    """Instants that are not known change nothing."""
    plan = Plan(widths={}, slots={})
    assert plan.looked_at_by(None) is plan
    assert plan.looked_at_by(3.0, None, 2.0).wake_at == 2.0
    assert plan.looked_at_by(3.0).looked_at_by(5.0).wake_at == 3.0
