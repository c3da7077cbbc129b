"""The table of engines and their properties, for code that plans or checks without opening an engine.

`boa_daemon.daemon.loop.assembly.ENGINES` says how each is opened. An engine from a plug-in has the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """Where an engine's jobs run, and what they can use.

    Jobs that are `elsewhere` run on other machines than the daemon; jobs `on_this_machine` are processes
    beside it. Jobs `on_rented_nodes` of AWS use the disks of the node, read secrets and data with the node's
    rights, and do not see the daemon's folders. `goes_with` are the providers that the engine supports; None:
    the engine checks this itself when it is opened.
    """

    elsewhere: bool = False
    on_this_machine: bool = False
    on_rented_nodes: bool = False
    goes_with: frozenset[str] | None = None


ENGINE_KINDS: Mapping[str, EngineKind] = MappingProxyType(
    {
        "local": EngineKind(on_this_machine=True, goes_with=frozenset({"simulated", "local"})),
        "ssm": EngineKind(elsewhere=True, on_rented_nodes=True, goes_with=frozenset({"aws"})),
        "ray": EngineKind(elsewhere=True, goes_with=frozenset({"simulated", "local", "aws"})),
        "slurm": EngineKind(elsewhere=True, goes_with=frozenset({"slurm"})),
    }
)


def engine_kind(name: str) -> EngineKind:
    """Return the properties of an engine by name; the defaults for an unknown name."""
    return ENGINE_KINDS.get(name, EngineKind())


def fitting(provider: str) -> tuple[str, ...]:
    """Return the built-in engines that support a provider."""
    return tuple(name for name, kind in ENGINE_KINDS.items() if kind.goes_with and provider in kind.goes_with)
