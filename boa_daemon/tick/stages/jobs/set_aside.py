"""May exclude waiting jobs from the decision: jobs that must not start yet.

They rest after a failure or a refusal by their nodes, their file names an instant (`not_before`) or another
job (`after`), somebody ordered that they wait, the money of their user or team is spent, or their team is
ahead of its share while a team behind its share has a claim. The policy is not asked about them, and no later
stage gives them GPUs. Running jobs go on, unless they are ordered to wait. The plan says why the jobs wait,
and wakes up when a rest is over or a new day (UTC) begins. Cost: O(jobs).
"""

from __future__ import annotations

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.limits import Held, day_of
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.reasons import WaitReason
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.money.team_turns import (
    TEAM_CODES,
    behind_their_turn,
    claims_end_at,
    closed_teams,
    held_team,
    money_behind,
    money_of_user,
)
from policies.fast_dataclasses import replace
from policies.model import JobId


@only_with("terms", "teams")
def set_aside(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the waiting jobs that this tick does not plan for, and why."""
    if not (state.bound_jobs or state.teams or draft.set_aside):
        return draft
    spent = {name for name, money in state.users.items() if money.is_spent}
    closed = closed_teams(state, draft.rules)
    given_up, wakes = draft.plan.jobs.given_up, list[float]()
    aside: dict[JobId, WaitReason] = dict(draft.set_aside)
    for name, job in state.bound_jobs.items():
        terms = job.terms
        if name in given_up:
            continue
        if terms.held_by:
            # The only reason that applies to a running job too: it saves, stops and waits.
            aside[name] = "held"
            continue
        if job.slots:
            continue
        if terms.waits_for is not None:
            aside[name] = "after"
        elif (terms.failed or terms.refused) and (rest := terms.rests_until or 0.0) > state.now:
            aside[name] = "resting"
            wakes.append(rest)
        elif terms.not_before is not None and terms.not_before > state.now:
            aside[name] = "not-before"
            wakes.append(terms.not_before)
        elif spent and terms.user in spent:
            aside[name] = "user-day-cap"
        elif terms.team in closed:
            aside[name] = closed[terms.team]
    claims_end = claims_end_at(state, aside) if state.teams else None
    if claims_end is not None:
        aside |= behind_their_turn(state, aside)
    if not aside:
        return draft
    broke = sorted({state.jobs[name].terms.user for name, why in aside.items() if why == "user-day-cap"})
    held = tuple(
        Held(
            what=f"user {name}",
            code="user-day-cap",
            numbers={"spent_usd": state.users[name].spent_usd, "cap_usd": state.users[name].cap_usd},
            money=money_of_user(state, name, draft.rules),
        )
        for name in broke
    )
    teams = {state.jobs[name].terms.team: why for name, why in aside.items() if why in TEAM_CODES}
    held += tuple(
        held_team(
            name,
            why,
            state.teams[name],
            behind=money_behind(state, name, why, draft.rules),
            claim_seconds=None if claims_end is None else claims_end - state.now,
        )
        for name, why in sorted(teams.items())
    )
    if claims_end is not None and "team-share" in teams.values():
        wakes.append(claims_end)
    if broke or teams:
        wakes.append(day_of(state.now).ends_at)
    plan = replace(draft.plan, held=held).looked_at_by(*wakes)
    return replace(draft, set_aside=aside, plan=plan)
