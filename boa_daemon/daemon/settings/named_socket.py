"""The daemon's socket by the settings files, without the other settings, which take half a second."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import platformdirs

from boa_daemon.daemon.settings.daemon_paths import or_system, paths_from
from boa_daemon.errors import InputError

FILE_NAME = "boa.toml"
SYSTEM_FILE = Path("/etc/boa") / FILE_NAME


def named_socket(explicit: Path | None = None) -> Path | None:
    """Return the socket that files and environment name; None where only whole settings can say.

    Whether the files are right otherwise is for the daemon to say, which runs by them.
    """
    user = Path(platformdirs.user_config_dir("boa")) / FILE_NAME
    files = [explicit] if explicit is not None else [SYSTEM_FILE, user, Path(FILE_NAME)]
    found: dict[str, str] = {}
    for file in files:
        try:
            section = tomllib.loads(file.read_text(encoding="utf-8")).get("daemon", {})
            given = {key: section[key] for key in ("state_dir", "socket") if section.get(key) is not None}
            found |= {key: str(file.resolve().parent / value) for key, value in given.items()}
        except (FileNotFoundError, NotADirectoryError):
            if explicit is not None:
                return None
        except (OSError, ValueError, TypeError, AttributeError):
            return None
    for key in ("state_dir", "socket"):
        if given_by_name := os.environ.get(f"BOA_DAEMON_{key.upper()}"):
            found[key] = given_by_name
    try:
        return or_system(paths_from(found.get("state_dir"), found.get("socket")).socket)
    except InputError:
        return None
