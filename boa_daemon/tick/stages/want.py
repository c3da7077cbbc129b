"""May give every job a width: the policy is asked for that, of all jobs that are not set aside."""

from __future__ import annotations

from boa_daemon.tick.draft import Draft
from boa_daemon.tick.ledger import money_of
from boa_daemon.tick.state import ClusterState
from policies.quick import replace


def want(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the policy's widths and reasons, given the jobs and the money."""
    reads_money = getattr(draft.allocator, "reads_money", True)
    money = money_of(state, draft.rules.pace, draft.rules.fixed) if reads_money else None
    aside = draft.set_aside
    jobs = [job.job for name, job in state.jobs.items() if name not in aside]
    allocation = draft.allocator.allocate(jobs, now=state.now, money=money)
    plan = replace(
        draft.plan,
        widths=allocation.widths,
        reasons=allocation.reasons,
        memory=allocation.memory,
        node_prices=allocation.node_prices,
    )
    return replace(draft, allocation=allocation, plan=plan)
