"""Prepares the next generation on this machine while the present one still runs.

Each unit's keeper brings code and data, and then waits for its turn. The command itself is started early only
if that is safe: each process of the running generation has noted that it imported `boa_daemon.job` after
nothing but imports (the new processes wait in that import), and the command only runs that script. See
`boa_daemon.job.early_start` and decision 0095.
"""

from __future__ import annotations

import re
import shlex
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from boa_daemon.job.account import popen_as
from boa_daemon.job.container import pull_script
from boa_daemon.job.control_group import ControlGroup
from boa_daemon.job.early_start import are_all_there, read_start_notes
from boa_daemon.job.enclosure import group_name
from boa_daemon.job.keeper import GO, READY
from boa_daemon.job.leavings import remove_trees, temporary_folder
from boa_daemon.job.processes import is_alive, kill_all_carrying, send
from boa_daemon.job.unit import Unit, is_kept, keepers_of, read_own
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.job_spec import JobSpec

FORGET_SECONDS = 60.0
"""A waiting generation that was not requested for this long is dropped: the plan has changed."""
_STARTERS = re.compile(r"(?:\S*/)?(?:python[0-9.]*|torchrun|accelerate)")
_VARIABLE = re.compile(r"\$(?:\w+|\{\w+\})")
_SHELL = re.compile(r"[;&|<>`\n$(]")


@dataclass(slots=True, kw_only=True)
class WaitingGeneration:
    """A generation that waits for its turn; `asked_at` is its last request, by the monotonic clock."""

    action: StartJob
    units: Sequence[Unit]
    asked_at: float = field(default_factory=time.monotonic)

    def is_for(self, action: StartJob) -> bool:
        """Return whether this is the generation of the action, on the same GPUs, and no unit has died."""
        wanted, mine = (action.job, action.generation, action.slots), self.action
        is_same = wanted == (mine.job, mine.generation, mine.slots)
        return is_same and not any(_has_died(unit) for unit in self.units)

    @property
    def can_go(self) -> bool:
        """Whether all of its keepers run, so that it can be started."""
        return all((unit.folder / "keeper.json").exists() for unit in self.units)

    @property
    def is_ready(self) -> bool:
        """Whether more waiting is useless: its imports are done, or it does them in its turn."""
        return all(map(_is_ready, self.units))

    def go(self) -> None:
        """Start its turn.

        Raises:
            OSError: when a file cannot be written.
        """
        for unit in self.units:
            (unit.folder / GO).touch()

    def drop(self) -> None:
        """End it; no work is lost, because it has done none."""
        drop_units(self.units[0].folder.parent)


def drop_units(generation: Path) -> None:
    """End the units of a generation whose turn has not come, and remove its folder.

    The folder is renamed first, so that a keeper that is about to start finds no unit.
    """
    gone = generation.with_name(f"{generation.name}.dropped.{time.time_ns()}")
    with suppress(OSError):
        generation.rename(gone)
        for folder in gone.glob("n*"):
            # The guard first: it would start another keeper.
            for one in keepers_of(read_own(folder, "keeper.json")):
                if is_alive(*one):
                    send([one[0]], signal.SIGKILL)
            noted = ControlGroup()
            with suppress(OSError, ValueError, TypeError):
                noted = ControlGroup(tuple(map(Path, (read_own(folder, READY) or {}).get("group", ()))))
            noted.kill()
            with suppress(OSError, ValueError, TypeError):
                _end(replace(Unit.read(folder), folder=generation / folder.name), noted)
            noted.remove()  # Also that of a unit whose papers cannot be read.
    remove_trees(gone)


def _end(unit: Unit, noted: ControlGroup) -> None:
    """End the processes of a unit that has no keeper any more, and remove what it left beside its folder.

    `noted` is its control group, without folders if it had not noted them yet.
    """
    group = noted if noted.folders else ControlGroup.find(group_name(unit))
    group.kill()
    kill_all_carrying(f"BOA_UNIT={unit.name}")
    group.remove()
    remove_trees(temporary_folder(unit.folder), **popen_as(unit))


def may_start_early(spec: JobSpec, running: Sequence[Unit]) -> tuple[bool, float]:
    """Return whether the next generation may start its processes early, and the memory of each in bytes."""
    notes = []
    for unit in running:
        with unit.as_user():
            found = read_start_notes(unit.own)
        if not are_all_there(found):
            return False, 0.0
        notes += found
    if not notes or not is_one_script(spec.run) or spec.image or spec.setup:
        return False, 0.0
    return all(note["is_early"] for note in notes), max(float(note["bytes"]) for note in notes)


def is_one_script(run: str) -> bool:
    """Return whether a command only runs one Python script, directly or with a launcher of ranks."""
    if _SHELL.search(_VARIABLE.sub("", run.strip())):
        return False
    try:
        words = shlex.split(run)
    except ValueError:
        return False
    while words and (words[0] in ("exec", "env") or re.fullmatch(r"[A-Za-z_]\w*=.*", words[0])):
        words.pop(0)
    return bool(words) and _STARTERS.fullmatch(words[0]) is not None and any(w.endswith(".py") for w in words)


def as_waiting_units(spec: JobSpec, units: Sequence[Unit], running: Sequence[Unit]) -> tuple[Unit, ...]:
    """Return the units of a coming generation as waiting units."""
    is_safe, most = may_start_early(spec, running)
    pull = pull_script(spec.image) if spec.image else ""
    return tuple(
        replace(
            unit,
            waits="start" if is_safe else "bring",
            bring=" && ".join(part for part in (unit.bring, pull) if part),
            wait_bytes=most * int(unit.environment.get("BOA_GPUS_PER_NODE", "1")),
        )
        for unit in units
    )


def _has_died(unit: Unit) -> bool:
    """Return whether a unit has ended or lost its keeper; one whose keeper has not started yet has not."""
    if (unit.folder / "exit.json").exists():
        return True
    kept = read_own(unit.folder, "keeper.json")
    return kept is not None and not is_kept(kept)


def _is_ready(unit: Unit) -> bool:
    """Return whether a unit is as ready as possible, or has ended."""
    said = read_own(unit.folder, READY)
    if said is None:
        return (unit.folder / "exit.json").exists()
    if not said.get("is_started"):
        return True
    with unit.as_user():
        return are_all_there(read_start_notes(unit.own))
