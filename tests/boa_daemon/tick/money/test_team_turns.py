"""Shares of teams: unused money is lent, a team behind its share has a claim, and a claim ends in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.facts.state import ClusterState, JobTerms
from boa_daemon.tick.facts.team_money import TeamMoney
from boa_daemon.tick.money.team_turns import behind_their_turn, closed_teams, held_team

HOUR = 3600.0


def a_world(*, red: float | None, blue: float | None, waited: float = 60.0) -> ClusterState:
    """Return a waiting job of each team, and a job without a team."""
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
def test_a_team_ahead_of_its_share_waits_for_a_team_behind_with_waiting_jobs(
    red: float | None, blue: float | None, waits: set[str]
) -> None:
    """Without such a team no job waits; jobs without a team, and teams without a share, never wait."""
    state = a_world(red=red, blue=blue)
    assert set(behind_their_turn(state, ())) == waits
    assert set(behind_their_turn(state, ("red", "blue"))) == set()


def test_a_claim_ends_after_a_half_life() -> None:
    """A job that waits longer than that waits for something else than money."""
    assert behind_their_turn(a_world(red=5.0, blue=-5.0, waited=23 * HOUR), ()) == {"red": "team-share"}
    assert behind_their_turn(a_world(red=5.0, blue=-5.0, waited=25 * HOUR), ()) == {}


SITE = rules(caps=Caps(least_run_seconds=1800.0))  # Nodes of four GPUs at 4 USD an hour.


def with_purse(purse: TeamMoney, *, runs: int, now: float = 0.5 * 24 * HOUR) -> ClusterState:
    """Return a state in which team "red" runs a job on `runs` GPUs, and no other team has money."""
    held = {"a": some_slots("n1", *range(runs))} if runs else {}
    state = a_state(a_job("a"), a_job("other"), nodes=[a_node("n1")], held=held, now=now)
    jobs = {**state.jobs, "a": replace(state.jobs["a"], terms=JobTerms(team="red"))}
    return replace(state, jobs=jobs, teams={"red": purse})


@pytest.mark.parametrize("runs", [0, 2])
def test_a_team_is_closed_if_one_more_gpu_could_not_run_for_the_least_time(runs: int) -> None:
    """A GPU costs 1 USD per hour: running GPUs and one more need half an hour each."""
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


def test_a_start_near_midnight_must_fit_under_the_caps_of_both_days() -> None:
    """A quarter of an hour is left of today; tomorrow's whole cap may be too small."""
    late = 24 * HOUR - 900.0
    spent = TeamMoney(day_cap_usd=10.0, spent_today_usd=10.0)
    fits = TeamMoney(day_cap_usd=0.3, spent_today_usd=0.0)
    tight = TeamMoney(day_cap_usd=0.2, spent_today_usd=-5.0)
    for purse, is_closed in ((spent, True), (fits, False), (tight, True)):
        assert bool(closed_teams(with_purse(purse, runs=0, now=late), SITE)) is is_closed


def test_no_team_is_closed_without_caps_or_without_teams() -> None:
    """With caps but without instance types the team at its cap is closed."""
    spent = with_purse(TeamMoney(day_cap_usd=1.0, spent_today_usd=1.0), runs=0)
    assert closed_teams(spent, rules()) == {}
    assert closed_teams(replace(spent, teams={}), SITE) == {}
    free = replace(rules(instance_types={}), caps=SITE.caps)
    assert closed_teams(spent, free) == {"red": "team-day-cap"}, "nothing is left, whatever a GPU costs"


def test_the_note_of_a_waiting_team_has_the_numbers_of_its_reason() -> None:
    """It has the spending and the cap, or how far the team is ahead."""
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


def purse(left: float, *, now: float = 43_200.0, held: bool = False, **changes: float) -> Mapping[str, str]:
    """Return the closed teams if a GPU costs one dollar per second and must run for 500 s."""
    kind = an_instance_type(gpus=4, usd_per_gpu_hour=3600.0)
    site = rules(instance_types={"gpu": kind}, caps=Caps(least_run_seconds=500.0))
    node = a_node("n1", kind=kind)
    held_slots = {"a": some_slots("n1", 0), "other": some_slots("n1", 1, 2)} if held else {}
    state = a_state(a_job("a"), a_job("other"), nodes=[node], held=held_slots, now=now)
    red = replace(state.jobs["a"], terms=JobTerms(team="red"))
    money = TeamMoney(day_cap_usd=left, **changes)
    return closed_teams(replace(state, jobs={**state.jobs, "a": red}, teams={"red": money}), site)


def test_a_team_is_closed_if_its_money_does_not_pay_for_one_more_gpu() -> None:
    """One GPU needs 500 dollars, and the team's running job as much; jobs of other teams do not count."""
    assert purse(500.0) == {}
    assert purse(499.9) == {"red": "team-day-cap"}
    assert purse(1000.0, held=True) == {}
    assert purse(999.9, held=True) == {"red": "team-day-cap"}
    assert purse(600.0, spent_today_usd=601.0) == {"red": "team-day-cap"}
    assert purse(600.0, spent_today_usd=599.5, now=86_400.0 - 0.25) == {}


def test_without_instance_types_a_team_is_closed_when_its_cap_is_reached() -> None:
    """There are no prices to compare with; without caps no team is closed."""
    site = rules(instance_types={}, caps=Caps(least_run_seconds=0.5))
    state = a_state(now=43_200.0)
    for spent, is_closed in ((0.25, False), (1.0, True), (1.5, True)):
        money = TeamMoney(day_cap_usd=1.0, spent_today_usd=spent)
        assert bool(closed_teams(replace(state, teams={"red": money}), site)) is is_closed
    money = TeamMoney(day_cap_usd=1.0, spent_today_usd=2.0)
    assert closed_teams(replace(state, teams={"red": money}), rules()) == {}


def test_a_team_exactly_at_its_share_neither_waits_nor_has_a_claim() -> None:
    """Half a dollar ahead or behind counts; a claim holds for a whole half-life."""
    assert behind_their_turn(a_world(red=0.5, blue=-0.5), ()) == {"red": "team-share"}
    assert behind_their_turn(a_world(red=0.0, blue=-0.5), ()) == {}
    assert behind_their_turn(a_world(red=0.5, blue=0.5), ()) == {}
    assert behind_their_turn(a_world(red=5.0, blue=0.0), ()) == {}
    assert behind_their_turn(a_world(red=5.0, blue=-5.0, waited=24 * HOUR), ()) == {"red": "team-share"}


def test_the_note_of_a_team_has_zero_for_unknown_numbers() -> None:
    """The cap or the share is not set."""
    money = TeamMoney(spent_today_usd=1.5, spent_month_usd=2.5)
    for why, numbers in (
        ("team-share", {"ahead_usd": 0.0}),
        ("team-month-cap", {"spent_usd": 2.5, "cap_usd": 0.0}),
        ("team-day-cap", {"spent_usd": 1.5, "cap_usd": 0.0}),
    ):
        held = held_team("red", why, money)  # type: ignore[arg-type]
        assert (held.what, held.code, held.numbers) == ("team red", why, numbers)
