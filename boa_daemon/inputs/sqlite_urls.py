"""Paths of SQLite files in URLs, in which `%` begins the number of a sign, and `?` a query.

Standard library only: clients read the settings, too.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

SQLITE = "sqlite:///"


def sqlite_url(path: str | Path) -> str:
    """Return the URL of a SQLite file."""
    return f"{SQLITE}{path_in_url(path)}"


def path_in_url(path: str | Path) -> str:
    """Return a path as it stands in a URL."""
    return str(path).replace("%", "%25").replace("?", "%3F")


def path_from_url(url: str) -> str:
    """Return the path that stands in a URL of a SQLite file."""
    return unquote(url.partition(":///")[2].partition("?")[0])
