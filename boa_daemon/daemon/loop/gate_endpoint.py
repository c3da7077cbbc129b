"""Whether the daemon runs a gate, and at which address.

By default it runs one when two jobs can share a link: nodes have several GPUs and jobs may span nodes, or an
uplink is named. When nodes are other machines, the gate listens on this machine's private address. Without a
gate the daemon works as well: jobs send without asking, and the status says why.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.daemon_paths import LONGEST_SOCKET, StateFile
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
    """The addresses where the gate listens, or the reason why there is none."""

    addresses: tuple[GateAddress, ...] = ()
    why_off: str = ""

    @property
    def door(self) -> GateAddress | None:
        """The address that jobs use: the last, which most machines can reach."""
        return address_for_nodes(self.addresses[-1]) if self.addresses else None


def gate_endpoint(settings: Settings, socket: Path, machines: Mapping[str, InstanceType]) -> GateEndpoint:
    """Return the gate's addresses; its unix socket is in the folder of the daemon's socket.

    Raises:
        InputError: when `[gate] listen` is not a valid address.
    """
    why_off = _why_off(settings, machines)
    if why_off:
        return GateEndpoint(why_off=why_off)
    here = GateAddress(path=str(socket.parent / StateFile.gate_socket))
    local = (here,) if len(os.fsencode(here.path)) <= LONGEST_SOCKET else ()
    if settings.gate.listen is not None:
        try:
            return GateEndpoint(addresses=(*local, GateAddress.parse(f"tcp:{settings.gate.listen}")))
        except BadAddress as error:
            raise InputError(f"[gate] listen: {error}", setting=("gate", "listen")) from None
    if engine_kind(settings.engine.name).elsewhere:
        host = own_address()
        if not host:
            return GateEndpoint(
                why_off="this machine has no private address that nodes could reach: set [gate] listen"
            )
        return GateEndpoint(addresses=(*local, GateAddress(host=host, port=PORT)))
    return GateEndpoint(addresses=local, why_off="" if local else f"the path is too long: {here.path}")


def _why_off(settings: Settings, machines: Mapping[str, InstanceType]) -> str:
    """Return why no gate is needed; empty when one is."""
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
    """Return the gate's supervisor, whose `keep` starts the gate; None without addresses."""
    if not site.addresses:
        return None
    gate = GateSettings(
        policy=settings.gate.policy,
        link=Link.of_gigabits(settings.gate.gigabits),
        is_always_on=settings.gate.always_on,
    )
    return GateSupervisor(gate, state, *site.addresses)


def job_door(settings: Settings, site: GateEndpoint, state: Path) -> JobDoor | None:
    """Return the object through which engines tell jobs about the gate; None without a gate."""
    door = site.door
    return None if door is None else JobDoor(state, door, uplinks=settings.gate.uplinks)
