"""Properties of each cloud by its name in the settings, for callers that do not open the cloud.

`boa_daemon.daemon.loop.assembly` has the classes and opens them. Clouds of plug-ins have no properties here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudKind:
    """Where a cloud's nodes and costs can be read without the daemon.

    `on_aws`: the cloud has an AWS account, whose bill, rights and tags can be queried. `in_a_file`: the cloud
    keeps its nodes in a file in the state folder. `has_regions`: a node without a zone is in the region of
    the settings; nodes of other clouds are in none.
    """

    on_aws: bool = False
    in_a_file: bool = False
    has_regions: bool = False


CLOUD_KINDS: Mapping[str, CloudKind] = MappingProxyType(
    {
        "aws": CloudKind(on_aws=True, has_regions=True),
        "simulated": CloudKind(in_a_file=True, has_regions=True),
        "local": CloudKind(),
        "slurm": CloudKind(),
    }
)


def cloud_kind(name: str) -> CloudKind:
    """Return the properties of a cloud; all are false for a name that is not listed."""
    return CLOUD_KINDS.get(name, CloudKind())


def may_read(name: str, readers: Collection[str]) -> bool:
    """Return whether a cloud may read a setting of these clouds; one of a plug-in may read any."""
    return name in readers or name not in CLOUD_KINDS
