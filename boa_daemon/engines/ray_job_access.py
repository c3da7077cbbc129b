"""Runs commands beside jobs on a Ray cluster, as tasks pinned to nodes; see `boa_daemon.job.unit_access`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from boa_daemon.engines.job_access import FULL, MODULE, RunningCommands, parse_command_result
from boa_daemon.tick.facts.ports import Accepted, Refused, SaidInside, WayIn
from policies.model import JobId


class RayJobAccess:
    """Implements `JobAccessPort` without shells: a Ray task has no terminal. `begin_task` starts a task."""

    def __init__(
        self,
        ray: Any,
        folder_of: Callable[[JobId, int], Path | Refused],
        begin_task: Callable[[Path, str, float], Any],
    ) -> None:
        self._ray, self._folder_of, self._begin_task = ray, folder_of, begin_task
        self._commands = RunningCommands()

    def way(self, job: JobId, node: int) -> WayIn | Refused:
        """Refuse: a shell needs a terminal on the node, a port forward a connection; Ray offers neither."""
        folder = self._folder_of(job, node)
        if isinstance(folder, Refused):
            return folder
        said = f"{job} is on a node of Ray: `boa exec` runs commands beside it, `ray attach` opens a shell"
        return Refused(reason=said, kind="bad-request")

    def begin(self, job: JobId, node: int, command: str, *, seconds: float) -> str | Refused:
        """Start a command beside a unit; return the token for `end`."""
        folder = self._folder_of(job, node)
        if isinstance(folder, Refused) or self._commands.is_full():
            return folder if isinstance(folder, Refused) else FULL
        task = self._begin_task(folder, command, seconds)

        def ask() -> SaidInside | None:
            if not self._ray.wait([task], timeout=0)[0]:
                return None
            try:
                return parse_command_result(self._ray.get(task))
            except self._ray.exceptions.RayError as error:
                return SaidInside(code=None, why=f"its node gave no answer: {type(error).__name__}")

        return self._commands.add(ask, seconds)

    def end(self, word: str) -> SaidInside | Refused | None:
        """Return a command's result, None while it runs."""
        return self._commands.end(word)

    def open(
        self, job: JobId, node: int, terminal: str, *, term: str, may_use: Callable[[int], bool]
    ) -> Accepted | Refused:
        """Refuse, as `way` does."""
        del terminal, term, may_use
        way = self.way(job, node)
        assert isinstance(way, Refused)
        return way


def run_ray_command(folder: str, command: str, seconds: float, environment: Mapping[str, str]) -> str:
    """Run a command beside a unit of this node; return the JSON result of `boa_daemon.job.unit_access`."""
    words = [sys.executable, "-m", MODULE, folder, "--seconds", f"{seconds:g}", command]
    done = subprocess.run(
        words, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.stdout or done.stderr
