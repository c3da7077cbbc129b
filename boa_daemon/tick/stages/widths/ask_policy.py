"""May give every job a width: ask the policy for the widths of all jobs that are not set aside."""

from __future__ import annotations

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.money.ledger import money_of
from policies.fast_dataclasses import field_replacer

_asked = field_replacer(Plan, "jobs", "memory", "node_prices")
_answered = field_replacer(Draft, "allocation", "plan")


def ask_policy(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the policy's widths and reasons, given the jobs and the money."""
    reads_money = getattr(draft.allocator, "reads_money", True)
    money = money_of(state, draft.rules.pace, draft.rules.fixed) if reads_money else None
    aside = draft.set_aside
    jobs = [job.job for name, job in state.jobs.items() if name not in aside]
    allocation = draft.allocator.allocate(jobs, now=state.now, money=money)
    planned = draft.plan.jobs.answered(allocation)
    plan = _asked(draft.plan, planned, allocation.memory, allocation.node_prices)
    return _answered(draft, allocation, plan)
