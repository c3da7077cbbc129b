"""The exception that ended a script, recorded in a file, so that nobody has to guess it from a log.

The file has the format of torchrun's error file and is named by the same variable. torchrun gives each worker
its own file and passes the first one written on to its caller. So one file in a unit's folder tells why its
command failed, with or without torchrun, if the script imports `boa_daemon.job` or uses torch's `record`.
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
"""Name of the error file in a unit's folder."""
MOST_TEXT, MOST_BYTES = 500, 1 << 20
PEER_LOST = "PeerLost"
"""Class name of an exception that is only a consequence of another process's failure."""


def record_exceptions() -> None:
    """Within a job, print the exception that ends this process, and write it to the error file.

    The first exception of the unit is kept, except that any other exception replaces a `PeerLost`. An
    exception hook that the script has set is called as well.
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
        # One write: several processes of a job share the log.
        sys.stderr.write("".join(traceback.format_exception(kind, error, trace)))
        sys.stderr.flush()

    sys.excepthook = hook


def _write(file: Path, document: Mapping[str, Any]) -> None:
    """Write the error file atomically if it is the first, or if the first is only a lost peer."""
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
    failure = read_failure(file.parent, file.name)
    return failure["kinds"] if failure else []


def _document(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> Mapping[str, Any]:
    """Return an exception in the format of torchrun's error file, with its class names and its errno."""
    extra = {
        "py_callstack": "".join(traceback.format_exception(kind, error, trace))[-10_000:],
        "timestamp": str(int(time.time())),
        "at": time.time(),
        "kinds": [one.__name__ for one in kind.__mro__],
        "errno": next((one.errno for one in (error, error.__cause__) if isinstance(one, OSError)), None),
    }
    return {"message": {"message": f"{kind.__name__}: {error}"[:MOST_TEXT], "extraInfo": extra}}


def read_failure(folder: Path, name: str = FILE_NAME) -> dict[str, Any] | None:
    """Return the exception that ended a unit's command (`kinds`, `errno`, `said`, `at`); None without one.

    `kinds` are the names of its classes, `said` is its message, and `at` is when it was raised, in seconds
    since the Unix epoch (None if unknown).
    """
    try:
        message = json.loads(read_regular(folder / name, most_bytes=MOST_BYTES))["message"]
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
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def full_disk(*folders: str) -> bool:
    """Return whether the file system of one of these folders has no space left for ordinary users."""
    for folder in folders:
        with suppress(OSError):
            if os.statvfs(folder).f_bavail == 0:
                return True
    return False
