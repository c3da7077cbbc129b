"""Check a job's data sources when it is submitted, not when it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from boa_daemon.daemon.settings.config import EngineSettings
from boa_daemon.engines.accounts import account_here, fs_rights
from boa_daemon.engines.engine_kinds import engine_kind
from boa_daemon.errors import InputError
from boa_daemon.job.unit import acting_as
from boa_daemon.tick.facts.ports import DataStager, Runner


def check_data(
    content: Mapping[str, Any], engine: EngineSettings, runner: Runner, user: str | None = None
) -> None:
    """Refuse a job whose nodes, or whose `user` on this machine, cannot or may not read its data.

    Raises:
        InputError: when a source is refused; the error names it.
    """
    for source in (content.get("data") or {}).values():
        why, hint = _refusal(source, engine, runner, user)
        if why:
            raise InputError(f"data: {source}: {why}", hint=hint)


def _refusal(source: str, engine: EngineSettings, runner: Runner, user: str | None) -> tuple[str, str]:
    """Return why a source is refused, and a hint; both empty when it is accepted."""
    if not isinstance(runner, DataStager):
        return "this engine brings no data", "Read it where it is"
    if not source.startswith("s3://"):
        if engine_kind(engine.name).on_rented_nodes:
            return "nodes cannot see a folder", f"aws s3 sync {source} s3://BUCKET/PREFIX, and name that"
        # Looked up with the rights of the job's user, who otherwise learnt what folders there are.
        account = account_here(user, "", Path("/")) if engine.own_user and user is not None else None
        with acting_as(*fs_rights(account)):
            is_there = os.path.isabs(source) and os.path.isdir(source)
        return ("", "") if is_there else ("it is no folder of the daemon's machine", "Name one that is")
    if not any(fnmatchcase(f"{source.rstrip('/')}/", pattern) for pattern in engine.data):
        return "jobs may not read it", "Name it in [engine] data, as s3://BUCKET/PREFIX/*"
    return runner.lacks_data(source), ""
