"""What each engine is, for who plans or checks without opening it: the one table of their names.

How each is opened stands in `boa_daemon.daemon.assembly.ENGINES`. An engine of a plug-in is like one whose
jobs are processes of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """Where an engine's jobs are and what they can have.

    Jobs that are `elsewhere` run on other machines than the daemon; those `on_this_machine` are processes
    beside it. Those `on_rented_nodes` of AWS have the disks that the node brings, read secrets and data with
    its rights, and see no folder of the daemon's. The engine `goes_with` these providers; None: it says so
    itself, when it is opened.
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
    }
)


def engine_kind(name: str) -> EngineKind:
    """Return what an engine is."""
    return ENGINE_KINDS.get(name, EngineKind())


def fitting(provider: str) -> tuple[str, ...]:
    """Return the engines of ours that go with a provider."""
    return tuple(name for name, kind in ENGINE_KINDS.items() if kind.goes_with and provider in kind.goes_with)
