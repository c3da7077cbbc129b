"""May change everything, for it comes first: the policy is asked for the width of every job."""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.tick.draft import Draft
from boa_daemon.tick.ledger import money_of
from boa_daemon.tick.state import ClusterState, Plan


def want(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the policy's widths and reasons, given the jobs and the money."""
    money = money_of(state, draft.rules.pace)
    jobs = [job.job for job in state.jobs.values()]
    allocation = draft.allocator.allocate(jobs, now=state.now, money=money)
    plan = Plan(
        widths=allocation.widths,
        slots={},
        reasons=allocation.reasons,
        memory=allocation.memory,
        node_prices=allocation.node_prices,
    )
    return replace(draft, allocation=allocation, plan=plan)
