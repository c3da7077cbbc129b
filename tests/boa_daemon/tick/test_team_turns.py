"""Shares of teams: what one leaves is lent, a claim calls it back, and nobody waits for a claim for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.testing import a_job, a_state
from boa_daemon.tick.state import ClusterState, JobTerms
from boa_daemon.tick.team_money import TeamMoney
from boa_daemon.tick.team_turns import behind_their_turn

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
