"""The first sentence of an explanation: what a job does or waits for, and why, in words for anybody."""

from __future__ import annotations

from boa_daemon.tick.diff import why_moved, why_stopped
from boa_daemon.tick.reasons import WAIT_REASON_TEXTS
from boa_daemon.tick.service_order import NOT_IN_QUEUE, waiting_in_order
from boa_daemon.tick.state import ClusterState, Plan
from policies.answer import was_changed
from policies.model import JobId


def headline(state: ClusterState, plan: Plan, name: JobId) -> str:
    """Return what a present job does now and why, in one sentence."""
    job, width = state.all_jobs[name], plan.widths.get(name)
    if name in plan.ends:
        return f"Job {name} hangs and is ended: it {plan.ends[name]}."
    if job.slots:
        return _running(state, plan, name)
    if name in plan.given_up or plan.waiting.get(name) == "given-up":
        return f"Job {name} is over: it is not tried again."
    if name in plan.slots:
        return f"Job {name} starts now on {width}."
    code = plan.waiting.get(name)
    if name in state.unplanned:
        return f"Job {name} has to wait: its class is in no plan."
    if code in NOT_IN_QUEUE and code is not None:
        return f"Job {name} has to wait: {WAIT_REASON_TEXTS[code]}."
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
    job, width = state.all_jobs[name], plan.widths.get(name)
    held = job.job.width
    if job.is_stopping:
        to = "" if width is None or name not in state.claims else f", and then goes on with {width}"
        return f"Job {name} is stopping{to}."
    if name in plan.stops:
        noted = next((note.sentence for note in plan.held if note.what == f"job {name}"), None)
        return f"Job {name} stops: {noted or why_stopped(state, plan, name)}."
    if name in plan.slots:
        return f"Job {name} {why_moved(state, plan, name)}."
    if width is None or name in state.unplanned:
        return f"Job {name} runs on {held}."
    why = plan.reasons.get(name, "") if was_changed(plan.reasons, name) else ""
    if width != held and name in plan.waiting:
        return f"Job {name} runs on {held}, and is to have {width}: {WAIT_REASON_TEXTS[plan.waiting[name]]}."
    if width != held:
        return f"Job {name} runs on {held}; planned are {width}."
    return f"Job {name} runs on {held}{f': {why}' if why else ', as planned'}."
