"""Explain a job: why it has its width and its nodes, or why it waits, in sentences with numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.tick.explain.explain_sharing import explain_links, explain_neighbours, explain_span
from boa_daemon.tick.explain.headline import noted
from boa_daemon.tick.facts.limits import Held
from boa_daemon.tick.facts.offers import closed_until
from boa_daemon.tick.facts.plan import Plan, PlannedJob
from boa_daemon.tick.facts.reasons import WAIT_REASON_TEXTS, HeldCode, WaitReason
from boa_daemon.tick.facts.state import ClusterState, JobState
from boa_daemon.tick.money.spending import live_nodes
from boa_daemon.tick.money.team_turns import TEAM_CODES
from boa_daemon.tick.room.service_order import BY_ARRIVAL, waiting_in_order
from boa_daemon.units import counted, format_hours, format_instant
from policies.answer import Accrual
from policies.model import JobId, Width
from policies.money_text import in_dollars

_ASKED_AGAIN: frozenset[WaitReason] = frozenset(
    ("out-of-stock", "quota", "denied", "throttled", "bad-request", "no-price")
)
"""Reasons that come from the cloud, which is asked again after a while."""
_MONEY: frozenset[WaitReason] = frozenset(("budget", "cap-day", "cap-month"))
_ROOM: frozenset[WaitReason] = _MONEY | frozenset[WaitReason](
    (
        "node-limit",
        "cap-hour",
        "cap-instances",
        "quota",
        "out-of-stock",
        "fleet-full",
        "gpus-to-fall-free",
    )
)
"""Reasons of jobs that compete for scarce room or money."""
_BESIDE_DATES: frozenset[WaitReason] = frozenset(
    ("cap-day", "cap-month", "cap-hour", "cap-instances", "node-limit", "team-day-cap", "team-month-cap")
)
"""Limits that the programme of a date does not count."""
_NAMED_AS_ENDS: frozenset[HeldCode] = frozenset(("max-usd", "max-hours"))
"""Notes that are the reason of an ordered end, which the first sentence says."""
_NO_WIDTH: Mapping[WaitReason, str] = {
    "cap-hour": "The nodes of its narrowest width cost more than that ceiling; other jobs go on.",
    "cap-instances": "Its narrowest width takes more nodes than that cap; other jobs go on.",
    "spot": "It starts on demand in time where spot does not come.",
}
"""The consequence for a job that has no width at all for one of these reasons."""
_WITHOUT_WIDTH: frozenset[WaitReason] = frozenset((*_NO_WIDTH, "budget"))
"""Reasons for which a job has no width at all."""
MOST_NAMED = 4
"""How many of the jobs before a waiting one are named."""
_UNPLANNED = "No new plan can be made, and the last one lacks its class"


def explain_job(state: ClusterState, plan: Plan, job_id: JobId) -> str:
    """Return why a job has its width and its nodes, or why it waits.

    Raises:
        InputError: when no job of that id is present.
    """
    jobs = state.all_jobs
    job = jobs.get(job_id)
    if job is None:
        raise InputError(f"no job {job_id!r} is present", hint=did_you_mean(job_id, jobs))
    planned = plan.jobs[job_id]
    width, waits_for = planned.width, planned.waits_for
    sentences = [_presence(state, job), *_losses(job)]
    if not job.slots and (aside := _set_aside(state, plan, job)):
        return " ".join([*sentences, aside])
    if job_id in state.unplanned:
        sentences.append(_unplanned(plan, job))
    else:
        sentences.append(_left_out(plan, job) or _width(planned))
    sentences += _leaving(plan, job)
    told: Held | None = None
    if waits_for is not None:
        sentences += _order(state, plan, job)
    if waits_for is not None and width is not None:
        told = noted(plan, job_id)
        sentences.append(_wait(state, plan, job, width))
    elif planned.slots is not None:
        when = "It starts now" if not job.slots else "Once it has stopped it starts"
        sentences.append(f"{when} on {_nodes(slot.node for slot in planned.slots)}.")
    if planned.date is not None and waits_for in _BESIDE_DATES:
        sentences.append("What is said of its date is limits apart: it does not know of this one.")
    if planned.head_start is not None:
        sentences.append(
            f"It starts narrow and gets {planned.head_start} once there is room; "
            "the early work outweighs the restart."
        )
    if planned.own_width is not None:
        sentences.append(
            f"{planned.own_width} are planned for it; the rest would be idle on its nodes; "
            "it is lent until a job waits."
        )
    if planned.end is not None:
        sentences.append(f"It {planned.end}, and is ended.")
    notes = (held for held in plan.held if held.what == f"job {job_id}" and held is not told)
    sentences += [f"Held back: {held.why}." for held in notes if held.code not in _NAMED_AS_ENDS]
    slots = job.slots if planned.slots is None else planned.slots
    if job_id in state.jobs and len({slot.node for slot in slots}) > 1:
        nodes = dict.fromkeys(slot.node for slot in slots)
        sentences += [
            explain_span(state, slots, is_to_come=slots != job.slots),
            *explain_links(state, plan, job_id, nodes),
        ]
    sentences += explain_neighbours(state, plan, job_id, slots)
    return " ".join(sentences)


def _presence(state: ClusterState, job: JobState) -> str:
    """Return the job's id, class, age and phase, and what it holds where."""
    since = format_hours((state.now - job.job.arrived_at) / 3600.0)
    phase = job.job.phase + 1
    who = f"Job {job.job.id} of class {job.job.class_name} arrived {since} ago and is in phase {phase}"
    if not job.slots:
        return f"{who}; it holds no GPUs."
    return f"{who}; it holds {job.job.width} on {_nodes(slot.node for slot in job.slots)}."


def _losses(job: JobState) -> list[str]:
    """Return the steps that a job lost without a checkpoint, and its failures."""
    found, lost = [], job.lost_steps
    if lost:
        steps = counted(lost, "step")
        again = "them" if lost > 1 else "it"
        found.append(
            f"It lost {steps} that no checkpoint has, and repeats {again}; `boa jobs` and its log say why."
        )
    if job.terms.failures:
        times = "once" if job.terms.failures == 1 else f"{job.terms.failures} times"
        found.append(f"It failed {times} so far; how it ended last: {job.terms.last_end}.")
    return found


def _set_aside(state: ClusterState, plan: Plan, job: JobState) -> str:
    """Return why this tick does not plan for a waiting job; empty if it does."""
    planned = plan.jobs[job.job.id]
    reason, why = planned.waits_for, planned.given_up
    if why is not None or reason == "given-up":
        return f"It is given up: {WAIT_REASON_TEXTS['given-up'] if why is None else why.reason}."
    if reason == "resting":
        rest = max((job.terms.rests_until or state.now) - state.now, 0.0)
        return f"It rests for {rest:.0f} s more before it is tried again."
    if reason == "not-before" and job.terms.not_before is not None:
        return f"It is not to start before {format_instant(job.terms.not_before)} (not_before)."
    if reason == "held":
        return f"It waits until it is released: {job.terms.held_by or 'somebody'} ordered so."
    if reason == "after":
        other = None if job.terms.waits_for is None else state.all_jobs.get(job.terms.waits_for)
        how = "is over" if other is None else "is running" if other.slots else "waits itself"
        return f"It waits for job {job.terms.waits_for}, which {how} (after)."
    if reason == "user-day-cap":
        money = state.users.get(job.terms.user)
        said = "" if money is None else f" {in_dollars(money.spent_usd)} of {in_dollars(money.cap_usd)}"
        return (
            f"It is held back: the jobs of user {job.terms.user} have spent today's cap"
            f"{said and ':'}{said}. It may start after midnight UTC."
        )
    if reason in TEAM_CODES:
        team = f"team {job.terms.team}"
        said = next((held.why for held in plan.held if held.what == team), "")
        return f"It is held back{f' with its {team}' if said else ''}: {said or WAIT_REASON_TEXTS[reason]}."
    return ""


def _unplanned(plan: Plan, job: JobState) -> str:
    """Return what happens to a job whose class the plan does not know."""
    if not job.slots:
        return f"{_UNPLANNED}: it waits for a plan that has it."
    planned = plan.jobs[job.job.id]
    if job.is_stopping or planned.stops or planned.end is not None:
        return f"{_UNPLANNED}: it starts nowhere once it has stopped."
    return f"{_UNPLANNED}: it keeps its GPUs, and starts nowhere else."


def _leaving(plan: Plan, job: JobState) -> list[str]:
    """Return whether a running job is told to stop, and which of its nodes end under it."""
    said, planned = [], plan.jobs[job.job.id]
    if job.is_stopping:
        said.append("It was told to stop, and holds its GPUs until it stops.")
    elif job.slots and (planned.stops or planned.slots is not None):
        said.append("It is told to stop now.")
    gone = [node for node in dict.fromkeys(slot.node for slot in job.slots) if node in plan.forced]
    return said + [f"Node {node} is given back while the job is on it." for node in gone]


def _left_out(plan: Plan, job: JobState) -> str:
    """Return why a ceiling gives a job no width; empty if none does."""
    planned = plan.jobs[job.job.id]
    reason, why = planned.waits_for, planned.changed_reason
    if planned.width is not None or reason is None or reason not in _WITHOUT_WIDTH:
        return ""
    numbers = f" ({why})" if why else ""
    who = "is to wait" if job.slots else "waits"
    then = f" {_NO_WIDTH[reason]}" if reason in _NO_WIDTH else ""
    return f"It {who}: {WAIT_REASON_TEXTS[reason]}{numbers}.{then}"


def _width(planned: PlannedJob) -> str:
    """Return the planned width, and why."""
    why = planned.reason
    if planned.width is None:
        said = "earlier jobs have them all" if why is None else why
        return f"The policy gives it no GPUs now: {said}."
    said = "the policy's width for its class and phase" if why is None else why
    return f"Planned are {planned.width}: {said}."


def _wait(state: ClusterState, plan: Plan, job: JobState, width: Width) -> str:
    """Return what a job waits for; a running job works on meanwhile, unless it is stopping."""
    planned = plan.jobs[job.job.id]
    reason = planned.waits_for
    assert reason is not None
    of_type = [node for node in state.nodes.values() if node.instance_type.gpu_type == width.gpu_type]
    leaving = {*plan.releases, *plan.forced}
    free = sum(
        node.free_gpus
        for node in of_type
        if node.phase == "ready" and node.ends_by is None and node.id not in leaving
    )
    coming = [node for node in of_type if node.phase == "requested"]
    new = sum(
        count for name, count in plan.launches.items() if plan.instance_types[name].gpu_type == width.gpu_type
    )
    have = f"{min(free, width.gpus)} are free"
    if job.job.width is not None and job.job.width.gpu_type == width.gpu_type:
        have = f"it holds {min(job.job.width.gpus, width.gpus)}, and {free} more are free"
    have = f"Of its {width.gpus} GPUs {have}; nodes booting: {len(coming)}, asked for now: {new}"
    asleep = sum(node.phase == "stopped" for node in of_type)
    if asleep:
        have += f", stopped and started first: {min(asleep, new)} of {asleep}"
    said, more = WAIT_REASON_TEXTS[reason], ""
    if reason in _ASKED_AGAIN:
        seconds = _asked_again_in(state, plan, width)
        more = f"; it is asked again in {seconds:.0f} s" if isfinite(seconds) else ""
    elif reason == "node-limit":
        held = sum(node.phase != "stopped" for node in state.nodes.values())
        most = [f", of {cap.size:.0f} at most" for cap in plan.room_caps if cap.code == "node-limit"]
        more = f" ({held} held, {sum(plan.launches.values())} asked for now{''.join(most[:1])})"
    elif (note := noted(plan, job.job.id)) is not None:
        # The note on the limit has the numbers.
        said = note.why
    elif reason == "budget" and plan.accrual is not None:
        more = f" ({_money_now(state, plan.accrual)})"
    who = "It waits" if not job.slots else "It works on at its present width, and waits for the planned one"
    if job.slots and (job.is_stopping or planned.stops or planned.end is not None):
        who = "It is to wait"
    return f"{who}: {said}{more}. {have}."


def _order(state: ClusterState, plan: Plan, job: JobState) -> list[str]:
    """Return the rule of service, and which jobs a job that waits for scarce room stands behind."""
    queue, reason = waiting_in_order(state, plan), plan.jobs[job.job.id].waits_for
    if reason not in _ROOM or job.job.id not in queue:
        return []
    place = queue.index(job.job.id)
    rule = plan.order_rule or BY_ARRIVAL
    first = f"{_some(queue[:place])} {'comes' if place == 1 else 'come'} before it" if place else "it is next"
    more = "with more money" if reason in _MONEY else "with more room"
    return [
        f"It is number {place + 1} of {len(queue)} in the queue: {first}.",
        f"{rule[:1].upper()}{rule[1:]}; it moves up when a job ends, or {more}.",
    ]


def _money_now(state: ClusterState, accrual: Accrual) -> str:
    """Return what the accrued money pays for now, beside what is rented."""
    rented = sum(node.usd_per_hour for node in live_nodes(state))
    return (
        f"the budget of {in_dollars(accrual.per_hour)}/hour now pays for "
        f"{in_dollars(accrual.most_per_hour)}, and "
        f"{in_dollars(rented)} are rented"
    )


def _some(jobs: Sequence[JobId]) -> str:
    """Return the first of some jobs, and how many more there are."""
    named = ", ".join(jobs[:MOST_NAMED])
    return named if len(jobs) <= MOST_NAMED else f"{named} and {counted(len(jobs) - MOST_NAMED, 'more job')}"


def _asked_again_in(state: ClusterState, plan: Plan, width: Width) -> float:
    """Return in how many seconds machines for a width are requested again; infinite if unknown."""
    for name, kind in plan.instance_types.items():
        if kind.gpu_type == width.gpu_type:
            for nodes in (1, -(-width.gpus // kind.gpus)):
                rest = closed_until(name, state.offers, state.cooldowns, now=state.now, together=nodes)
                if rest is not None:
                    return rest.until - state.now
    return inf


def _nodes(names: Iterable[str]) -> str:
    """Return node names, each with the number of GPUs used on it."""
    counts = Counter(names)
    return ", ".join(f"{name} ({counted(gpus, 'GPU')})" for name, gpus in counts.items())
