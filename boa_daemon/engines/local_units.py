"""Reads the sealed status of units on this machine, and keeps or ends units that have lost their keeper."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from boa_daemon.engines.run_reports import UnitStatus
from boa_daemon.inputs.message_validation import DROPPED_MESSAGES, is_authentic, parse_unit_status
from boa_daemon.job.course import COURSE, read_course
from boa_daemon.job.keeper import settle
from boa_daemon.job.processes import is_alive, order
from boa_daemon.job.regular_files import UNREADABLE
from boa_daemon.job.seal import key_of, sealed
from boa_daemon.job.unit import is_kept, keepers_of, read_own, status_of

KEEPER_SECONDS = 60.0
"""A unit whose keeper has not started after this time counts as one without a keeper."""
TRIES, MOST_TRIES, TRY_SECONDS = "kept-anew", 10, 3.0
"""File with the number of tries to find a unit a new keeper, their limit, and the time between two."""
FILES = "the files of a unit"


def authentic_status(folder: Path, status: UnitStatus | None, asked: int) -> UnitStatus | None:
    """Return a unit's status if it has its generation's seal and the number of the question; else None."""
    try:
        key = "" if status is None else key_of(folder)
    except OSError:
        return None
    if status is None or not is_authentic(status, FILES, key=key, told=asked):
        return None
    return status


def read_unit_status(
    folder: Path, asked: int = 0, keep: Callable[[Path], object] | None = None
) -> UnitStatus | None:
    """Return the sealed status of a unit on this machine; first see to it if it has lost its keeper.

    None if the unit's files cannot be read. `asked` is the number of the question, put under the seal. `keep`
    starts a keeper for the unit in a folder: one that goes on with a command that has outlived its keeper and
    its guard. Without it, such a unit is ended.
    """
    try:
        found = _looked_at(folder, keep)
        return None if found is None else sealed(found, key_of(folder), told=asked)
    except OSError as error:
        # Nothing is known of a unit whose files cannot be read now; it is not ended for that.
        DROPPED_MESSAGES.note(FILES, f"cannot be read now: {error.strerror}")
        return None
    except (RecursionError, ValueError) as error:
        DROPPED_MESSAGES.note(FILES, f"{type(error).__name__}: {error}")
        return None


def _looked_at(folder: Path, keep: Callable[[Path], object] | None) -> UnitStatus | None:
    """Return the status of a unit on this machine; first see to it if it has lost its keeper."""
    unit = _status(folder)
    has_odd_keeper = (folder / "keeper.json").exists() and not _has_keeper_record(folder)
    # Checked after the status was read, because the keeper may have recorded the end meanwhile.
    has_odd_end = unit is not None and unit["exit"] is None and _has_odd_end(folder)
    is_odd = unit is None or has_odd_end or (unit["exit"] is None and has_odd_keeper)
    if is_odd and (folder / "unit.json").exists():
        unit = _mended(folder) or unit
    if unit is None or not _has_lost_its_keeper(folder, unit):
        return unit
    return unit if keep is not None and _is_kept_anew(folder, keep) else _settled(folder)


def _is_kept_anew(folder: Path, keep: Callable[[Path], object]) -> bool:
    """Start a keeper for a unit that has none, if its command was started; return whether one may come.

    Tries are counted in a file, so that they count after a restart too, and where the disk is full, here.
    """
    course = read_course(folder)
    if course is None or not course.child:
        return False
    at, tries = max(_noted_tries(folder / TRIES), _TRIES.get(folder, (0.0, 0)))
    with suppress(OSError):
        if at <= (folder / COURSE).stat().st_mtime:
            tries = 0  # A keeper that came notes the course anew.
    # The clock may have been set back since: then a try counts as long ago.
    is_due = not tries or not 0.0 <= time.time() - at <= TRY_SECONDS
    if is_due and tries >= MOST_TRIES:
        return False
    if is_due:
        _TRIES[folder] = (time.time(), tries + 1)
        with suppress(OSError):
            (folder / TRIES).write_text(str(tries + 1))
        with suppress(OSError):
            keep(folder)
    return True


_TRIES: dict[Path, tuple[float, int]] = {}
"""When the last keeper of a unit was started, and how many were."""


def _noted_tries(file: Path) -> tuple[float, int]:
    with suppress(OSError, ValueError):
        return file.stat().st_mtime, int(file.read_text())
    return 0.0, 0


def _has_keeper_record(folder: Path) -> bool:
    """Return whether a unit has a valid record of its keeper, even one of before a boot."""
    return bool(keepers_of({**(read_own(folder, "keeper.json") or {}), "boot": ""}))


def _has_odd_end(folder: Path) -> bool:
    """Return whether there is a forged `exit.json`, which the unit's keeper did not write; count it."""
    if not (folder / "exit.json").exists():
        return False
    if read_own(folder, "exit.json"):
        return False
    DROPPED_MESSAGES.note(FILES, "forged: an end that the unit's keeper did not write")
    return True


def send_to_keeper(folder: Path, number: signal.Signals) -> None:
    """Send a signal to the keeper of a unit on this machine, or to its guard, if one lives."""
    try:
        # The guard passes it on, also to a keeper that is yet to come.
        living = [one for one in keepers_of(read_own(folder, "keeper.json")) if is_alive(*one)]
    except OSError:
        return
    for pid, _ in living[:1]:
        order(pid, number)


def _status(folder: Path) -> UnitStatus | None:
    """Return the status of a unit from its files; None if they are unreadable or malformed."""
    try:
        return parse_unit_status(status_of(folder, verify=False), FILES)
    except OSError as error:
        if error.errno in UNREADABLE:
            raise
        DROPPED_MESSAGES.note(FILES, f"{type(error).__name__}: {error}")
        return None
    except Exception as error:
        # A job can write anything into its own folder; one bad unit must not hide the others.
        DROPPED_MESSAGES.note(FILES, f"{type(error).__name__}: {error}")
        return None


def _mended(folder: Path) -> UnitStatus | None:
    """If the keeper of a unit with malformed files is gone, end the unit; return its new status."""
    kept = read_own(folder, "keeper.json")
    files = [folder / name for name in ("keeper.json", "exit.json", "ending.json")]
    if is_kept(kept) or not any(file.exists() for file in files):
        return None
    with suppress(OSError, ValueError):
        for file in files:
            file.unlink(missing_ok=True)
        settle(folder)
    return _status(folder)


def _has_lost_its_keeper(folder: Path, unit: UnitStatus) -> bool:
    """Return whether a unit's keeper died or never started, so that the unit must be ended."""
    if unit["is_kept"] or (unit["exit"] is not None and (folder / "exit.json").exists()):
        return False  # Without that file its keeper has died in its last errand.
    if unit["was_kept"]:
        return True
    # Also a file of the future is old: the clock was set back since.
    return abs(time.time() - (folder / "unit.json").stat().st_mtime) > KEEPER_SECONDS


def _settled(folder: Path) -> UnitStatus | None:
    """End a unit that has no keeper; return its status."""
    with suppress(OSError):
        settle(folder)
    return _status(folder)
