"""May change widths, put jobs first and let jobs wait: serve jobs as the dates in their files require.

What a date asks for now comes from the job's own programme (`policies.online.deadlines`): the width, market
and waits that meet the date for the least money. An earlier end is worth nothing to the job, so the policy's
width does not count. A job that asks for a width is served before others, earliest date first, and beyond the
policy's ceiling on spending; the site's hard caps come later and overrule it. A date that can no longer be
met asks for nothing, and its job runs as the policy says. Running rigid jobs and widths ordered by users are
left alone. A change that only saves money obeys the rules against flapping (`keep_still`).

A job on spot keeps its width until its nodes are taken back: while it is as fast as asked, it loses none of
its spare time. A job moves from on demand to spot only if no other on-demand node has room for it.

Cost: a look-up for each job with a date; about a tenth of a second for a new programme.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.state import ClusterState, DateNote, JobState, Rules
from boa_daemon.tick.money.spending import price_of_next
from boa_daemon.tick.room.deadline_advice import (
    LEAST_PROBABILITY,
    advice_of,
    base_width,
    boot_hours_of,
    look_hours_of,
    markets_of,
    on_market,
)
from boa_daemon.tick.room.service_order import BY_ARRIVAL
from boa_daemon.tick.stages.widths.keep_still import MoveLimits
from boa_daemon.units import SECONDS_PER_HOUR, format_instant
from policies.fast_dataclasses import replace
from policies.model import JobId, Width
from policies.money_text import in_dollars

DATES_FIRST = "jobs whose dates ask for GPUs come first, the earliest date before others"
"""The rule of service of jobs with dates."""
LOOK_AGAIN_PART = 0.005
"""The next tick comes after this part of the time left, which is one step of a programme."""


@only_with("terms")
def meet_dates(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the widths, order and waits that dates ask for."""
    found = dict(_notes(state, draft))
    if not found:
        return draft
    allocation, rules = draft.allocation, draft.rules
    notes = {job: note for job, note in found.items() if note.waits or note.width is not None}
    still = None if rules.steady is None else MoveLimits.of(state, rules.steady)
    asked = {job: _width(state, state.jobs[job], note, rules, still) for job, note in notes.items()}
    widths = {job: width for job, width in asked.items() if width is not None}
    waits = asked.keys() - widths.keys()
    before = {job: width for job, width in allocation.widths.items() if job not in waits}
    first = sorted(widths, key=lambda job: found[job].at)
    order = (*first, *(job for job in allocation.order if job not in asked))
    rule = allocation.order_rule
    if first:
        rule = f"{DATES_FIRST}; then {rule or BY_ARRIVAL}"
    ceiling = allocation.most_usd_per_hour
    if ceiling is not None:
        ceiling += sum(
            _usd_per_hour(state, rules, width)
            for job, width in widths.items()
            if _hours(state.jobs[job], width) < _hours(state.jobs[job], before.get(job))
        )
    allocation = allocation.with_widths(
        asked,
        lambda job: _why(found[job], asked[job]),
        order=order,
        order_rule=rule,
        stay=allocation.stay - asked.keys(),
        most_usd_per_hour=ceiling,
    )
    leave = (
        job
        for job, width in widths.items()
        if base_width(width) == found[job].width
        and not _is_held(state.jobs[job], found[job], still)
        and _is_to_leave(state, state.jobs[job], found[job], width, rules)
    )
    left_out = {job: why for job, why in draft.left_out.items() if job not in asked}
    first_seconds = min(note.at for note in found.values()) - state.now
    again = state.now + max(LOOK_AGAIN_PART * first_seconds, SECONDS_PER_HOUR * look_hours_of(rules))
    return replace(
        draft,
        allocation=allocation,
        left_out={**left_out, **dict.fromkeys(sorted(waits), "spot")},
        other_market=frozenset(leave),
        plan=draft.plan.with_jobs(replace(draft.plan.jobs, dates=found).answered(allocation)).looked_at_by(
            again
        ),
    )


def _why(note: DateNote, width: Width | None) -> str:
    """Return why a job has this width, or waits, for its date."""
    date = f"its date, {format_instant(note.at)}"
    if width is None:
        return f"{date}, leaves time to wait for spot"
    market = " on demand" if note.is_firm else ""
    kept = f"it is met with probability {note.kept:.0%} for about {in_dollars(note.usd)}"
    if base_width(width) == note.width:
        return f"{date}, asks for {note.width}{market}: {kept}"
    return f"it keeps {width} for now; {date}, asks for {note.width}{market}: {kept}"


def _notes(state: ClusterState, draft: Draft) -> Iterator[tuple[JobId, DateNote]]:
    """Yield what the future dates of jobs ask for."""
    for name, job in state.bound_jobs.items():
        due = job.terms.due
        if due is None or due.at <= state.now or not due.hours or name in draft.set_aside:
            continue
        advice = advice_of(
            state, draft.rules, job, due, boot_hours=boot_hours_of(draft.allocation.node_prices)
        )
        may_change = (
            not job.is_stopping and job.terms.ordered_gpus is None and not (job.is_rigid and job.slots)
        )
        is_asked = may_change and advice.kept >= LEAST_PROBABILITY
        yield (
            name,
            DateNote(
                at=due.at,
                kept=advice.kept,
                usd=advice.usd,
                width=advice.width if is_asked else None,
                is_firm=advice.is_firm and is_asked,
                waits=advice.width is None and is_asked,
            ),
        )


def _width(
    state: ClusterState, job: JobState, note: DateNote, rules: Rules, still: MoveLimits | None
) -> Width | None:
    """Return the width that a job should have by its date; None to wait."""
    held = job.job.width if job.slots else None
    asked = None if note.width is None else on_market(rules, note.width, is_firm=note.is_firm)
    if held is None or held == asked:
        return asked
    if base_width(held) == note.width and markets_of(state, job) == {"spot"}:
        return held
    return held if _is_held(job, note, still) else asked


def _is_held(job: JobState, note: DateNote, still: MoveLimits | None) -> bool:
    """Return whether the rules against flapping hold a job back; never if its date asks for more speed."""
    is_faster = job.terms.due is not None and _hours(job, note.width) < _hours(job, job.job.width)
    return not is_faster and still is not None and still.why_held(job, still.moves) is not None


def _hours(job: JobState, width: Width | None) -> float:
    """Return how many hours a job works at a width; infinite without a width, or if unknown."""
    base = base_width(width)
    return inf if base is None or job.terms.due is None else dict(job.terms.due.hours).get(base, inf)


def _is_to_leave(state: ClusterState, job: JobState, note: DateNote, width: Width, rules: Rules) -> bool:
    """Return whether a job should leave its nodes, all of one market, for others of its type.

    If markets are planned apart, the width already says so. A job does not leave nodes shared with others,
    nor while nodes of the market that it leaves have room, because it would only go there.
    """
    leaves = "spot" if note.is_firm else "on-demand"
    is_new = width != job.job.width or not note.is_firm
    is_apart = str(width.kind.on_spot) in rules.instance_types
    if not job.slots or not is_new or is_apart or markets_of(state, job) != {leaves}:
        return False
    mine = {slot.node for slot in job.slots}
    return all(
        set(node.gpus) <= {None, job.job.id} if name in mine else not node.free_gpus
        for name, node in state.nodes.items()
        if node.market == leaves
        and node.instance_type.gpu_type == width.gpu_type
        and node.phase in ("ready", "requested")
    )


def _usd_per_hour(state: ClusterState, rules: Rules, width: Width) -> float:
    """Return the cost of whole nodes for a width, in USD/hour."""
    machine = rules.instance_types[width.gpu_type]
    price = price_of_next(state, machine.name, machine.usd_per_hour)
    return ceil(width.gpus / machine.whole_gpus) * price
