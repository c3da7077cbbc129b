"""Copies of the files that settings name for costs, in the state folder, and what the files said.

A module of its own because clients read applied settings: it reads no settings.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boa_daemon.daemon.settings.daemon_paths import StateFile

_FOLDER = StateFile.cost_files


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFiles:
    """What the files say, by setting and name: a price in dollars per hour, or a commitment as it is written.

    `texts` are their contents by absolute path.
    """

    costs: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    texts: Mapping[str, bytes] = field(default_factory=dict)


def write_copies(state: Path, files: CostFiles) -> dict[str, str]:
    """Write the texts to the state folder; return the copies' names by the paths of the files.

    Raises:
        OSError: when the folder cannot be written or the disk is full.
    """
    from boa_daemon.job.whole_files import write_whole  # noqa: PLC0415 - clients read, and write none

    names = {path: _copy_name(path, text) for path, text in files.texts.items()}
    if names:
        (state / _FOLDER).mkdir(exist_ok=True, mode=0o700)
    for path, name in names.items():
        if not (state / _FOLDER / name).exists():
            write_whole(state / _FOLDER / name, files.texts[path], mode=0o600)
    return names


def forget_copies(state: Path, names: Mapping[str, str]) -> None:
    """Delete the copies that nobody needs any more."""
    with suppress(OSError):
        for file in (state / _FOLDER).iterdir():
            if file.name not in names.values():
                file.unlink()


def read_copies(state: Path, names: Mapping[str, str]) -> dict[str, bytes]:
    """Return the texts of copies by the paths of the files; one that is gone is left out."""
    texts = {}
    for path, name in names.items():
        with suppress(OSError):
            texts[path] = (state / _FOLDER / Path(name).name).read_bytes()
    return texts


def in_place_of(
    given: Mapping[str, Mapping[str, Any]], state: Path, files: CostFiles
) -> dict[str, dict[str, Any]]:
    """Return what settings give, with the copies in place of files that say something else now."""
    document: dict[str, dict[str, Any]] = json.loads(json.dumps(given, default=str))
    for table, key in _file_keys(document):
        path = os.path.abspath(table[key])
        text = files.texts.get(path)
        copy = state / _FOLDER / _copy_name(path, text or b"")
        if text is not None and _read(path) != text and copy.exists():
            table[key] = str(copy)
    return document


def _copy_name(path: str, text: bytes) -> str:
    """Return the name of a copy: its content's, so that a new one never overwrites the old one."""
    return f"{hashlib.sha256(text).hexdigest()[:16]}-{Path(path).name}"


def _read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


def _file_keys(document: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each table of settings and the key in it that names a file of costs."""
    cloud, workload = document.get("cloud") or {}, document.get("workload") or {}
    tables = [(cloud, ("prices", "commitments", "blocks")), (workload, ("classes",))]
    tables += [(region, ("prices",)) for region in (cloud.get("by_region") or {}).values()]
    for table, keys in tables:
        yield from ((table, key) for key in keys if table.get(key))
