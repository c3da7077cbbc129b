"""The recipe of an image build, its intent, its result, and the launch request of its builder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from boa_daemon.backends.aws.instances.images import OwnImage
from boa_daemon.backends.aws.instances.launch_request import BUILD_TAG, LaunchTarget, run_request
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.errors import CloudFailed
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.offers import Offer


class BuildFailed(CloudFailed):
    """An image could not be built. If the builder has not ended, the same command continues the build."""


class BuilderGone(BuildFailed):
    """The builder ended before its disk was saved as an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What to install on the disk; `minutes` limits the build, `keep` is the number of images to keep."""

    base_name: str
    base: str
    pip: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    script: str = ""
    minutes: float = 60.0
    keep: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildIntent:
    """A build in progress, on disk before EC2 is called; `holds` is set once the node is prepared."""

    build: str
    recipe: Recipe
    request: Mapping[str, Any]
    ends_at: float
    instance: str = ""
    holds: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """The result of a build."""

    image: OwnImage
    builder: str
    removed: tuple[str, ...]
    seconds: float


def builder_request(
    name: str, build: str, lease: float, *, minutes: float, offer: Offer, site: LaunchTarget,
    settings: AwsSettings, catalog: Catalog,
) -> dict[str, Any]:  # fmt: skip
    """Return the launch request of a builder: a node's, with its own time limit and the builder's tag.

    The builder limits its time by a shutdown command: a node's lease script would become part of the image.
    """
    action = LaunchNodes(id=f"image-{build}", instance_type=catalog.instance_type(name), reason="image")
    plain = replace(site, efa_interfaces=0)
    request = run_request(action, offer, plain, settings, ledger_id="", lease=lease)
    for each in request["TagSpecifications"]:
        each["Tags"] = [*each["Tags"], {"Key": BUILD_TAG, "Value": build}]
    return request | {"UserData": f"#!/bin/bash\nshutdown -P +{ceil(minutes)}\n"}
