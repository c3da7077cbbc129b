"""Early start of a job's next generation: its processes do their imports while the old generation still runs.

A process that was started early waits inside `import boa_daemon.job`. This is safe only if the script has
done nothing but imports by then: read no checkpoint, touched no GPU, written no file. Each running process
notes whether that is so (`is_early`), and the next generation is started early only if all agree.
Standard library only.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from boa_daemon.job.regular_files import read_regular
from boa_daemon.job.whole_files import write_whole

GO_FILE = "BOA_GO_FILE"
"""Variable with the path of the file that lets a process go on; only processes started early have it."""
NOTE = "early-"
"""Prefix of the note files that a unit's processes write beside its progress."""
PAUSE_SECONDS = 0.01
_HARMLESS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Pass)
_PREPARING = ("os.environ", "sys.path", "warnings")
"""Calls that scripts often make before their imports and that change nothing outside the process."""


def wait_for_turn() -> None:
    """Write this process's note; if it was started early, wait until it may go on."""
    if "BOA_PROGRESS_FILE" not in os.environ or _is_a_helper():
        return
    with suppress(OSError, ValueError):
        _note()
    go = os.environ.get(GO_FILE, "")
    while go and not os.path.exists(go):
        time.sleep(PAUSE_SECONDS)


def _is_a_helper() -> bool:
    """Return whether `multiprocessing` started this process, as a helper of one that no longer waits."""
    multiprocessing = sys.modules.get("multiprocessing")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def _note() -> None:
    """Note for the next start whether this import comes early enough, and the memory used so far in bytes."""
    own = Path(os.environ["BOA_PROGRESS_FILE"]).parent / f"n{os.environ.get('BOA_NODE_RANK', '0')}"
    file = own / f"{NOTE}{int(os.environ.get('LOCAL_RANK') or 0)}.json"
    # Linux reports KiB.
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    local_world = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    note = {"is_early": is_early(), "bytes": memory, "processes": local_world}
    write_whole(file, json.dumps(note), durable=False)


def is_early() -> bool:
    """Return whether this is an import at the top of the script, with nothing but imports before it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return False
    frame, main = sys._getframe(), None
    found: Any = frame
    while found is not None:
        name, file = found.f_code.co_name, found.f_code.co_filename
        is_ours = found.f_globals.get("__name__", "").startswith("boa_daemon.")
        if name == "<module>" and found.f_globals.get("__name__") == "__main__":
            main = found
        elif name != "<module>" and not is_ours and not file.startswith("<frozen "):
            return False
        found = found.f_back
    if main is None:
        return False
    try:
        return does_nothing_before(Path(main.f_code.co_filename).read_text(), main.f_lineno)
    except (OSError, SyntaxError, ValueError):
        return False


def does_nothing_before(source: str, line: int) -> bool:
    """Return whether the statements of a script before a line only import or define things.

    Raises:
        SyntaxError: when the source is not valid Python.
    """
    return _are_harmless(each for each in ast.parse(source).body if each.lineno < line)


def _is_harmless(statement: ast.stmt) -> bool:
    """Return whether a statement changes nothing outside its process and does not take long."""
    if isinstance(statement, _HARMLESS):
        return not getattr(statement, "decorator_list", [])
    if isinstance(statement, ast.If):
        return _has_no_call(statement.test) and _are_harmless([*statement.body, *statement.orelse])
    if isinstance(statement, ast.Try):
        handlers = [each for handler in statement.handlers for each in handler.body]
        return _are_harmless([*statement.body, *handlers, *statement.orelse, *statement.finalbody])
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        told = ast.unparse(statement.value.func).startswith(_PREPARING)
        return told and all(_has_no_call(each) for each in statement.value.args)
    return isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)) and _has_no_call(statement)


def _are_harmless(statements: Iterable[ast.stmt]) -> bool:
    return all(_is_harmless(each) for each in statements)


def _has_no_call(node: ast.AST) -> bool:
    return not any(isinstance(each, (ast.Call, ast.Await, ast.NamedExpr)) for each in ast.walk(node))


def read_start_notes(own: Path) -> list[dict[str, Any]]:
    """Return the valid notes of a unit's processes; the job may have written anything else there."""
    found, files = [], list[Path]()
    with suppress(OSError):  # The folder may not be the user's yet, or a link to one that is not.
        files = sorted(own.glob(f"{NOTE}*.json"))
    for file in files:
        with suppress(OSError, ValueError):
            found.append(json.loads(read_regular(file, most_bytes=4096)))
    kinds = {"is_early": bool, "bytes": int, "processes": int}
    return [
        note
        for note in found
        if isinstance(note, dict)
        and all(type(note.get(name)) is kind for name, kind in kinds.items())
        and 0 <= note["bytes"] < 2**63
        and 0 < note["processes"] < 2**63
    ]


def are_all_there(notes: Iterable[Any]) -> bool:
    """Return whether all processes of the unit have written notes; each note states how many there are."""
    known = list(notes)
    return bool(known) and all(note["processes"] <= len(known) for note in known)


def has_room_for(bytes_needed: float) -> bool:
    """Return whether this machine has twice that much memory available."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return False
    return free >= 2.0 * bytes_needed
