"""Paths in settings: relative to the file that has them, with `~` for a home, and what is no path."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from boa_daemon.daemon.settings.named_socket import placed
from boa_daemon.errors import InputError
from boa_daemon.inputs.sqlite_urls import SQLITE, path_from_url, path_in_url

PATHS = (
    "classes",
    "commitments",
    "blocks",
    "prices",
    "state_dir",
    "socket",
    "tokens",
    "tls_cert",
    "tls_key",
    "secrets_file",
)
MAY_BE_EMPTY = ("prices", "secrets_file")
"""Paths that are unset where they are empty."""


def with_paths(section: str, values: Mapping[str, Any], beside: Path | None) -> dict[str, Any]:
    """Return a section with its paths made whole; relative ones start from `beside`, if that is given.

    Raises:
        InputError: when a text is no path, or one that only a shell would complete.
    """
    table = dict(values)
    _place(table, PATHS, beside, (section,))
    if isinstance(regions := table.get("by_region"), Mapping):
        table["by_region"] = {name: dict(own) for name, own in regions.items()}
        for name, own in table["by_region"].items():
            _place(own, ("prices",), beside, (section, "by_region", name))
    if section == "daemon" and isinstance(table.get("database"), str):
        table["database"] = _placed_database(table["database"], beside)
    return table


def _place(table: dict[str, Any], keys: Sequence[str], beside: Path | None, section: tuple[str, ...]) -> None:
    """Make the paths of a table relative to the folder of its file.

    Raises:
        InputError: when a text is no path, or one that only a shell would complete.
    """
    for key in keys:
        text = table.get(key)
        if not isinstance(text, str) or (not text and key in MAY_BE_EMPTY):
            continue
        if problem := _no_path(text):
            said, hint = problem
            raise InputError(
                f"[{'.'.join(section)}] {key}: {text!r} {said}", hint=hint, setting=(*section, key)
            )
        table[key] = placed(text, beside)


def _no_path(text: str) -> tuple[str, str] | None:
    """Return why a text is no path, and what to write; None for a path."""
    if "\0" in text:
        return None  # No folder can have that name; who makes it says so.
    if not text:
        return "is no path", "Leave the key out"
    if text != text.strip() or any(unicodedata.category(sign) == "Cc" for sign in text):
        return "has a space at an end, or an unseen sign", "A backslash in double quotes begins such a sign"
    if text.startswith(("$", "%")):
        return "begins with a variable, and settings have none", "Write the path itself, or ~ for the home"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text):
        return "is a URL, and no path", "Write the path alone"
    if text.startswith("~") and os.path.expanduser(text).startswith("~"):
        return "names the home of nobody here", "Write the path itself"
    return None


def _placed_database(url: str, beside: Path | None) -> str:
    """Return a database's URL with the path of a SQLite file made whole.

    The working folder is another one for systemd than for a person, and there the database would be empty.
    A file in it was made by a version that looked there, and that did not know `~`.

    Raises:
        InputError: when a file is there and in the working folder: only one has what was spent.
    """
    begin, path = url[: len(SQLITE)], url[len(SQLITE) :]
    if begin != SQLITE or path.startswith(("/", ":", "file:")) or not path:
        return url
    file = path_from_url(url)
    if not os.path.exists(file):
        return begin + placed(path, None if beside is None else Path(path_in_url(beside)))
    if beside is None:
        return url
    there = beside / file
    if there.exists() and not there.samefile(file):
        raise InputError(
            f"[daemon] database: {file} is in {Path.cwd()} and in {beside}",
            hint="Write the path of the one that is meant, from the root: sqlite:////...",
            setting=("daemon", "database"),
        )
    return f"{begin}{path_in_url(Path.cwd())}/{path}"
