"""decide(): the pure heart.  Facts come in, a plan and its actions come out.

No clock, no network, no randomness: the same state gives the same decision, so every recorded tick can be
replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from boa_daemon.tick.actions import Action
from boa_daemon.tick.caps import within_caps, within_instances
from boa_daemon.tick.damping import steadied, without_loops
from boa_daemon.tick.diff import diff
from boa_daemon.tick.explain import explain_job
from boa_daemon.tick.ledger import money_of
from boa_daemon.tick.link_order import link_order
from boa_daemon.tick.plan import make_plan
from boa_daemon.tick.state import ClusterState, Plan, Rules
from boa_daemon.tick.whole_nodes import looked_at_soon
from policies.answer import Allocation, NodePrices
from policies.model import Job, JobId, Money
from policies.protocols import Allocator, Placer


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was seen, what is wanted, and what to do about the difference."""

    state: ClusterState
    plan: Plan
    actions: tuple[Action, ...]

    @property
    def wake_at(self) -> float | None:
        """When to decide again even if nothing happens."""
        return self.plan.wake_at

    def explain(self, job: JobId) -> str:
        """Return why a job has its width and its nodes, or why it waits, in sentences with numbers."""
        return explain_job(self.state, self.plan, job)


def decide(state: ClusterState, *, allocator: Allocator, placer: Placer, rules: Rules) -> Decision:
    """Return what to do now."""
    money = money_of(state, rules.pace)
    keeping = _KeepingPrices(allocator=allocator)
    steady = steadied(keeping, state, rules)
    plan = make_plan(
        state, allocator=steady or keeping, placer=placer, rules=within_instances(rules), money=money
    )
    if steady is not None:
        plan = without_loops(state, plan, steady)
    plan = within_caps(state, plan, rules)
    if rules.round_seconds is None:  # else the next round is soon enough
        plan = looked_at_soon(state, plan)
    if rules.orders_links:
        plan = replace(plan, link_order=link_order(state, plan.slots))
    if rules.round_seconds is not None and state.jobs:
        plan = replace(plan, wake_at=_next_round(state, plan, rules.round_seconds))
    plan = replace(plan, node_prices=keeping.node_prices)
    return Decision(state=state, plan=plan, actions=diff(state, plan))


@dataclass(slots=True, kw_only=True)
class _KeepingPrices:
    """Calls an allocator and keeps the node prices of its last answer."""

    allocator: Allocator
    node_prices: NodePrices | None = None

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the other's answer."""
        found = self.allocator.allocate(jobs, now=now, money=money)
        self.node_prices = found.node_prices
        return found


def _next_round(state: ClusterState, plan: Plan, round_seconds: float) -> float:
    """Return when a policy that decides in rounds is due again, or anything else is before.

    With no node there, and none allowed before a cap opens again, no round can change anything until then.
    """
    if not state.nodes and plan.held and not plan.launches and plan.wake_at is not None:
        return plan.wake_at
    held_at = state.now if plan.memory is not None or state.memory is None else state.memory[1]
    due = held_at + round_seconds
    return due if plan.wake_at is None else min(due, plan.wake_at)
