"""A daemon in a folder that provides the nodes of a Slurm in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boa_daemon.daemon.service.slurm_nodes import FRESH_SECONDS, SlurmNodes
from boa_daemon.slurm.commands import SlurmNode
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder
from boa_daemon.testing.fake_slurm import FakeSlurm

START = 1_800_000_000.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 100.0, "usd_per_day_cap": 5000.0, "max_instances": 8},
    "cloud": {"instance_types": ["g5.12xlarge"], "boot_seconds": 10.0},
    "slurm": {"partitions": {"rented": {"instance_type": "g5.12xlarge"}}, "teams": {"ml": "vision"}},
    "teams": {"vision": {"members": ["ann"]}},
}


class World:
    """A daemon in a folder that provides the nodes of a Slurm in memory."""

    def __init__(self, folder: Path, **changes: dict[str, Any]) -> None:
        self.clock = ManualClock(START)
        self.site = DaemonInAFolder(folder, self.clock, {**SETTINGS, **changes})
        nodes = [SlurmNode(name=f"c{n}", partition="rented", state="idle", marks="~") for n in range(1, 5)]
        self.slurm = FakeSlurm(nodes)
        self.nodes = SlurmNodes(self.site.service, self.slurm)

    def wants(self, *names: str) -> None:
        """Let Slurm power nodes up."""
        for name in names:
            self.slurm.set(name, state="allocated", marks="#")

    def passes(self, seconds: float = FRESH_SECONDS + 1.0) -> None:
        """Let time pass, tick, and compare."""
        self.clock.instant += seconds
        self.site.daemon.tick()
        self.nodes.reconcile()

    def live(self) -> set[str]:
        """Return the nodes that have a job."""
        return set(self.nodes.live())
