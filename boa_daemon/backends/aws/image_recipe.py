"""An image that is to be built: what is asked for, what comes of it, and the launch of its builder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from boa_daemon.backends.aws.images import OwnImage
from boa_daemon.backends.aws.launch_request import BUILD_TAG, LaunchTarget, run_request
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.errors import CloudFailed
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.tick.actions import LaunchNodes
from boa_daemon.tick.offers import Offer


class BuildFailed(CloudFailed):
    """An image could not be built. Where it says so the builder has ended; else typing the same goes on."""


class BuilderGone(BuildFailed):
    """The builder ended before its disk was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is to be on the disk, in how many minutes at the most, and how many images are kept."""

    base_name: str
    base: str
    pip: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    script: str = ""
    minutes: float = 60.0
    keep: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildIntent:
    """What was asked for: written before EC2 is asked. `holds` is known once the node is prepared."""

    build: str
    recipe: Recipe
    request: Mapping[str, Any]
    ends_at: float
    instance: str = ""
    holds: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """What became of a build."""

    image: OwnImage
    builder: str
    removed: tuple[str, ...]
    seconds: float


def builder_request(
    name: str, build: str, lease: float, *, minutes: float, offer: Offer, site: LaunchTarget,
    settings: AwsSettings, catalog: Catalog,
) -> dict[str, Any]:  # fmt: skip
    """Return the launch of a builder: as that of a node, but with a time of its own and a tag that says so.

    It keeps its time itself, by nothing that is on its disk: the lease of a node would be in the image.
    """
    action = LaunchNodes(id=f"image-{build}", instance_type=catalog.instance_type(name), reason="image")
    plain = replace(site, efa_interfaces=0)
    request = run_request(action, offer, plain, settings, books="", lease=lease)
    for each in request["TagSpecifications"]:
        each["Tags"] = [*each["Tags"], {"Key": BUILD_TAG, "Value": build}]
    return request | {"UserData": f"#!/bin/bash\nshutdown -P +{ceil(minutes)}\n"}
