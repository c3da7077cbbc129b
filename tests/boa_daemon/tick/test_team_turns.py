"""Shares of teams: what one leaves is lent, a claim calls it back, and nobody waits for a claim for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.testing import a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.limits import Caps
from boa_daemon.tick.state import ClusterState, JobTerms
from boa_daemon.tick.team_money import TeamMoney
from boa_daemon.tick.team_turns import behind_their_turn, closed_teams, held_team

HOUR = 3600.0


def a_world(*, red: float | None, blue: float | None, waited: float = 60.0) -> ClusterState:
    """Return a state with a job of each team that waits, and one of none."""
    teams = {"red": "red", "blue": "blue", "free": ""}
    state = a_state(*(a_job(name, arrived_at=100_000.0 - waited) for name in teams), now=100_000.0)
    jobs = {name: replace(job, terms=JobTerms(team=teams[name])) for name, job in state.jobs.items()}
    money = {"red": TeamMoney(ahead_usd=red), "blue": TeamMoney(ahead_usd=blue)}
    return replace(state, jobs=jobs, teams=money)


@pytest.mark.parametrize(
    ("red", "blue", "waits"),
    [
        (5.0, -5.0, {"red"}),
        (-5.0, 5.0, {"blue"}),
        (5.0, 5.0, set()),
        (-5.0, -5.0, set()),
        (5.0, None, set()),
        (None, -5.0, set()),
    ],
)
def test_who_is_ahead_waits_for_who_is_behind_and_has_work(
    red: float | None, blue: float | None, waits: set[str]
) -> None:
    """Without a claim everything is lent; jobs without a team, and teams without a share, never wait."""
    state = a_world(red=red, blue=blue)
    assert set(behind_their_turn(state, ())) == waits
    assert set(behind_their_turn(state, ("red", "blue"))) == set()


def test_a_claim_ends_after_a_half_life() -> None:
    """A job that waits longer than that waits for something else: no machine, no price."""
    assert behind_their_turn(a_world(red=5.0, blue=-5.0, waited=23 * HOUR), ()) == {"red": "team-share"}
    assert behind_their_turn(a_world(red=5.0, blue=-5.0, waited=25 * HOUR), ()) == {}


SITE = rules(caps=Caps(least_run_seconds=1800.0))  # Nodes of four GPUs at 4 USD an hour.


def with_purse(purse: TeamMoney, *, runs: int, now: float = 0.5 * 24 * HOUR) -> ClusterState:
    """Return a state in which "red" runs one job on so many GPUs, and nobody else has a purse."""
    held = {"a": some_slots("n1", *range(runs))} if runs else {}
    state = a_state(a_job("a"), a_job("other"), nodes=[a_node("n1")], held=held, now=now)
    jobs = {**state.jobs, "a": replace(state.jobs["a"], terms=JobTerms(team="red"))}
    return replace(state, jobs=jobs, teams={"red": purse})


@pytest.mark.parametrize("runs", [0, 2])
def test_a_purse_is_closed_where_one_more_gpu_could_not_run_for_the_least_time(runs: int) -> None:
    """Half an hour at a dollar per GPU and hour: of what runs, and of one GPU more."""
    least = 0.5 * (runs + 1)
    for spent, is_closed in ((10.0 - least, False), (10.01 - least, True)):
        day = TeamMoney(day_cap_usd=10.0, spent_today_usd=spent)
        assert closed_teams(with_purse(day, runs=runs), SITE) == (
            {"red": "team-day-cap"} if is_closed else {}
        )
        month = TeamMoney(month_cap_usd=10.0, spent_month_usd=spent)
        assert closed_teams(with_purse(month, runs=runs), SITE) == (
            {"red": "team-month-cap"} if is_closed else {}
        )


def test_a_start_near_midnight_has_to_fit_both_days() -> None:
    """A quarter of an hour is left of a day; the next one has its whole cap, which may be too little."""
    late = 24 * HOUR - 900.0
    spent = TeamMoney(day_cap_usd=10.0, spent_today_usd=10.0)
    fits = TeamMoney(day_cap_usd=0.3, spent_today_usd=0.0)
    tight = TeamMoney(day_cap_usd=0.2, spent_today_usd=-5.0)
    for purse, is_closed in ((spent, True), (fits, False), (tight, True)):
        assert bool(closed_teams(with_purse(purse, runs=0, now=late), SITE)) is is_closed


def test_nobody_is_closed_where_the_site_has_no_caps_or_no_teams() -> None:
    """Purses are kept with the caps."""
    spent = with_purse(TeamMoney(day_cap_usd=1.0, spent_today_usd=1.0), runs=0)
    assert closed_teams(spent, rules()) == {}
    assert closed_teams(replace(spent, teams={}), SITE) == {}
    free = replace(rules(instance_types={}), caps=SITE.caps)
    assert closed_teams(spent, free) == {"red": "team-day-cap"}, "nothing is left, whatever a GPU costs"


def test_a_team_that_waits_is_told_the_numbers_of_its_purse() -> None:
    """Which cap, what was spent of it; or how far it is ahead."""
    money = TeamMoney(
        day_cap_usd=1.0, spent_today_usd=2.0, month_cap_usd=3.0, spent_month_usd=4.0, ahead_usd=5.0
    )
    for why, numbers in (
        ("team-share", {"ahead_usd": 5.0}),
        ("team-day-cap", {"spent_usd": 2.0, "cap_usd": 1.0}),
        ("team-month-cap", {"spent_usd": 4.0, "cap_usd": 3.0}),
    ):
        held = held_team("red", why, money)  # type: ignore[arg-type]
        assert (held.what, held.code, dict(held.numbers)) == ("team red", why, numbers)
