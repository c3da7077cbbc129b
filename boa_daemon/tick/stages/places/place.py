"""May change slots and stops: place the wanted changes on the ready nodes.

A job keeps what it holds until its new width can be placed (acquire before release), unless its node ends
within two minutes. Cost: the placer's cost on the nodes with room.
"""

from __future__ import annotations

from boa_daemon.tick.facts.draft import Draft, with_plan
from boa_daemon.tick.facts.state import ClusterState


def place(_state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with GPUs for all wishes that fit now."""
    changes, room = draft.changes, draft.room
    if room is None:
        return draft
    slots = room.place(changes.wishes)
    stops = changes.stops
    if changes.leaving:
        stops = (*stops, *(job for job in changes.leaving if job not in slots))
    jobs = draft.plan.jobs.placed(draft.allocation, slots, stops)
    return with_plan(draft, draft.plan.with_jobs(jobs))
