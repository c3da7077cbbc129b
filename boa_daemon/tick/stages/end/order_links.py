"""May change the order of sending on shared links: record in the plan which order is enforced there.

In the simulator messages follow the plan's order. Elsewhere the gate orders them, on the links where that
pays and for the jobs that ask the gate; all other links have no order.
"""

from __future__ import annotations

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.room.link_order import link_order
from policies.fast_dataclasses import replace


@only_with("links")
def order_links(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the order on every ordered link."""
    if draft.rules.orders_links:
        return replace(draft, plan=replace(draft.plan, link_order=link_order(state, draft.plan.jobs.slots)))
    if state.gate is None:
        return draft
    order = {
        name: link.jobs for name, link in state.gate.links.items() if link.is_ordered and len(link.jobs) > 1
    }
    return replace(draft, plan=replace(draft.plan, link_order=order)) if order else draft
