"""A Slurm in memory, for tests without one: its nodes, its jobs, and what it was told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from boa_daemon.slurm.commands import Slurm, SlurmJob, SlurmNode, SlurmRefused, SlurmSilent


class FakeSlurm(Slurm):
    """Answers as `Slurm` does from `by_name` and `queue`; `is_silent` while no controller answers."""

    def __init__(self, nodes: Sequence[SlurmNode] = (), jobs: Sequence[SlurmJob] = ()) -> None:
        super().__init__()
        self.by_name = {node.name: node for node in nodes}
        self.queue = list(jobs)
        self.told: list[tuple[tuple[str, ...], Mapping[str, str]]] = []
        self.comments: dict[str, str] = {}
        self.tasks_per_node = 0
        self.orders: list[tuple[str, Mapping[str, str]]] = []
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

    def figures(self, job: str) -> dict[str, str]:
        """Return the tasks on each node of a job, `tasks_per_node`."""
        self._answer()
        return {"NtasksPerN:B:S:C": f"{self.tasks_per_node}:0:*:*"}

    def update_job(self, job: str, **values: str) -> None:
        """Note the change, and carry out one of the number of nodes."""
        self._answer()
        self.orders.append((job, values))
        if "NumNodes" in values:
            found, count = self._job(job), int(values["NumNodes"].partition("-")[0])
            hosts = found.hosts[:count]
            self._put(replace(found, node_count=count, nodes=",".join(hosts)))

    def requeue_held(self, job: str) -> None:
        """Let a job wait, held."""
        self._answer()
        self.orders.append((job, {"requeue": "held"}))
        self._put(replace(self._job(job), state="PENDING", reason="job requeued in held state", nodes=""))

    def release(self, job: str) -> None:
        """Note that a job is let go."""
        self._answer()
        self.orders.append((job, {"release": ""}))
        self._put(replace(self._job(job), reason="None"))

    def _job(self, number: str) -> SlurmJob:
        """Return a job.

        Raises:
            SlurmRefused: when there is none.
        """
        for job in self.queue:
            if job.id == number:
                return job
        raise SlurmRefused("Invalid job id specified")

    def _put(self, job: SlurmJob) -> None:
        self.queue = [job if one.id == job.id else one for one in self.queue]

    def set(self, name: str, **changes: str) -> None:
        """Change a node, as an administrator or Slurm itself does."""
        self.by_name[name] = replace(self.by_name[name], **changes)  # type: ignore[arg-type]
