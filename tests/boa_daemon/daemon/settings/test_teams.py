"""A job is paid by the team that its file names, else by its user's only team."""

from __future__ import annotations

import pytest

from boa_daemon.daemon.settings.config import TeamSettings
from boa_daemon.daemon.settings.teams import team_of, unknown_team
from boa_daemon.errors import InputError

TEAMS = {
    "vision": TeamSettings(members=["ann", "bob"]),
    "audio": TeamSettings(members=["bob"]),
    "text": TeamSettings(members=[]),
}


@pytest.mark.parametrize(
    ("named", "user", "team"),
    [
        (None, "ann", "vision"),
        ("vision", "ann", "vision"),
        ("audio", "bob", "audio"),
        (None, "eve", None),
    ],
)
def test_which_team_pays(named: str | None, user: str, team: str | None) -> None:
    """A user in no team needs none."""
    assert team_of(named, user, TEAMS) == team


@pytest.mark.parametrize(
    ("named", "user", "said"),
    [
        (None, "bob", "user bob is in the teams audio, vision"),
        ("audio", "ann", "user ann is not in team audio"),
        ("text", "eve", "user eve is not in team text"),
        ("vison", "ann", "there is no team 'vison': it is not one of .*Did you mean 'vision'"),
    ],
)
def test_nobody_spends_the_money_of_a_team_without_being_in_it(
    named: str | None, user: str, said: str
) -> None:
    """The error says which teams there are, or what to type."""
    with pytest.raises(InputError, match=said):
        team_of(named, user, TEAMS)


def test_without_teams_none_can_be_named() -> None:
    """The error says where teams are made."""
    with pytest.raises(InputError, match=r"there is no team 'x'\. See \[teams\.NAME\]"):
        team_of("x", "ann", {})
    assert team_of(None, "ann", {}) is None
    assert "no team 'x'" in str(unknown_team("x", TEAMS))
