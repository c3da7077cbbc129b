"""Whose turn it is among teams: jobs wait because their team's purse is closed, or another team has a claim.

Money that a team leaves of its share is lent to any team with work. A waiting job of a team that is behind
its share claims it back. Then no waiting job of a team that is ahead starts; running jobs go on, and the lead
of their team fades with the half-life. A claim holds for one half-life: a job that waits longer does not wait
for money.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf

from boa_daemon.tick.facts.limits import Held, HeldMoney, HeldNumber, day_of, month_of
from boa_daemon.tick.facts.reasons import WaitReason
from boa_daemon.tick.facts.state import ClusterState, Rules
from boa_daemon.tick.facts.team_money import TeamCap, TeamMoney
from boa_daemon.tick.money.team_caps import usd_per_hour
from policies.model import JobId

TEAM_CODES = ("team-day-cap", "team-month-cap", "team-share")


def closed_teams(state: ClusterState, rules: Rules) -> Mapping[str, TeamCap]:
    """Return the teams whose purses have no room for a start, not even for one GPU of the cheapest type."""
    if not state.teams or rules.caps is None:
        return {}
    least = least_usd_per_hour(rules)
    closed: dict[str, TeamCap] = {}
    for name, money in state.teams.items():
        rate = _rate(state, name)
        for code, window, _, left in money.left(state.now):
            seconds = window.overlap_seconds(state.now, state.now + rules.caps.least_run_seconds)
            if left < (rate + least) * seconds / 3600.0 or (left <= 0.0 and seconds > 0.0):
                closed[name] = code
    return closed


def least_usd_per_hour(rules: Rules) -> float:
    """Return the price of one GPU of the cheapest type."""
    return min((kind.usd_per_hour / kind.gpus for kind in rules.instance_types.values()), default=0.0)


def behind_their_turn(state: ClusterState, aside: Collection[JobId]) -> Mapping[JobId, WaitReason]:
    """Return the waiting jobs of teams ahead of their share, if a team behind its share has a claim."""
    if claims_end_at(state, aside) is None:
        return {}
    waiting = [name for name, job in state.jobs.items() if not job.slots and name not in aside]
    ahead = {name for name, money in state.teams.items() if (money.ahead_usd or 0.0) > 0.0}
    return {name: "team-share" for name in waiting if state.jobs[name].terms.team in ahead}


def claims_end_at(state: ClusterState, aside: Collection[JobId]) -> float | None:
    """Return when the last claim of a job that waits now ends, in epoch seconds; None without a claim.

    A job that waits claims back what its team has lent, for one half-life.
    """
    ends = [
        job.job.arrived_at + money.half_life_seconds
        for name, job in state.jobs.items()
        if not job.slots
        and name not in aside
        and (money := state.teams.get(job.terms.team)) is not None
        and (money.ahead_usd or 0.0) < 0.0
    ]
    last = max(ends, default=-inf)
    return last if last >= state.now else None


def held_team(
    name: str,
    why: WaitReason,
    money: TeamMoney,
    *,
    behind: HeldMoney | None = None,
    claim_seconds: float | None = None,
) -> Held:
    """Return the note on a team whose jobs wait, with the numbers and the money behind it."""
    numbers: dict[HeldNumber, float]
    if why == "team-share":
        numbers = {"ahead_usd": money.ahead_usd or 0.0}
        if claim_seconds is not None:
            numbers["claim_seconds"] = claim_seconds
        return Held(what=f"team {name}", code="team-share", numbers=numbers)
    if why == "team-month-cap":
        numbers = {"spent_usd": money.spent_month_usd, "cap_usd": money.month_cap_usd or 0.0}
        return Held(what=f"team {name}", code="team-month-cap", numbers=numbers, money=behind)
    numbers = {"spent_usd": money.spent_today_usd, "cap_usd": money.day_cap_usd or 0.0}
    return Held(what=f"team {name}", code="team-day-cap", numbers=numbers, money=behind)


def money_behind(state: ClusterState, name: str, why: WaitReason, rules: Rules) -> HeldMoney | None:
    """Return what a team has spent, what its running jobs reserve, and when its day or month ends."""
    if why not in ("team-day-cap", "team-month-cap") or rules.caps is None:
        return None
    money, is_month = state.teams[name], why == "team-month-cap"
    window = month_of(state.now) if is_month else day_of(state.now)
    seconds = window.overlap_seconds(state.now, state.now + rules.caps.least_run_seconds)
    return HeldMoney(
        spent_usd=money.spent_month_usd if is_month else money.spent_today_usd,
        reserved_usd=_rate(state, name) * seconds / 3600.0,
        room_at=window.ends_at,
        needed_usd=least_usd_per_hour(rules) * seconds / 3600.0,
    )


def money_of_user(state: ClusterState, name: str, rules: Rules) -> HeldMoney:
    """Return what a user has spent today, what their running jobs reserve, and when the day ends."""
    window = day_of(state.now)
    least = 0.0 if rules.caps is None else rules.caps.least_run_seconds
    seconds = window.overlap_seconds(state.now, state.now + least)
    running = (job for job in state.jobs.values() if job.slots and job.terms.user == name)
    return HeldMoney(
        spent_usd=state.users[name].spent_usd,
        reserved_usd=sum(usd_per_hour(state, job.slots) for job in running) * seconds / 3600.0,
        room_at=window.ends_at,
    )


def _rate(state: ClusterState, team: str) -> float:
    """Return the most that the running jobs of a team may cost, in dollars per hour."""
    running = (job for job in state.jobs.values() if job.terms.team == team and job.slots)
    return sum(usd_per_hour(state, job.slots) for job in running)
