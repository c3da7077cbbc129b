"""The settings files, and the daemon's socket by them alone: all settings take half a second to read."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import platformdirs

from boa_daemon.daemon.settings.applied_settings import is_descriptor, pointed_state
from boa_daemon.daemon.settings.daemon_paths import or_system, paths_from
from boa_daemon.errors import InputError

FILE_NAME = "boa.toml"
SYSTEM_FILE = Path("/etc/boa") / FILE_NAME


def setting_files(explicit: Path | None = None) -> list[Path]:
    """Return the settings files that exist, weakest first; only `explicit` if given.

    A folder, a link to nothing or a file that may not be read is listed too, so that reading it fails: what
    it was to say must not be left out in silence.
    """
    if explicit is not None:
        return [explicit]
    user = Path(platformdirs.user_config_dir("boa")) / FILE_NAME
    return [path for path in (SYSTEM_FILE, user, Path(FILE_NAME)) if _is_there(path)]


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return path == Path(FILE_NAME) or os.access(path.parent, os.F_OK)
    return True


def folder_of(file: Path) -> Path:
    """Return the folder that relative paths of a settings file start from: of the file that a link names.

    Kubernetes links the files of a volume into a hidden folder that has another name after each change. There
    the volume itself is meant, so that a state folder stays where it is. A pipe has none: there it is the
    working folder.
    """
    if is_descriptor(file.absolute()):
        return Path.cwd()
    found = file.resolve().parent
    return file.absolute().parent if found.name.startswith("..") else found


def placed(path: str, beside: Path | None) -> str:
    """Return a path of the settings: `~` is the home of a user, and a relative one starts from a folder.

    A folder that is called `~` was made by a version that did not know the sign: there the state is still.
    """
    found = path if beside is None else str(beside / path)
    home = os.path.expanduser(path)
    return found if home == path or os.path.lexists(found) else home


def named_socket(explicit: Path | None = None) -> Path | None:
    """Return the socket that files and environment name; None where only whole settings can say.

    Whether the files are right otherwise is for the daemon to say, which runs by them.
    """
    found: dict[str, str] = {}
    for file in setting_files(explicit):
        if not file.is_file():
            return None  # Reading a pipe may wait, and takes what it says from the next reader.
        try:
            section = tomllib.loads(file.read_text(encoding="utf-8-sig")).get("daemon", {})
            given = {key: section[key] for key in ("state_dir", "socket") if section.get(key) is not None}
            found |= {key: placed(value, folder_of(file)) for key, value in given.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return None
    for key in ("state_dir", "socket"):
        if given_by_name := os.environ.get(f"BOA_DAEMON_{key.upper()}"):
            found[key] = placed(given_by_name, None)
    try:
        return or_system(paths_from(found.get("state_dir"), found.get("socket")).socket)
    except InputError:
        return None


def nothing_is_set(explicit: Path | None = None) -> bool:
    """Whether no file and no variable sets anything, and no daemon is known that ran by these files."""
    is_set = bool(setting_files(explicit)) or any(name.startswith("BOA_") for name in os.environ)
    return not is_set and pointed_state(explicit) is None
