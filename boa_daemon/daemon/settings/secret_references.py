"""Check the secrets that a job names, and its user's right to them, at submission and not at the start."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from boa_daemon.daemon.settings.config import EngineSettings, Settings
from boa_daemon.daemon.settings.setting_layers import OF_TEAM
from boa_daemon.engines.engine_kinds import engine_kind
from boa_daemon.errors import InputError
from boa_daemon.job.secrets import SecretMissing, read_store


def check_rights(content: Mapping[str, Any], user: str, settings: Settings) -> None:
    """Refuse a job whose user may not name one of its secrets; nothing about the secret is revealed.

    Raises:
        InputError: when a secret is refused; it names the variable, the reference and who may use it.
    """
    for name, reference in content.get("secrets", {}).items():
        owners = _owners(reference, settings.secrets)
        if owners is None or any(_is_of(user, owner, settings) for owner in owners):
            continue
        named = ", ".join(owners) or "nobody"
        raise InputError(
            f"secrets: {name}: {reference}: user {user} may not name it",
            hint=f"[secrets] has it for {named}: the daemon's administrator may add {user}",
        )


def _owners(reference: str, rights: Mapping[str, list[str]]) -> list[str] | None:
    """Return who may name a secret, by the longest matching pattern; None when no pattern matches."""
    fitting = [pattern for pattern in rights if fnmatchcase(reference, pattern)]
    return rights[max(fitting, key=len)] if fitting else None


def _is_of(user: str, owner: str, settings: Settings) -> bool:
    """Whether a user is the owner, or a member of the owning team."""
    team = owner.removeprefix(OF_TEAM)
    return user == owner if team == owner else user in settings.teams[team].members


def check_secrets(content: Mapping[str, Any], engine: EngineSettings) -> None:
    """Refuse a job whose machines cannot or may not read its secrets.

    Raises:
        InputError: when a secret is refused; it names the variable and the reference.
    """
    for name, reference in content.get("secrets", {}).items():
        why, hint = _refusal(reference, engine)
        if why:
            raise InputError(f"secrets: {name}: {reference}: {why}", hint=hint)


def _refusal(reference: str, engine: EngineSettings) -> tuple[str, str]:
    """Return why a reference is refused, and a hint; both empty when it is accepted."""
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
        return str(error), "The daemon's administrator must correct that file"
    if reference.removeprefix("env:") not in kept:
        return "the secret store has no such name", "The daemon's administrator must add a line to it"
    return "", ""
