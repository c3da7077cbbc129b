"""`boa_daemon.gate.companion`: what the daemon and its engines call."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from boa_daemon.gate.companion import JobDoor, start_gate, tell_plan
from boa_daemon.gate.inject import FOLDER
from boa_daemon.gate.supervisor import GateSupervisor
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.client import GateClient
from boa_daemon.testing import a_job, a_state

from .conftest import LINK, until


def test_the_daemons_jobs_find_the_gate_and_rank_by_its_plan(tmp_path: Path) -> None:
    """Secret, socket, token, plan; and the hook goes before what the job's path has."""
    door = JobDoor(tmp_path, GateAddress(path=str(tmp_path / "gate.sock")))
    with start_gate(GateSettings(link=LINK), tmp_path) as gate:
        tell_plan(gate, a_state(a_job("j1", remaining_gpu_hours=1.5)))
        address = GateAddress.parse(door.admit("j1", tmp_path))
        client = GateClient(address, job="j1", nics=["n1", "n2"], token=address.read_token())
        until(lambda: client.is_connected)
        (row,) = gate.status()["jobs"]
        client.close()

    assert row["remaining_gpu_seconds"] == 1.5 * 3600.0
    environment = door.hooked({"PYTHONPATH": "mine"})
    assert environment["PYTHONPATH"].split(os.pathsep)[:2] == [str(FOLDER), "mine"]
    assert (tmp_path / "gate.token").stat().st_mode & 0o777 == 0o600


def a_kept_gate(folder: Path) -> GateSupervisor:
    return GateSupervisor(GateSettings(link=LINK), folder, GateAddress(path=str(folder / "gate.sock")))


@pytest.mark.parametrize("death", ["its loop stops", "its socket is removed"])
def test_a_gate_that_died_is_started_again_with_the_plan(tmp_path: Path, death: str) -> None:
    """A job that had the old gate finds the new one by itself, and is ranked as before."""
    door = JobDoor(tmp_path, GateAddress(path=str(tmp_path / "gate.sock")))
    kept = a_kept_gate(tmp_path)
    kept.keep()
    kept.tell(a_state(a_job("j1", remaining_gpu_hours=1.5)))
    address = GateAddress.parse(door.admit("j1", tmp_path))
    client = GateClient(address, job="j1", nics=["n1", "n2"], token=address.read_token())
    try:
        until(lambda: client.is_connected)
        kept.keep()
        assert kept.status()["starts"] == 1

        assert kept.gate is not None
        if death == "its loop stops":
            kept.gate._loop.call_soon_threadsafe(kept.gate._loop.stop)
            kept.gate._thread.join()
            assert "jobs" not in kept.status()
        else:
            Path(kept.addresses[0].path).unlink()
        kept.keep()
        # The next message finds the line cut and goes at once; then there is a new line.
        assert client.ask(1e6, 1e6).fence == 0
        until(lambda: kept.status().get("jobs") == 1)
        assert kept.status()["starts"] == 2
        (row,) = kept.gate.status()["jobs"]
        assert row["remaining_gpu_seconds"] == 1.5 * 3600.0
    finally:
        client.close()
        kept.close()
    assert not kept.status()["is_up"]


def test_a_gate_that_cannot_be_had_is_a_fault_and_no_more(tmp_path: Path) -> None:
    """Another gate has the socket; the next look finds it free."""
    first, second = a_kept_gate(tmp_path), a_kept_gate(tmp_path)
    first.keep()
    second.keep()
    assert "another gate listens" in second.status()["fault"]
    assert not second.status()["is_up"]

    first.close()
    second.keep()
    assert (second.status()["fault"], second.status()["starts"]) == ("", 1)
    second.close()
