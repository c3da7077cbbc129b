"""May put off moves of running jobs: those whose next nodes do not have what the job needs yet.

A job works on meanwhile. One that has to leave leaves: a node that ends, or goes back for a cap, waits for
nobody.
"""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.tick.draft import SOON_SECONDS, Draft
from boa_daemon.tick.limits import Held
from boa_daemon.tick.state import ClusterState


def keep_until_ready(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which jobs whose next start is not ready keep what they hold."""
    plan = draft.plan
    ending = {node.id for node in state.nodes.values() if node.ends_by is not None}.union(plan.forced)
    put_off = {
        name
        for name in state.not_ready & plan.slots.keys()
        if state.jobs[name].slots and ending.isdisjoint(slot.node for slot in state.jobs[name].slots)
    }
    if not put_off:
        return draft
    plan = replace(
        plan,
        slots={name: slots for name, slots in plan.slots.items() if name not in put_off},
        held=(*plan.held, *(Held(what=f"job {name}", code="not-ready") for name in sorted(put_off))),
    )
    return replace(draft, plan=plan.looked_at_by(state.now + SOON_SECONDS))
