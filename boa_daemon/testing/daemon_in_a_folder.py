"""A complete daemon on a test's clock: its real store, a cloud in a file, and simulated jobs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boa_daemon.backends.simulated import FileCloud, SimulatedLimits
from boa_daemon.daemon.loop.assembly import open_storage
from boa_daemon.daemon.loop.components import World
from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.planner.warm_pool import start_seconds_of
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.sim.simulated_runner import SimulatedRunner
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.ports import Clock, Provider, Runner
from policies.model import Width


def job_content(name: str = "job", *, hours: float = 1.0, **changes: Any) -> dict[str, Any]:
    """Return a job file for `hours` hours on one GPU."""
    content = {
        "name": name,
        "class": "default",
        "run": "true",
        "max_gpus": 1,
        "elastic": True,
        "scale": hours,
        "environment": {"HOURS": repr(hours)},
    }
    return content | changes


class DaemonInAFolder:
    """A daemon in a folder; opening the folder again simulates a restart."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        wrap_cloud: Any = None,
        wrap_runner: Any = None,
        rented_from: Provider | None = None,
        database: str = "",
    ) -> None:
        """Open a folder. `rented_from` replaces the cloud in a file, `database` the URL of the file in it.

        Raises:
            InputError: when the settings are wrong.
        """
        self.settings = Settings.model_validate(settings or {})
        planner = Planner(self.settings, cloud=FileCloud if rented_from is None else rented_from)
        self.clock = clock

        def speed(class_name: str, width: Width) -> float:
            found = planner.class_of(class_name) or planner.classes[class_name]
            return float(found.phases[0].speedups[width.gpu_type].speed_at(width.gpus))

        given = self.settings.cloud
        limits = SimulatedLimits(
            boot_seconds=given.boot_seconds,
            start_seconds=start_seconds_of(self.settings, given.boot_seconds),
            stock=given.stock,
        )
        self.cloud = FileCloud(folder / "cloud.sqlite", clock, limits=limits, durable=False)
        within = self.cloud if rented_from is None else rented_from
        self.runner = SimulatedRunner(clock, speed=speed, journal=folder / "runner.jsonl")
        cloud: Provider = within if wrap_cloud is None else wrap_cloud(within)
        runner: Runner = self.runner if wrap_runner is None else wrap_runner(self.runner)
        storage = open_storage(database or sqlite_url(folder / "boa.sqlite"), durable=False)
        self.daemon = Daemon(self.settings, World(clock=clock, cloud=cloud, runner=runner), storage)
        self.storage = storage
        self.service = Service(self.daemon)
        self.daemon.start()

    def is_over(self, decision: Decision | None) -> bool:
        """Return whether a tick saw no job and no node, and no launch has an unknown outcome."""
        seen = None if decision is None else decision.state
        return seen is not None and not (seen.all_jobs or seen.nodes or self.storage.store.unsettled())

    def close(self) -> None:
        """Close the daemon and the cloud."""
        self.daemon.close()
        self.cloud.close()
