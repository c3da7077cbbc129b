"""May change widths and the order of service: narrow jobs if a cap has no room for all widths.

`boa_daemon.tick.narrowing` decides which jobs are narrow and which wait.
"""

from __future__ import annotations

from boa_daemon.tick.draft import Draft
from boa_daemon.tick.narrowing import within_room
from boa_daemon.tick.state import ClusterState
from policies.fast_dataclasses import replace


def narrow(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with widths that fit under every cap."""
    allocation = within_room(state, draft.allocation, draft.rules)
    return draft if allocation is draft.allocation else replace(draft, allocation=allocation)
