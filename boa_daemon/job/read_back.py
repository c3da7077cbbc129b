"""Reads a checkpoint back before it counts: what cannot be loaded is no checkpoint.

Saving and loading are two programs. `torch.save` writes any object, and `torch.load` refuses most of them by
default (`weights_only`); a class that unpickling cannot rebuild is written without complaint. The job would
find out when it resumes, with its process gone. Files in other formats pass: only their digest is known.
"""

from __future__ import annotations

import pickle
import sys
import zipfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

MOST_PICKLE_BYTES = 256 * 2**20
"""Larger pickles are not read back, since that would take their size in memory once more."""


class CannotBeLoaded(ValueError):
    """What was just saved cannot be loaded again."""


def read_back(file: Path) -> str:
    """Load a file of a known format; return a warning for the job's log, empty if there is none.

    Raises:
        CannotBeLoaded: when the file is in a known format and cannot be loaded.
    """
    torch: Any = sys.modules.get("torch")
    try:
        if torch is not None and hasattr(torch, "load") and is_of_torch(file):
            return _read_torch(torch, file)
        with file.open("rb") as stream:
            if stream.read(1) == b"\x80" and file.stat().st_size <= MOST_PICKLE_BYTES:
                stream.seek(0)
                pickle.load(stream)
    except Exception as error:
        raise CannotBeLoaded(f"{type(error).__name__}: {_first_line(error)}") from error
    return ""


def read_back_folder(folder: Path) -> str:
    """Load the files of known formats in a folder; return a warning for the job's log, or an empty text.

    Raises:
        CannotBeLoaded: when one of them cannot be loaded.
    """
    warning = ""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.name.startswith((".", "random-")):
            try:
                warning = warning or read_back(file)
            except CannotBeLoaded as error:
                raise CannotBeLoaded(f"{file.name}: {error}") from error
    return warning


def trust(folder: Path) -> None:
    """Let `torch.load` build the classes that a checkpoint of this job names, also with `weights_only`.

    Frameworks load with `weights_only`, so that a stranger's file runs no code. This one was written by the
    job itself, and its digest is checked.
    """
    torch: Any = import_module("torch")
    for file in sorted(folder.rglob("*")):
        if not (file.is_file() and is_of_torch(file)):
            continue
        names = torch.serialization.get_unsafe_globals_in_checkpoint(file)
        found: list[Any] = []
        for name in names:
            module, _, attribute = name.rpartition(".")
            with suppress(Exception):
                found.append(getattr(import_module(module), attribute))
        if any(name.startswith("numpy.") for name in names):
            dtypes: Any = import_module("numpy").dtypes
            found += [getattr(dtypes, name) for name in dtypes.__all__]
        torch.serialization.add_safe_globals(found)


def is_of_torch(file: Path) -> bool:
    """Return whether a file is one archive of `torch.save`; sharded checkpoints have several in one file."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            is_whole = bool(members) and min(member.header_offset for member in members) == 0
            return is_whole and any(member.filename.endswith("/data.pkl") for member in members)
    except (OSError, zipfile.BadZipFile):
        return False


def _read_torch(torch: Any, file: Path) -> str:
    """Load an archive as `torch.load` does by default, else as it does when it is told to trust the file."""
    try:
        torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except Exception as error:
        torch.load(file, map_location="cpu", mmap=True, weights_only=False)
        return (
            f"{file.name.split('.ckpt')[0].lstrip('.')} loads only by torch.load(..., weights_only=False); "
            f"that is what a resume has to call: {_first_line(error)[:160]}"
        )
    return ""


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return next(iter(str(error).splitlines()), "")
