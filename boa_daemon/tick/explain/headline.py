"""The first sentence of an explanation: what a job does or waits for, and why, in words for anybody."""

from __future__ import annotations

from boa_daemon.tick.facts.limits import Held
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.reasons import WAIT_REASON_TEXTS, HeldCode
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.room.service_order import NOT_IN_QUEUE, waiting_in_order
from policies.model import JobId

_OF_MOVES: frozenset[HeldCode] = frozenset(
    ("minimum-hold", "moves-of-job", "moves-of-all", "no-effect", "restart-worth", "not-ready", "not-free")
)
"""Notes on moves that are not made, which are no reason to stop."""


def headline(state: ClusterState, plan: Plan, name: JobId) -> str:
    """Return what a present job does now and why, in one sentence."""
    job, planned = state.all_jobs[name], plan.jobs[name]
    if planned.end is not None:
        return f"Job {name} hangs and is ended: it {planned.end}."
    if job.slots:
        return _running(state, plan, name)
    code = planned.waits_for
    if planned.given_up is not None or code == "given-up":
        return f"Job {name} is over: it is not tried again."
    if planned.slots is not None:
        return f"Job {name} starts now on {planned.width}."
    if name in state.unplanned:
        return f"Job {name} has to wait: its class is in no plan."
    if code in NOT_IN_QUEUE and code is not None:
        return f"Job {name} has to wait: {WAIT_REASON_TEXTS[code]}."
    width = planned.width or planned.unpaid
    wants = f" for {width}" if width is not None else ""
    why = f": {WAIT_REASON_TEXTS[code]}" if code is not None else ""
    queue = waiting_in_order(state, plan)
    return f"Job {name} has to wait{wants}, {_place(queue.index(name), len(queue))}{why}."


def _place(before: int, waiting: int) -> str:
    """Return a place in the queue in words."""
    if waiting == 1:
        return "alone in the queue"
    return f"number {before + 1} of {waiting} in the queue"


def _running(state: ClusterState, plan: Plan, name: JobId) -> str:
    """Return what a job that holds GPUs does."""
    job, planned = state.all_jobs[name], plan.jobs[name]
    held, width = job.job.width, planned.width
    if job.is_stopping:
        to = "" if width is None or name not in state.claims else f", and then goes on with {width}"
        return f"Job {name} is stopping{to}."
    if planned.stops:
        return f"Job {name} stops: {why_stopped(state, plan, name)}."
    if planned.slots is not None:
        return f"Job {name} {why_moved(state, plan, name)}."
    if width is None or name in state.unplanned:
        return f"Job {name} runs on {held}."
    if width != held and planned.waits_for is not None:
        why = WAIT_REASON_TEXTS[planned.waits_for]
        return f"Job {name} runs on {held}, and is to have {width}: {why}."
    if width != held:
        return f"Job {name} runs on {held}; planned are {width}."
    changed = planned.changed_reason
    return f"Job {name} runs on {held}{f': {changed}' if changed else ', as planned'}."


def noted(plan: Plan, name: JobId) -> Held | None:
    """Return the note on the limit that a job waits for: its own, that on its nodes, or any of the limit."""
    planned = plan.jobs[name]
    notes = [note for note in plan.held if note.code == planned.waits_for]
    kinds = {kind.gpu_type: kind.name for kind in plan.instance_types.values()}
    machine = kinds.get(planned.width.gpu_type) if planned.width is not None else None
    own = (note for note in notes if note.what == f"job {name}")
    launches = (note for note in notes if machine is not None and note.what.endswith(f" {machine}"))
    return next(own, None) or next(launches, None) or next(iter(notes), None)


def why_stopped(state: ClusterState, plan: Plan, job: JobId) -> str:
    """Return why a job should hold nothing: an end of its nodes comes before what it waits for then."""
    own = (note for note in plan.held if note.what == f"job {job}" and note.code not in _OF_MOVES)
    if (note := next(own, None)) is not None:
        return note.why
    leaves, planned = _why_left(state, job), plan.jobs[job]
    if leaves:
        return leaves
    if planned.width is None and planned.reason is not None:
        return planned.reason
    waits_for = planned.waits_for
    return "the plan gives it no GPUs now" if waits_for is None else WAIT_REASON_TEXTS[waits_for]


def why_moved(state: ClusterState, plan: Plan, job: JobId) -> str:
    """Return why a running job moves, with the old and the new width.

    The price of money is the reason of most moves, and is not repeated in each order.
    """
    held, planned = state.all_jobs[job].job.width, plan.jobs[job]
    moves = f"moves from {held} to {planned.width}"
    leaves = _why_left(state, job) if state.passing_nodes else None
    if leaves is not None:
        return f"{moves}: {leaves}"
    changed = planned.changed_reason
    return moves if changed is None else f"{moves}: {changed}"


def _why_left(state: ClusterState, job: JobId) -> str | None:
    """Return which node of a job ends, and when; None if none does."""
    for name in dict.fromkeys(slot.node for slot in state.all_jobs[job].slots):
        node = state.nodes.get(name)
        if node is None or node.phase == "terminating":
            return f"its node {name} is ending"
        if node.ends_by is not None:
            return f"the cloud takes its node {name} back in {max(node.ends_by - state.now, 0.0):.0f} s"
    return None
