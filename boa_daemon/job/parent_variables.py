"""The job's variables, for a process that was started without them.

`sudo`, `env -i`, `su -` and some launchers clean the environment. A script below them would save into some
folder of its own, report to nobody, and be stopped as one that cannot save. The variables are in the
environment of the parents, as far as the kernel lets this user read it, and in a file of the unit's temporary
folder, which is found by the command line of the keeper. Standard library only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from boa_daemon.job.leavings import temporary_folder
from boa_daemon.job.log_line import log_line
from boa_daemon.job.processes import PROC, parent_of
from boa_daemon.job.regular_files import read_regular
from boa_daemon.job.whole_files import write_whole

MARK = "BOA_UNIT"
"""Variable that each process of a unit has."""
ERRAND = "BOA_ERRAND"
"""Variable of the keeper's errands with the name of their unit: they are no processes of the command."""
NOTE = ".boa-variables.json"
_KEEPER = b"boa_daemon.job.keeper"
_PREFIX = "BOA_"
_FURTHER = ("CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TMPDIR")


def note_variables(folder: Path, variables: Mapping[str, str]) -> None:
    """Write the variables of a unit into its temporary folder, for processes that lose them on the way.

    Raises:
        OSError: when they cannot be written.
    """
    write_whole(folder / NOTE, json.dumps(_ours(variables)), durable=False)


def missing_variables(environment: Mapping[str, str], *, proc: Path = PROC) -> dict[str, str]:
    """Return the job's variables if `environment` has none of them and a parent of this process has.

    An errand of the keeper takes none: it would write notes for a training, and meet what the job has put in
    their place.
    """
    pid = 0 if MARK in environment or ERRAND in environment else os.getppid()
    while pid > 1:
        for found in (_environment_of(proc / str(pid)), _noted_by(proc / str(pid))):
            if MARK in found:
                return {name: value for name, value in _ours(found).items() if name not in environment}
        pid = parent_of(pid) or 0
    return {}


def restore_variables() -> None:
    """Add the job's missing variables to the environment of this process, and say so in the job's log."""
    missing = missing_variables(os.environ)
    if missing:
        os.environ.update(missing)
        log_line(
            "this process was started without the variables of its job (as by sudo, su - or env -i); it "
            "takes them from its parents"
        )


def _ours(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(_PREFIX) or name in _FURTHER}


def _environment_of(process: Path) -> dict[str, str]:
    with suppress(OSError):
        rows = os.fsdecode((process / "environ").read_bytes()).split("\0")
        return dict(row.split("=", 1) for row in rows if "=" in row)
    return {}


def _noted_by(process: Path) -> dict[str, str]:
    """Return what the keeper has noted, if this process is a keeper, and the note belongs to our user."""
    with suppress(OSError, ValueError, RecursionError):
        *words, folder, _ = (process / "cmdline").read_bytes().split(b"\0")
        place = temporary_folder(Path(os.fsdecode(folder)))
        if _KEEPER in words and place.lstat().st_uid in (0, os.getuid()):
            found = json.loads(read_regular(place / NOTE))
            if isinstance(found, dict):
                return {str(name): str(value) for name, value in found.items()}
    return {}
