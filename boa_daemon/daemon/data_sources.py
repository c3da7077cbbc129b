"""Check a job's data sources when it is submitted, not when it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from boa_daemon.daemon.config import EngineSettings
from boa_daemon.engines.engine_kinds import engine_kind
from boa_daemon.errors import InputError
from boa_daemon.tick.ports import DataStager, Runner


def check_data(content: Mapping[str, Any], engine: EngineSettings, runner: Runner) -> None:
    """Refuse a job whose nodes cannot or may not read its data.

    Raises:
        InputError: when a source is refused; the error names it.
    """
    for source in (content.get("data") or {}).values():
        why, hint = _refusal(source, engine, runner)
        if why:
            raise InputError(f"data: {source}: {why}", hint=hint)


def _refusal(source: str, engine: EngineSettings, runner: Runner) -> tuple[str, str]:
    """Return why a source is refused, and a hint; both empty when it is accepted."""
    if not isinstance(runner, DataStager):
        return "this engine brings no data", "Read it where it is"
    if not source.startswith("s3://"):
        if engine_kind(engine.name).on_rented_nodes:
            return "nodes cannot see a folder", f"aws s3 sync {source} s3://BUCKET/PREFIX, and name that"
        is_there = os.path.isabs(source) and os.path.isdir(source)
        return ("", "") if is_there else ("it is no folder of the daemon's machine", "Name one that is")
    if not any(fnmatchcase(f"{source.rstrip('/')}/", pattern) for pattern in engine.data):
        return "jobs may not read it", "Name it in [engine] data, as s3://BUCKET/PREFIX/*"
    return runner.lacks_data(source), ""
