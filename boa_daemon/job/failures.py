"""Which exception ended a script, as a fact in a file and not as words in a log.

The file has the form of torchrun's error file, and is named by the same variable: torchrun gives each worker
one of its own and hands the first that was written on to its caller. So one file in the folder of a unit says
why its command failed, with or without torchrun, if the script imports `boa_daemon.job` or is decorated with
torch's `record`.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from boa_daemon.job.regular_files import read_regular

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
FILE_NAME = "error.json"
"""Where a unit's folder has it."""
MOST_TEXT = 500
PEER_LOST = "PeerLost"
"""A failure that only follows from another process's."""


def record_exceptions() -> None:
    """Within a job, write the exception that ends this process where a file is named, and print it whole.

    A lost peer is a consequence: what ended that peer is written over it. The hook before stays.
    """
    file, before = os.environ.get(ERROR_FILE, ""), sys.excepthook
    if "BOA_JOB_ID" not in os.environ:
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if file:
            with suppress(OSError):
                _write(Path(file), _document(kind, error, trace))
        if before is not sys.__excepthook__:
            before(kind, error, trace)
            return
        # In one piece: several processes of a job share one log.
        sys.stderr.write("".join(traceback.format_exception(kind, error, trace)))
        sys.stderr.flush()

    sys.excepthook = hook


def _write(file: Path, document: Mapping[str, Any]) -> None:
    """Write the first failure of a job's processes, whole; only a lost peer is written over."""
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.write_text(json.dumps(document))
    try:
        os.link(part, file)
    except FileExistsError:
        here, ours = _kinds(file), _kinds(part)
        if PEER_LOST in here and PEER_LOST not in ours:
            part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _kinds(file: Path) -> list[str]:
    """Return the classes of the exception in a file of this form."""
    failure = read_failure(file.parent, file.name)
    return failure["kinds"] if failure else []


def _document(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> Mapping[str, Any]:
    """Return an exception in the form of torchrun's error file, with its classes and its errno."""
    extra = {
        "py_callstack": "".join(traceback.format_exception(kind, error, trace))[-10_000:],
        "timestamp": str(int(time.time())),
        "at": time.time(),
        "kinds": [one.__name__ for one in kind.__mro__],
        "errno": error.errno if isinstance(error, OSError) else None,
    }
    return {"message": {"message": f"{kind.__name__}: {error}"[:MOST_TEXT], "extraInfo": extra}}


def read_failure(folder: Path, name: str = FILE_NAME) -> dict[str, Any] | None:
    """Return the exception that ended a unit's command (`kinds`, `errno`, `said`, `at`); None without one.

    `at` is when it was raised, in seconds since 1970, and None where nobody said.
    """
    try:
        message = json.loads(read_regular(folder / name))["message"]
        if isinstance(message, str):
            message = {"message": message}
        said, extra = str(message["message"])[:MOST_TEXT], message.get("extraInfo") or {}
        kinds = extra.get("kinds") or [said.partition(":")[0].strip()]
        code, at = extra.get("errno"), extra.get("at", extra.get("timestamp"))
        return {
            "kinds": [str(kind)[:100] for kind in kinds][:20],
            "errno": code if isinstance(code, int) else None,
            "said": said,
            "at": None if at is None else float(at),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def full_disk(*folders: str) -> bool:
    """Return whether the file system of one of these folders has no room left for a user's files."""
    for folder in folders:
        with suppress(OSError):
            if os.statvfs(folder).f_bavail == 0:
                return True
    return False
