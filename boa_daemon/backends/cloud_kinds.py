"""What each cloud is, by its name in the settings, for whoever asks without opening it.

How each is opened, and its class, stand in `boa_daemon.daemon.assembly`. Of plug-ins nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudKind:
    """Where a cloud's nodes can be found, and what they cost, without the daemon.

    One that is `on_aws` has an account, whose bill, rights and tags can be asked. One that is `in_a_file`
    keeps its nodes in the state folder.
    """

    on_aws: bool = False
    in_a_file: bool = False


CLOUD_KINDS: Mapping[str, CloudKind] = MappingProxyType(
    {"aws": CloudKind(on_aws=True), "simulated": CloudKind(in_a_file=True), "local": CloudKind()}
)


def cloud_kind(name: str) -> CloudKind:
    """Return what a cloud is."""
    return CLOUD_KINDS.get(name, CloudKind())
