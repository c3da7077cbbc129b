"""May change widths and the order of service: where a cap has no room for all widths, jobs get narrower ones.

What is narrow and who waits is said in `boa_daemon.tick.narrowing`.
"""

from __future__ import annotations

from boa_daemon.tick.draft import Draft
from boa_daemon.tick.narrowing import within_room
from boa_daemon.tick.state import ClusterState
from policies.fast_dataclasses import replace


def narrow(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with widths that every cap has room for."""
    allocation = within_room(state, draft.allocation, draft.rules)
    return draft if allocation is draft.allocation else replace(draft, allocation=allocation)
