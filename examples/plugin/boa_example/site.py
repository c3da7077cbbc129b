"""A cloud and an engine of a plug-in. For brevity they use BOA's cloud in a file and its local engine."""

from __future__ import annotations

from pathlib import Path

from boa_daemon.backends.simulated import FileCloud, SimulatedLimits
from boa_daemon.daemon.config import Settings
from boa_daemon.engines.local import LocalEngine
from boa_daemon.gate.companion import JobDoor
from boa_daemon.tick.ports import Clock, Provider, Runner


def open_shelf(settings: Settings, state: Path, clock: Clock, ledger: str) -> Provider:
    """Return a cloud whose machines boot in a minute."""
    limits = SimulatedLimits(boot_seconds=60.0, stock=settings.cloud.stock)
    return FileCloud(state / "shelf.sqlite", clock, limits=limits)


def open_bare(settings: Settings, state: Path, door: JobDoor | None, cloud: Provider) -> Runner:
    """Return an engine that runs jobs as processes of this machine."""
    return LocalEngine(state / "bare", gate=door)
