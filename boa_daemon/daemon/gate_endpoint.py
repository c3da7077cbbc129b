"""Whether the daemon runs a gate, and where: by default wherever two jobs can share a link.

Jobs share a link where a node has GPUs for several of them and jobs may span nodes, or where an uplink is
named. Where nodes are other machines the gate listens on this one's private address. Where it cannot be had,
the daemon works as well: jobs send without asking, and the status says why.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.daemon_paths import LONGEST_SOCKET
from boa_daemon.engines.engine_kinds import engine_kind
from boa_daemon.errors import InputError
from boa_daemon.gate.companion import JobDoor
from boa_daemon.gate.listen_address import address_for_nodes, own_address
from boa_daemon.gate.supervisor import GateSupervisor
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate.address import PORT, BadAddress, GateAddress
from policies.links.contention import Link
from policies.model import InstanceType


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEndpoint:
    """Where the gate listens, and where jobs find it; or why there is none."""

    addresses: tuple[GateAddress, ...] = ()
    why_off: str = ""

    @property
    def door(self) -> GateAddress | None:
        """What jobs are told: the address that reaches furthest, which is the last."""
        return address_for_nodes(self.addresses[-1]) if self.addresses else None


def gate_endpoint(settings: Settings, socket: Path, machines: Mapping[str, InstanceType]) -> GateEndpoint:
    """Return where the gate is, beside the daemon's socket.

    Raises:
        InputError: when it is to listen where nobody can.
    """
    why_off = _why_off(settings, machines)
    if why_off:
        return GateEndpoint(why_off=why_off)
    here = GateAddress(path=str(socket.with_name("gate.sock")))
    local = (here,) if len(os.fsencode(here.path)) <= LONGEST_SOCKET else ()
    if settings.gate.listen is not None:
        try:
            return GateEndpoint(addresses=(*local, GateAddress.parse(f"tcp:{settings.gate.listen}")))
        except BadAddress as error:
            raise InputError(f"[gate] listen: {error}") from None
    if engine_kind(settings.engine.name).elsewhere:
        host = own_address()
        if not host:
            return GateEndpoint(
                why_off="this machine has no private address that nodes could reach: set [gate] listen"
            )
        return GateEndpoint(addresses=(*local, GateAddress(host=host, port=PORT)))
    return GateEndpoint(addresses=local, why_off="" if local else f"the path is too long: {here.path}")


def _why_off(settings: Settings, machines: Mapping[str, InstanceType]) -> str:
    """Return why no gate is wanted; nothing where one is."""
    if not settings.gate.enabled:
        return "[gate] enabled is false"
    if settings.daemon.observe:
        return "the daemon only observes"
    if settings.gate.always_on:
        return ""
    most = settings.budget.max_instances
    if most is not None and most < 2:
        return "there is at most one node: nothing is sent between nodes"
    if not settings.gate.uplinks and max(kind.gpus for kind in machines.values()) < 2:
        return "nodes have one GPU each, so no two jobs share a card, and no uplink is named"
    return ""


def open_gate(settings: Settings, site: GateEndpoint, state: Path) -> GateSupervisor | None:
    """Return the gate of a site; it is started by `keep`."""
    if not site.addresses:
        return None
    gate = GateSettings(
        policy=settings.gate.policy,
        link=Link.of_gigabits(settings.gate.gigabits),
        is_always_on=settings.gate.always_on,
    )
    return GateSupervisor(gate, state, *site.addresses)


def job_door(settings: Settings, site: GateEndpoint, state: Path) -> JobDoor | None:
    """Return how engines make the gate known to their jobs."""
    door = site.door
    return None if door is None else JobDoor(state, door, uplinks=settings.gate.uplinks)
