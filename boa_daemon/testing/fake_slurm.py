"""A Slurm in memory, for tests without one: its nodes, its jobs, and what it was told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from boa_daemon.slurm.commands import Slurm, SlurmJob, SlurmNode, SlurmSilent


class FakeSlurm(Slurm):
    """Answers as `Slurm` does from `by_name` and `queue`; `is_silent` while no controller answers."""

    def __init__(self, nodes: Sequence[SlurmNode] = (), jobs: Sequence[SlurmJob] = ()) -> None:
        super().__init__()
        self.by_name = {node.name: node for node in nodes}
        self.queue = list(jobs)
        self.told: list[tuple[tuple[str, ...], Mapping[str, str]]] = []
        self.comments: dict[str, str] = {}
        self.is_silent = False

    def _answer(self) -> None:
        """Raise `SlurmSilent` while no controller answers."""
        if self.is_silent:
            raise SlurmSilent("Slurm's controller does not answer")

    def nodes(self) -> list[SlurmNode]:
        """Return the nodes."""
        self._answer()
        return list(self.by_name.values())

    def jobs(self) -> list[SlurmJob]:
        """Return the jobs."""
        self._answer()
        return list(self.queue)

    def update_nodes(self, names: Sequence[str], **values: str) -> None:
        """Note the change, and carry out a power-up and a power-down."""
        self._answer()
        self.told.append((tuple(names), values))
        marks = {"power_up": "#", "power_down": "~", "power_down_force": "~"}.get(values.get("state", ""))
        for name in names:
            if marks is not None:
                self.by_name[name] = replace(self.by_name[name], marks=marks)

    def admin_comments(self, jobs: Sequence[str] = ()) -> dict[str, str]:
        """Return the comments of jobs."""
        self._answer()
        return {job: text for job, text in self.comments.items() if text and (not jobs or job in jobs)}

    def comment(self, job: str, text: str) -> None:
        """Note the comment of a job."""
        self._answer()
        self.comments[job] = text

    def set(self, name: str, **changes: str) -> None:
        """Change a node, as an administrator or Slurm itself does."""
        self.by_name[name] = replace(self.by_name[name], **changes)  # type: ignore[arg-type]
