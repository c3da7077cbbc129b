"""What an installation of BOA consists of on this machine, and how it is taken away.

Only files that BOA makes are taken away, by their names: a state folder may be any folder, with other things
in it. Links are removed and not followed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import platformdirs

from boa_daemon.daemon.loop.systemd import UNIT
from boa_daemon.daemon.settings.applied_settings import pointers_to
from boa_daemon.daemon.settings.daemon_paths import DaemonPaths, StateFile, StateKind

PartKind: TypeAlias = StateKind | Literal["unit", "settings", "cache", "folder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPart:
    """A file or folder of an installation; a `folder` is removed only if nothing else is in it."""

    kind: PartKind
    path: Path

    @property
    def size_bytes(self) -> int:
        """The bytes of the file, or of all files in the folder."""
        if self.kind == "folder":
            return 0
        if self.path.is_symlink() or not self.path.is_dir():
            return _size(self.path)
        return sum(_size(Path(top) / name) for top, _, names in os.walk(self.path) for name in names)


def installed_parts(
    there: DaemonPaths, *, unit_folder: Path | None, settings: Iterable[Path], root: Path = Path("/")
) -> list[InstalledPart]:
    """Return what of BOA is on this machine, in the order in which it is to be taken away.

    `unit_folder` is the folder of systemd's units for the system's daemon, None for one that a user runs.
    `settings` are the settings files to take away.
    """
    found: list[InstalledPart] = []
    folders: list[Path] = []
    if unit_folder is not None:
        found += _present("unit", [unit_folder / UNIT, unit_folder / f"{UNIT}.d"])
        found += _present("unit", [unit_folder / "multi-user.target.wants" / UNIT])
        folders += [root / "run/boa", root / "etc/boa"]
    for name in StateFile:
        found += [InstalledPart(kind=name.kind, path=path) for path in name.found_in(there.state)]
    found += _present("socket", [there.socket, there.socket.parent / StateFile.gate_socket])
    found += _present("state", list(pointers_to(there.state)))
    own = Path(platformdirs.user_state_dir("boa"))
    folders += [there.state, own / "state_folders", own]
    found += _present("settings", settings)
    if unit_folder is None:
        found += _present("cache", [Path(platformdirs.user_cache_dir("boa"))])
        folders.append(Path(platformdirs.user_config_dir("boa")))
    found += _present("folder", sorted(folders, key=lambda folder: -len(folder.parts)))
    return list({part.path: part for part in found}.values())


def take_away(parts: Iterable[InstalledPart]) -> Iterator[tuple[InstalledPart, str]]:
    """Remove parts, and yield each with why it is still there; empty when it is gone."""
    for part in parts:
        try:
            if part.kind == "folder":
                part.path.rmdir()
            elif part.path.is_dir() and not part.path.is_symlink():
                shutil.rmtree(part.path)
            else:
                part.path.unlink(missing_ok=True)
        except FileNotFoundError:
            yield part, ""
        except OSError as error:
            yield part, error.strerror or type(error).__name__
        else:
            yield part, ""


def _present(kind: PartKind, paths: Iterable[Path]) -> list[InstalledPart]:
    return [InstalledPart(kind=kind, path=path) for path in paths if path.exists() or path.is_symlink()]


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
