"""May give waiting jobs up: these jobs have failed and are over.

A job is given up if it failed too often or with a failure that would repeat, if it reached the cost or run
time in its file (`max_usd`, `max_hours`), or if the job it waits for did not end as required. A tick follows
soon for jobs that wait for one of them. Cost: O(jobs).
"""

from __future__ import annotations

from boa_daemon.tick.facts.draft import SOON_SECONDS, Draft
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.reasons import WaitReason
from boa_daemon.tick.facts.retries import GivenUp, GiveUp
from boa_daemon.tick.facts.state import ClusterState, JobTerms
from policies.fast_dataclasses import replace
from policies.model import JobId


@only_with("terms")
def give_up(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the waiting jobs that are not started again, and why."""
    found: dict[JobId, GivenUp] = {}
    for name, job in state.judged_jobs.items():
        why = None if job.slots else _why(job.terms, state.now)
        if why is not None:
            found[name] = why
    if not found:
        return draft
    aside: dict[JobId, WaitReason] = dict.fromkeys(found.keys() & state.jobs.keys(), "given-up")
    plan = draft.plan.with_jobs(replace(draft.plan.jobs, given_up=found))
    plan = plan.looked_at_by(state.now + SOON_SECONDS)
    return replace(draft, set_aside={**draft.set_aside, **aside}, plan=plan)


def _why(terms: JobTerms, now: float) -> GivenUp | None:
    """Return why a waiting job is given up; None if it is not."""
    if terms.money_ends_at is not None and terms.money_ends_at <= now:
        spent = f"the max_usd of its group {terms.group} is spent" if terms.group else "max_usd reached"
        return GivenUp(code="max-usd", reason=spent)
    if terms.hours_end_at is not None and terms.hours_end_at <= now:
        return GivenUp(code="max-hours", reason="max_hours reached")
    if terms.awaited_end:
        said = f"it was to run after {terms.waits_for}, which is {terms.awaited_end}"
        return GivenUp(code="after", reason=said)
    if not terms.failed:
        return None
    verdict = terms.verdict
    return GivenUp(code="failed", reason=verdict.reason) if isinstance(verdict, GiveUp) else None
