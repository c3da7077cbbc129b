"""Copies of the files that a job produced, in a place that outlives its node.  Standard library only."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from boa_daemon.job.regular_files import files_below, open_regular
from boa_daemon.job.unit import Unit
from boa_daemon.job.whole_files import whole_file

_BLOCK = 1 << 22


def collect(unit: Unit, *, is_over: Callable[[], bool] = lambda: False) -> list[str]:
    """Copy the files below the working folder that match the unit's patterns; return a sentence per failure.

    Files of node N, other than the first, go below `nodeN`. Links that lead out of the folder are left out.
    The rest is left out once it `is_over`, which is asked every 4 MiB.
    """
    top, target = Path(unit.workdir).resolve(), Path(unit.artifacts_dir)
    if unit.rank:
        target /= f"node{unit.rank}"
    faults: list[str] = []
    seen: set[Path] = set()
    for pattern in unit.artifacts:
        # Read as the job's user: the job may have linked a file that its user may not read.
        try:
            with unit.as_user():
                found = [file for file in sorted(top.glob(pattern)) if file not in seen]
                seen.update(found)
                # A link to a folder is not entered before it is known to stay inside: it may lead to `/`.
                near = [file for file in found if _is_inside(file, top)]
                files = [
                    one for file in near for one in ([file] if file.is_file() else sorted(files_below(file)))
                ]
                inside = [file for file in files if file.is_file() and _is_inside(file, top)]
        except (OSError, ValueError, NotImplementedError, RecursionError) as error:
            faults.append(f"the search for the artifacts {pattern!r} failed: {error}")
            continue
        if not inside and not faults:
            faults.append(f"no file matches the artifacts {pattern!r}")
        for file in inside:
            if is_over():
                return [*faults, "not all artifacts were copied: the job was ended"]
            name = file.relative_to(top)
            if ".." in name.parts or not is_plain(name):
                faults.append(f"the artifact {str(name)!r} is not copied: its name is no plain text")
                continue
            try:
                with unit.as_user():
                    content = open_regular(file)
                with content:
                    _copy(content, target / name, is_over)
            except OSError as error:
                faults.append(f"the artifact {name} could not be copied: {error}")
    return faults


def _is_inside(file: Path, top: Path) -> bool:
    """Return whether a file is below a folder when all links are followed; False if that is not known."""
    try:
        return file.resolve().is_relative_to(top)
    except (OSError, RuntimeError):
        return False


def is_plain(name: Path) -> bool:
    """Return whether a name can be shown and sent: it is UTF-8 and has no control characters."""
    return not any(sign < " " or "\x7f" <= sign < "\xa0" or "\ud800" <= sign < "\ue000" for sign in str(name))


def _copy(source: BinaryIO, target: Path, is_over: Callable[[], bool]) -> None:
    """Copy a file atomically; its holes are copied as zeros, so that it may be larger than any disk.

    Raises:
        OSError: when it cannot be copied, when the disk has no room for it, or when it `is_over`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    size, free = os.fstat(source.fileno()).st_size, shutil.disk_usage(target.parent).free
    if size > free:
        raise OSError(errno.ENOSPC, f"it has {size:,} bytes, and {free:,} are free")
    with whole_file(target, durable=False) as aside, aside.open("wb") as copy:
        while block := source.read(_BLOCK):
            if is_over():
                raise OSError(errno.EINTR, "the job was ended")
            copy.write(block)
