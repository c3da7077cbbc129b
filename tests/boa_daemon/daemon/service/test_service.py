"""One service answers for a daemon; it speaks of Slurm only where Slurm gets its nodes here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError


def a_service(**partitions: str) -> Service:
    """Return the service of a daemon with these partitions."""
    tables = {name: {"instance_type": machine} for name, machine in partitions.items()}
    settings = Settings.model_validate({"slurm": {"partitions": tables}})
    daemon: Any = SimpleNamespace(settings=settings, after_ticks=lambda: None)
    return Service(cast(Daemon, daemon))


def test_without_partitions_no_tick_asks_slurm() -> None:
    """Who orders a node is told which setting is missing."""
    service = a_service()
    service.after_tick()
    with pytest.raises(InputError, match=r"provides no nodes for Slurm.*\[slurm\.partitions\.NAME\]"):
        _ = service.slurm


def test_with_partitions_each_tick_compares_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same object each time: it remembers what it was asked."""
    service, ticks = a_service(cloud="g5.xlarge"), list[int]()
    slurm = service.slurm
    monkeypatch.setattr(slurm, "after_tick", lambda: ticks.append(1))
    service.after_tick()
    service.after_tick()
    assert ticks == [1, 1]
    assert service.slurm is slurm


def test_a_tick_prepares_the_forecasts_of_the_service() -> None:
    """Requests then find them ready."""
    service = a_service()
    assert service.daemon.after_ticks == service.outlook.prepare
