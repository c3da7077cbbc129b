"""Determine the team that pays for a job."""

from __future__ import annotations

from collections.abc import Mapping

from boa_daemon.daemon.settings.config import TeamSettings
from boa_daemon.errors import InputError, did_you_mean


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
        raise InputError(f"there is no team {named!r}", hint=did_you_mean(named, teams) or "See [teams.NAME]")
    if named not in its:
        raise InputError(f"user {user} is not in team {named}", hint="Its members are listed in [teams.NAME]")
    return named
