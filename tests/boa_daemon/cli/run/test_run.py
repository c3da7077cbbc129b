"""`boa run` with a daemon of its own that dies: it starts the daemon again and gives everything back."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.api.connection import DaemonUnreachable
from boa_daemon.cli.run.run import JobRun
from boa_daemon.cli.run.run_screen import Screen

JOB = {
    "id": "a-1", "status": "finished", "generation": 0, "nodes": [], "waits_for": None, "usd": 0.0, "step": 1,
    "gpus": 0, "gpu_type": None,
}  # fmt: skip


class Daemon:
    """A daemon that dies at one request and stays dead until it is revived; it records its orders."""

    def __init__(self, dies_at: int) -> None:
        self.dies_at, self.asked, self.is_dead = dies_at, 0, False
        self.orders: list[str] = []
        self.revived = 0

    def revive(self) -> None:
        self.revived, self.is_dead = self.revived + 1, False

    def _hear(self) -> None:
        self.asked += 1
        self.is_dead = self.is_dead or self.asked == self.dies_at
        if self.is_dead:
            raise DaemonUnreachable("nobody listens")

    def get(self, path: str, **_query: Any) -> dict[str, Any]:
        self._hear()
        return {"instances": []} if path == "/instances" else dict(JOB)

    def post(self, path: str, _document: Any = None) -> dict[str, Any]:
        self._hear()
        self.orders.append(path)
        return {"jobs": ["a-1"]}


def a_run(daemon: Daemon) -> JobRun:
    """Return a run that owns that daemon."""
    run = JobRun(
        content={"name": "a"}, max_usd=1.0, screen=Screen(is_quiet=True, max_usd=1.0), wait_seconds=1.0
    )
    run.begin_own(daemon.revive)
    run.client = daemon
    return run


def test_a_run_survives_a_daemon_that_dies_at_any_request() -> None:
    """A submission is not repeated, since that could start two jobs; nodes are given back even then."""
    quiet = Daemon(dies_at=0)
    run = a_run(quiet)
    run.through()
    run.give_back()
    assert quiet.orders == ["/jobs", "/down"]
    assert quiet.revived == 0
    submits = 2
    for dies_at in range(1, quiet.asked + 1):
        daemon = Daemon(dies_at)
        run = a_run(daemon)
        if dies_at == submits:
            with pytest.raises(DaemonUnreachable):
                run.through()
            run.give_back()
            assert daemon.orders == ["/down"]
        else:
            run.through()
            run.give_back()
            assert daemon.orders == ["/jobs", "/down"]
        assert daemon.revived == 1
