"""May change widths and the order of service: narrow jobs if a cap has no room for all widths.

`boa_daemon.tick.room.narrowing` decides which jobs are narrow and which wait.
"""

from __future__ import annotations

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.room.narrowing import caps_on_room, shared_room
from policies.fast_dataclasses import replace


@only_with("limits", "market")
def narrow(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with widths that fit under every cap, and the caps for whoever explains the plan."""
    caps = caps_on_room(state, draft.allocation, draft.rules)
    if not caps:
        return draft
    allocation = shared_room(state, draft.allocation, caps)
    return replace(draft, allocation=allocation, plan=replace(draft.plan, room_caps=caps))
