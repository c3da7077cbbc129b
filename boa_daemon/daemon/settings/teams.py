"""Determine the team that pays for a job."""

from __future__ import annotations

from collections.abc import Mapping

from boa_daemon.daemon.settings.config import TeamSettings
from boa_daemon.errors import InputError, not_one_of


def unknown_team(named: str, teams: Mapping[str, TeamSettings]) -> InputError:
    """Return the error for a team that the settings do not have: which there are, and the nearest name."""
    if not teams:
        return InputError(f"there is no team {named!r}", hint="See [teams.NAME]")
    return InputError(f"there is no team {named!r}: it {not_one_of(named, sorted(teams)).partition(' ')[2]}")


def team_of(named: str | None, user: str, teams: Mapping[str, TeamSettings]) -> str | None:
    """Return the team that pays for a user's job: the one that its file names, else the user's only one.

    Raises:
        InputError: when there is no such team, the user is not in it, or is in several and named none.
    """
    its = sorted(name for name, team in teams.items() if user in team.members)
    if named is None:
        if len(its) > 1:
            raise InputError(f"user {user} is in the teams {', '.join(its)}", hint="Say which: team: NAME")
        return its[0] if its else None
    if named not in teams:
        raise unknown_team(named, teams)
    if named not in its:
        raise InputError(f"user {user} is not in team {named}", hint="Its members are listed in [teams.NAME]")
    return named
