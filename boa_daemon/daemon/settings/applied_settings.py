"""The settings that a daemon applied last, in a file of its state folder, so that a restart keeps its limits.

The state folder may itself be named in a settings file, which may be cut short or gone at the next start. So
a pointer from the settings file to the state folder is kept in the user's state folder, which depends on no
setting.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from boa_daemon.daemon.settings.cost_copies import CostFiles, forget_copies, read_copies, write_copies
from boa_daemon.daemon.settings.daemon_paths import StateFile
from boa_daemon.errors import InputError

FOR_ONE_RUN = "BOA_FOR_ONE_RUN"
"""Variable of a daemon that lives for one run: its settings are not remembered for the next daemon."""
FILE_NAME = StateFile.applied_settings
_POINTERS = "state_folders"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSettings:
    """What files and environment gave, the complete settings that followed, and the files.

    `costs` is what files of prices and commitments said; None where an earlier version did not note it.
    """

    given: dict[str, dict[str, Any]]
    complete: dict[str, dict[str, Any]]
    files: tuple[str, ...] = ()
    costs: CostFiles | None = None


def read_applied(state: Path) -> AppliedSettings | None:
    """Return the settings that were applied last in a state folder; None if none were.

    Raises:
        InputError: when the file cannot be read, so that nobody knows which limits were in force.
    """
    file = state / FILE_NAME
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        if "\0" in str(state):
            return None  # No folder can have that name; who makes it says so.
        raise _unreadable(file, error) from error
    try:
        document = json.loads(text)
        return AppliedSettings(
            given=dict(document["given"]),
            complete=dict(document["complete"]),
            files=tuple(document["files"]),
            costs=_costs_of(document, state),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(file, error) from None


def _costs_of(document: dict[str, Any], state: Path) -> CostFiles | None:
    """Return what files of prices and commitments said."""
    if "costs" not in document:
        return None
    costs = {tuple(path): cost for path, cost in document["costs"]}
    return CostFiles(costs=costs, texts=read_copies(state, dict(document["cost_files"])))


def _unreadable(file: Path, error: Exception) -> InputError:
    return InputError(
        f"the limits that were in force cannot be read: {error}",
        file=file,
        hint="`boa config apply --yes` accepts the limits of the settings file in their place",
    )


def write_applied(state: Path, applied: AppliedSettings, explicit: Path | None, *, points: bool) -> None:
    """Write the applied settings; with `points` also pointers to the state folder, for `pointed_state`.

    Raises:
        OSError: when the disk is full or the folder cannot be written.
    """
    from boa_daemon.job.whole_files import write_whole  # noqa: PLC0415 - clients read these files, and write none

    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    costs = applied.costs or CostFiles()
    copies = write_copies(state, costs)
    document: dict[str, Any] = {"given": applied.given, "complete": applied.complete, "files": applied.files}
    if applied.costs is not None:
        document |= {"costs": [*costs.costs.items()], "cost_files": copies}
    write_whole(state / FILE_NAME, json.dumps(document, indent=1, default=str) + "\n", mode=0o600)
    forget_copies(state, copies)
    names = dict.fromkeys((_names(explicit)[0], *applied.files))
    if not points:
        with suppress(OSError):
            _pointer(_names(explicit)[0]).unlink(missing_ok=True)
        return
    with suppress(OSError):
        # A hardened service may not write there; it has its state folder from systemd.
        folder = _pointer("").parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _forget_gone(folder)
        for name in names:
            if is_descriptor(name):
                continue
            document = {"settings": name, "state": os.path.abspath(state), "mount": _mount_of(state)}
            write_whole(_pointer(name), json.dumps(document), mode=0o600)


def pointed_state(explicit: Path | None) -> Path | None:
    """Return the state folder of the daemon that last ran by these settings files; None if none is known."""
    for name in _names(explicit):
        if is_descriptor(name):
            continue
        with suppress(OSError, ValueError, KeyError, TypeError):
            return Path(json.loads(_pointer(name).read_text(encoding="utf-8"))["state"])
    return None


def unmounted_disk(explicit: Path | None, state: Path) -> str:
    """Return where the disk of a state folder was mounted, if it is not mounted now; empty if it is.

    A daemon that began anew in the empty folder below it would know no limits, no bills and no jobs.
    """
    for name in _names(explicit):
        with suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads(_pointer(name).read_text(encoding="utf-8"))
            if Path(document["state"]) == Path(os.path.abspath(state)) and _is_away(document):
                return str(document["mount"])
    return ""


def _is_away(document: dict[str, Any]) -> bool:
    """Whether a pointer's state folder was on a disk that is not mounted now."""
    mount = str(document.get("mount") or "")
    return bool(mount) and not os.path.ismount(mount) and not (Path(document["state"]) / FILE_NAME).exists()


def _mount_of(state: Path) -> str:
    """Return where the disk of a folder is mounted; empty for the disk of the system."""
    folder = os.path.realpath(state)
    while not os.path.ismount(folder):
        folder = os.path.dirname(folder)
    return "" if folder == "/" else folder


def pointers_to(state: Path) -> Iterator[Path]:
    """Yield the pointers to a state folder, for `boa uninstall`."""
    for file in sorted(_pointer("").parent.glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            if Path(json.loads(file.read_text(encoding="utf-8"))["state"]) == Path(os.path.abspath(state)):
                yield file


def _names(explicit: Path | None) -> list[str]:
    """Return what stands for the settings files of a daemon: the named file, else the working folder."""
    if explicit is not None:
        return [os.path.abspath(explicit)]
    return [os.path.abspath(os.curdir) + os.sep, os.path.abspath("boa.toml")]


def is_descriptor(file: str | Path) -> bool:
    """Whether a name is that of a descriptor or a pipe, which stands for another file in each process."""
    return str(file).startswith(("/dev/", "/proc/"))


def _pointer(name: str) -> Path:
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return Path(platformdirs.user_state_dir("boa")) / _POINTERS / f"{digest}.json"


def _forget_gone(folder: Path) -> None:
    """Delete pointers to state folders that hold no applied settings any more."""
    for file in folder.glob("*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads(file.read_text(encoding="utf-8"))
            state = Path(document["state"])
            if state.parent.is_dir() and not (state / FILE_NAME).exists() and not _is_away(document):
                file.unlink()
