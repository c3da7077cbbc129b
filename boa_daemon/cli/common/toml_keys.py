"""Set keys in a TOML file and keep its comments and order."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from boa_daemon.errors import InputError
from boa_daemon.job.whole_files import write_whole

Value: TypeAlias = str | float | tuple[str, ...] | Mapping[str, str] | Mapping[str, str | float]


def with_keys(text: str, wanted: Mapping[str, Mapping[str, Value]]) -> str:
    """Return a TOML text with keys set by section; old values are replaced.

    Raises:
        InputError: when the text has a form that this function cannot change; the message says what to set.
    """
    lines = text.splitlines()
    for section, keys in wanted.items():
        header = f"[{section}]"
        if not any(line.split("#")[0].strip() == header for line in lines):
            lines += [*([""] if lines else []), header]
        for key, value in keys.items():
            begin = next(at for at, line in enumerate(lines) if line.split("#")[0].strip() == header) + 1
            ends = (at for at, line in enumerate(lines[begin:], begin) if line.lstrip().startswith("["))
            end = next(ends, len(lines))
            there = [at for at in range(begin, end) if re.match(rf"\s*{re.escape(key)}\s*=", lines[at])]
            new = f"{key} = {toml_value(value)}"
            if there:
                lines[there[0]] = new
            else:
                last = max((at for at in range(begin, end) if lines[at].strip()), default=begin - 1)
                lines.insert(last + 1, new)
    changed = "\n".join(lines) + "\n"
    if not _says(changed, wanted):
        said = "; ".join(
            f"[{name}] {key} = {toml_value(value)}"
            for name, keys in wanted.items()
            for key, value in keys.items()
        )
        raise InputError("the settings file has a form that boa cannot change", hint=f"Set {said}")
    return changed


def write_keys(path: Path, wanted: Mapping[str, Mapping[str, Value]]) -> None:
    """Set keys in a file, which is created if missing; the old file is kept as `NAME.before`.

    Raises:
        InputError: when the file has a form that cannot be changed.
    """
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    changed = with_keys(before, wanted)
    if before:
        write_whole(path.with_name(f"{path.name}.before"), before)
    write_whole(path, changed)


def _says(text: str, wanted: Mapping[str, Mapping[str, Value]]) -> bool:
    """Return whether a TOML text has the wanted values."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return all(
        _table_at(document, section).get(key) == (list(value) if isinstance(value, tuple) else value)
        for section, keys in wanted.items()
        for key, value in keys.items()
    )


def _table_at(document: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    """Return the table of a section, whose name may have several parts; empty without one."""
    for part in section.split("."):
        document = document.get(part, {})
    return document


def toml_value(value: Value) -> str:
    """Return a value as TOML text."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, float | int):
        return f"{value:.10g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_value(key)} = {toml_value(each)}" for key, each in value.items()) + "}"
    return "[" + ", ".join(toml_value(each) for each in value) + "]"
