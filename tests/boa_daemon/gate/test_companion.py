"""`boa_daemon.gate.companion`: what the daemon and its engines call."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from boa_daemon.gate.address import GateAddress
from boa_daemon.gate.client import GateClient
from boa_daemon.gate.companion import gate_environment, start_gate, tell_plan
from boa_daemon.gate.inject import FOLDER
from boa_daemon.gate.nouns import GateSettings
from boa_daemon.testing import a_job, a_state

from .conftest import LINK, until


def test_the_daemons_jobs_find_the_gate_and_rank_by_its_plan(tmp_path: Path) -> None:
    """Secret, socket, token, plan: from three calls."""
    with start_gate(GateSettings(link=LINK), tmp_path) as gate:
        environment = gate_environment({"PYTHONPATH": "mine"}, tmp_path, "j1")
        tell_plan(gate, a_state(a_job("j1", remaining_gpu_hours=1.5)))
        address = GateAddress.parse(environment["BOA_GATE"])
        client = GateClient(address, job="j1", nics=["n1", "n2"], token=address.read_token())
        until(lambda: client.is_connected)
        (row,) = gate.status()["jobs"]
        client.close()

    assert row["remaining_gpu_seconds"] == 1.5 * 3600.0
    assert environment["PYTHONPATH"].split(os.pathsep)[:2] == [str(FOLDER), "mine"]
    assert (tmp_path / "gate-tokens" / "j1.token").stat().st_mode & 0o777 == 0o600
    assert gate_environment({}, tmp_path, "j1", hook=False) == {"BOA_GATE": environment["BOA_GATE"]}


@pytest.mark.parametrize("job", ["", "..", "a/b"])
def test_a_job_cannot_name_a_file_elsewhere(tmp_path: Path, job: str) -> None:
    """Ids come from users."""
    with pytest.raises(ValueError, match="cannot be the name"):
        gate_environment({}, tmp_path, job)
    assert list(tmp_path.iterdir()) == []
