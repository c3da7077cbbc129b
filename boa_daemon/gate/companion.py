"""The gate beside the daemon: started with it, told its plan, and made known to its jobs.

    with start_gate(settings, folder) as gate:                          # when the daemon starts
        tell_plan(gate, decision.state)                                 # after each tick
        engine = LocalEngine(root, gate=JobDoor(folder, address))       # for its jobs

The state's remaining work is in GPU-hours of the reference type; only the order of the jobs matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from boa_daemon.gate.inject import hooked
from boa_daemon.gate.thread import GateThread
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.token import issue_token, read_or_make_secret, write_token
from boa_daemon.tick.state import ClusterState
from policies.model import JobId


def start_gate(settings: GateSettings, folder: Path, *addresses: GateAddress) -> GateThread:
    """Return a gate, to be entered with `with`: on `gate.sock` in the folder unless addresses are given.

    Raises:
        OSError: when the secret cannot be read or made.
    """
    secret = read_or_make_secret(folder / "gate.secret")
    return GateThread(settings, secret, *(addresses or (GateAddress(path=str(folder / "gate.sock")),)))


def tell_plan(gate: GateThread, state: ClusterState) -> None:
    """Tell the gate what is left of each job."""
    gate.take_plan({job: entry.job.remaining_gpu_hours * 3600.0 for job, entry in state.jobs.items()})


class JobDoor:
    """Implements `ports.JobGate`: how engines make the gate known to their jobs."""

    def __init__(self, secret_folder: Path, address: GateAddress) -> None:
        self._secret_folder, self._address = secret_folder, address

    def admit(self, job: JobId, folder: Path) -> str:
        """Write a job's token to `gate.token` in its folder, and return the address with it.

        Raises:
            OSError: when the token cannot be written.
        """
        token = folder.resolve() / "gate.token"
        secret = read_or_make_secret(self._secret_folder / "gate.secret")
        token.unlink(missing_ok=True)
        write_token(token, issue_token(secret, job=job))
        return str(replace(self._address, token_file=str(token)))

    def hooked(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an environment in which DDP models ask the gate that BOA_GATE leads to."""
        return hooked(environment)
