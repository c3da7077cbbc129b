"""The daemon's API service: answers as JSON documents, for the socket, tests and programs."""

from __future__ import annotations

from functools import cached_property

from boa_daemon.daemon.service.job_service import JobService
from boa_daemon.daemon.service.site_service import SiteService
from boa_daemon.daemon.service.slurm_nodes import SlurmNodes
from boa_daemon.daemon.service.submissions import Submissions
from boa_daemon.errors import InputError


class Service(Submissions, JobService, SiteService):
    """Answers requests for one daemon; `as_of` in a document is the instant that it describes."""

    @cached_property
    def slurm(self) -> SlurmNodes:
        """The nodes that Slurm asks for.

        Raises:
            InputError: when the settings name no partition of Slurm.
        """
        if not self.daemon.settings.slurm.partitions:
            raise InputError(
                "this daemon provides no nodes for Slurm", hint="Name partitions in [slurm.partitions.NAME]"
            )
        return SlurmNodes(self)

    def after_tick(self) -> None:
        """Compare the nodes that Slurm wants with those that it has, if it gets its nodes here."""
        if self.daemon.settings.slurm.partitions:
            self.slurm.after_tick()
