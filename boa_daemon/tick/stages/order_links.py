"""May change who sends first on links that several jobs share, where the site orders them."""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.tick.draft import Draft
from boa_daemon.tick.link_order import link_order
from boa_daemon.tick.state import ClusterState


def order_links(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the order on every shared link."""
    if not draft.rules.orders_links:
        return draft
    return replace(draft, plan=replace(draft.plan, link_order=link_order(state, draft.plan.slots)))
