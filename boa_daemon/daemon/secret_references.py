"""Which secrets a job may name, and whose job: refused where it is submitted, not where it starts."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from boa_daemon.daemon.config import EngineSettings, Settings
from boa_daemon.daemon.setting_layers import OF_TEAM
from boa_daemon.engines.engine_kinds import engine_kind
from boa_daemon.errors import InputError
from boa_daemon.job.secrets import SecretMissing, read_store


def check_rights(content: Mapping[str, Any], user: str, settings: Settings) -> None:
    """Refuse a job that names a secret which is not its user's to name; of the secret nothing is said.

    Raises:
        InputError: naming the variable, its reference, and whose it is.
    """
    for name, reference in content.get("secrets", {}).items():
        owners = _owners(reference, settings.secrets)
        if owners is None or any(_is_of(user, owner, settings) for owner in owners):
            continue
        named = ", ".join(owners) or "nobody"
        raise InputError(
            f"secrets: {name}: {reference}: user {user} may not name it",
            hint=f"[secrets] has it for {named}: whoever looks after the daemon may add {user}",
        )


def _owners(reference: str, rights: Mapping[str, list[str]]) -> list[str] | None:
    """Return who may name a secret, by the longest pattern that fits it; None where none does."""
    fitting = [pattern for pattern in rights if fnmatchcase(reference, pattern)]
    return rights[max(fitting, key=len)] if fitting else None


def _is_of(user: str, owner: str, settings: Settings) -> bool:
    """Whether a user is an owner, or in the team that is one."""
    team = owner.removeprefix(OF_TEAM)
    return user == owner if team == owner else user in settings.teams[team].members


def check_secrets(content: Mapping[str, Any], engine: EngineSettings) -> None:
    """Refuse a job whose secrets its machines could not have, or may not.

    Raises:
        InputError: naming the variable and its reference.
    """
    for name, reference in content.get("secrets", {}).items():
        why, hint = _refusal(reference, engine)
        if why:
            raise InputError(f"secrets: {name}: {reference}: {why}", hint=hint)


def _refusal(reference: str, engine: EngineSettings) -> tuple[str, str]:
    """Return why a reference is of no use here, and what to do; empty where it is."""
    if engine_kind(engine.name).on_rented_nodes:
        if any(fnmatchcase(reference, pattern) for pattern in engine.secrets):
            return "", ""
        return (
            "jobs may not read it",
            "Name it in [engine] secrets, and give nodes the right (`boa iam --node`)",
        )
    if not reference.startswith("env:"):
        return "only nodes of AWS can read it", "Use env:NAME and [engine] secrets_file"
    if not engine.secrets_file:
        return (
            "there is no secret store",
            "Set [engine] secrets_file to a file of NAME=VALUE lines",
        )
    try:
        kept = read_store(Path(engine.secrets_file))
    except SecretMissing as error:
        return str(error), "Whoever looks after the daemon mends that file"
    if reference.removeprefix("env:") not in kept:
        return "the secret store has no such name", "Whoever looks after the daemon adds a line to it"
    return "", ""
