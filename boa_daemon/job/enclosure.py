"""What keeps a unit's command together and apart from others: a control group, and shared memory of its own.

Each is given where the keeper may give it; what it cannot give is said in the unit's log. Podman and docker
enclose their containers themselves. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from boa_daemon.job.account import become
from boa_daemon.job.container import LIMITED
from boa_daemon.job.control_group import ControlGroup
from boa_daemon.job.own_memory import SHARED_MEMORY, enter_own_memory, why_shared
from boa_daemon.job.unit import Unit


def group_name(unit: Unit) -> str:
    """Return the name of a unit's control group; units of other daemons here may have the unit's name."""
    return f"{unit.name[:100]}-{hashlib.sha256(os.fsencode(unit.folder)).hexdigest()[:12]}"


class Enclosure:
    """Encloses one start of a unit's command, which gets `environment`.

    `group` is its control group, without folders if it has none. `has_own_memory` says whether it gets shared
    memory of its own. `notes` are sentences for the log.
    """

    def __init__(self, unit: Unit, environment: Mapping[str, str]) -> None:
        self._unit = unit
        self.notes: list[str] = []
        self.group = self._made_group(is_limited=bool(os.environ.get(LIMITED)))
        shared = "" if unit.image else why_shared(unit, environment)
        if shared and os.geteuid() == 0:
            self.notes.append(f"it shares {SHARED_MEMORY} with everybody on this machine: {shared}")
        self.has_own_memory = os.geteuid() == 0 and not unit.image and not shared
        self._reader, self._writer = os.pipe()

    def _made_group(self, *, is_limited: bool) -> ControlGroup:
        """Return a control group, with the unit's limits where our own does not have them."""
        unit = self._unit
        limits = {"cpus": unit.cpus, "memory_bytes": round(unit.memory_gb * 1e9)}
        for given in (limits, {}) if unit.has_limits and not is_limited else ({},):
            try:
                return ControlGroup.make(group_name(unit), **given)  # type: ignore[arg-type]
            except OSError as error:
                why = error.strerror or str(error)
        if os.geteuid() == 0:
            self.notes.append(f"it has no control group: {why}")
        return ControlGroup()

    def enter(self, workdir: int) -> None:
        """Put this process, the command's first, inside, in the folder of a descriptor, as the unit's user.

        Raises:
            OSError: when the folder cannot be entered, or the kernel refuses the change of user.
        """
        with self._unit.as_user():
            # While the folder is seen as the keeper sees it; a new view of mounts takes it along.
            os.fchdir(workdir)
        steps = {"no control group": self.group.enter}
        if self.has_own_memory:
            steps[f"the {SHARED_MEMORY} of everybody on this machine"] = enter_own_memory
        for without, step in steps.items():
            try:
                step()
            except OSError as error:
                os.write(self._writer, f"it has {without}: {error.strerror}\n".encode())
        try:
            become(self._unit)
        except OSError as error:
            os.write(self._writer, f"it cannot run as its user: {error.strerror}\n".encode())
            raise

    def is_closed(self) -> list[str]:
        """Return what could not be given, once the command's first process has entered."""
        os.close(self._writer)
        with os.fdopen(self._reader, errors="replace") as told:
            troubles = told.read().splitlines()
        self.has_own_memory &= not any(str(SHARED_MEMORY) in one for one in troubles)
        return troubles
