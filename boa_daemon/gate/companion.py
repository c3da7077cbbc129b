"""Connects the gate with the daemon: start it, send it the plan, and give jobs access to it.

    with start_gate(settings, folder) as gate:                          # when the daemon starts
        tell_plan(gate, decision.state)                                 # after each tick
        engine = LocalEngine(root, gate=JobDoor(folder, address))       # for its jobs

The plan's remaining work is in GPU-hours of the reference type; the gate uses only the order of the jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from boa_daemon.gate.thread import GateThread
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.token import issue_token, read_or_make_secret
from boa_daemon.job.inject import hooked
from boa_daemon.tick.facts.ports import GatePass
from boa_daemon.tick.facts.state import ClusterState
from policies.model import JobId, NodeId

EVERY_NODE = ["*"]
"""Patterns of a link that all messages between nodes take."""


def start_gate(settings: GateSettings, folder: Path, *addresses: GateAddress) -> GateThread:
    """Return a gate, to be entered with `with`; by default it listens on `gate.sock` in the folder.

    Raises:
        OSError: when the secret cannot be read or created.
    """
    secret = read_or_make_secret(folder / "gate.secret")
    return GateThread(settings, secret, *(addresses or (GateAddress(path=str(folder / "gate.sock")),)))


def tell_plan(gate: GateThread, state: ClusterState) -> None:
    """Send the gate each job's remaining GPU-seconds and newest generation."""
    gate.take_plan(
        {job: entry.job.remaining_gpu_hours * 3600.0 for job, entry in state.jobs.items()},
        {job: entry.generation for job, entry in state.jobs.items()},
    )


class JobDoor:
    """Implements `ports.JobGate`, with which engines give their jobs access to the gate.

    `uplinks` are links besides those of the nodes, each with the name patterns of the nodes behind it.
    """

    def __init__(
        self,
        secret_folder: Path,
        address: GateAddress,
        *,
        uplinks: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._secret_folder, self._address, self._uplinks = secret_folder, address, uplinks or {}

    def admit(self, job: JobId, generation: int, nodes: Collection[NodeId], *, token_file: str) -> GatePass:
        """Return address and token for a generation on these nodes; the engine writes `token_file`.

        Raises:
            OSError: when the secret cannot be read.
        """
        secret = read_or_make_secret(self._secret_folder / "gate.secret")
        taken = tuple(name for name, behind in self._uplinks.items() if takes_uplink(nodes, behind))
        address = replace(self._address, token_file=token_file, generation=generation, uplinks=taken)
        token = issue_token(secret, job=job, generation=generation)
        return GatePass(address=str(address), token=token)

    def hooked(self, environment: Mapping[str, str], *, library: str = "") -> dict[str, str]:
        """Return an environment in which DDP models ask the gate of BOA_GATE."""
        return hooked(environment, library=library)


def takes_uplink(nodes: Collection[NodeId], behind: Collection[str]) -> bool:
    """Return whether messages between these nodes take the uplink whose patterns are `behind`.

    They do if some of the nodes match the patterns and others do not; `*` is the link between all nodes.
    """
    if len(nodes) < 2 or list(behind) == EVERY_NODE:
        return len(nodes) > 1
    inside = sum(any(fnmatchcase(node, pattern) for pattern in behind) for node in nodes)
    return 0 < inside < len(nodes)
