"""May make jobs wider, and put them first: those whose file names a date that would not be met otherwise.

What a date asks for now comes from the job's own programme (`policies.online.deadlines`): the width at which
the rest costs the least with the date met, and whether spot is safe. The policy's width stands where it is as
fast. A job whose date asks for a width is served before others, earliest date first, and beyond the policy's
ceiling on spending; the site's hard caps come later and overrule it. A date that can no longer be met asks
for nothing. Rigid jobs that run, and widths that a user ordered, are left alone. On spot a job stays until
that is taken back: while it works as fast as asked, it loses none of the time that it has in hand.

Cost: a look-up for each job with a date; about a tenth of a second where a programme is new.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from boa_daemon.tick.dates import (
    HOPELESS,
    advice_of,
    base_width,
    boot_hours_of,
    look_hours_of,
    on_market,
)
from boa_daemon.tick.draft import Draft
from boa_daemon.tick.spending import price_of_next
from boa_daemon.tick.state import ClusterState, DateNote, Rules
from boa_daemon.units import SECONDS_PER_HOUR
from policies.answer import Allocation
from policies.links.machines import is_spot
from policies.model import JobId, Width
from policies.quick import replace

LOOK_AGAIN_PART = 0.005
"""The next look comes after this part of the time left, as long as a step of a programme."""


def meet_dates(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the widths that dates ask for."""
    found = dict(_notes(state, draft))
    if not found:
        return draft
    allocation = draft.allocation
    asked = {job: note.width for job, note in found.items() if note.width is not None}
    slow = {
        job: on_market(draft.rules, width, is_firm=found[job].is_firm)
        for job, width in asked.items()
        if _is_slower(state, allocation, job, width) or _is_unsafe(state, allocation, job, found[job])
    }
    first = sorted(asked, key=lambda job: found[job].at)
    order = (*first, *(job for job in allocation.order if job not in asked))
    ceiling = allocation.most_usd_per_hour
    if ceiling is not None:
        ceiling += sum(_usd_per_hour(state, draft.rules, width) for width in slow.values())
    allocation = replace(
        allocation, widths={**allocation.widths, **slow}, order=order, most_usd_per_hour=ceiling
    )
    left_out = {job: why for job, why in draft.left_out.items() if job not in slow}
    first_seconds = min(note.at for note in found.values()) - state.now
    again = state.now + max(LOOK_AGAIN_PART * first_seconds, SECONDS_PER_HOUR * look_hours_of(draft.rules))
    plan = replace(draft.plan, dates=found, widths=allocation.widths).looked_at_by(again)
    return replace(draft, allocation=allocation, left_out=left_out, plan=plan)


def _notes(state: ClusterState, draft: Draft) -> Iterator[tuple[JobId, DateNote]]:
    """Yield what the dates ask for that are to come."""
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
        is_asked = may_change and advice.kept >= HOPELESS
        yield (
            name,
            DateNote(
                at=due.at,
                kept=advice.kept,
                usd=advice.usd,
                width=advice.width if is_asked else None,
                is_firm=advice.is_firm and is_asked,
            ),
        )


def _is_slower(state: ClusterState, allocation: Allocation, job: JobId, asked: Width) -> bool:
    """Return whether the planned width would take longer than the one that is asked for."""
    due, planned = state.jobs[job].terms.due, base_width(allocation.widths.get(job))
    hours = {} if due is None else dict(due.hours)
    return planned is None or planned not in hours or hours[planned] > hours[asked] * (1.0 + 1e-9)


def _is_unsafe(state: ClusterState, allocation: Allocation, job: JobId, note: DateNote) -> bool:
    """Return whether a job is to start on spot though its date asks for on demand."""
    planned, holds = allocation.widths.get(job), state.jobs[job].slots
    return note.is_firm and not holds and planned is not None and is_spot(planned.gpu_type)


def _usd_per_hour(state: ClusterState, rules: Rules, width: Width) -> float:
    """Return what whole nodes for a width cost."""
    machine = rules.instance_types[width.gpu_type]
    price = price_of_next(state, machine.name, machine.usd_per_hour)
    return ceil(width.gpus / machine.gpus) * price
