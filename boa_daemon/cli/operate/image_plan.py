"""The plan of an image build: places, recipe, price, and missing permissions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.client.resource_names import slug_of
from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.image_builder.policy import image_policy
from boa_daemon.backends.aws.image_builder.recipe import Recipe
from boa_daemon.backends.aws.instances.launch_request import LaunchTarget
from boa_daemon.backends.aws.prices.region_prices import catalog_of, how_to_price
from boa_daemon.backends.aws.rights.missing_rights import (
    may_not_ask,
    missing_statements,
    principal_of,
    to_give,
)
from boa_daemon.cli.common.aws_options import used_resources
from boa_daemon.clock import SystemClock
from boa_daemon.errors import InputError
from boa_daemon.tick.facts.offers import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePlan:
    """Where a builder would be rented, at which price, and which permissions are missing."""

    instance_type: str
    places: Sequence[tuple[Offer, LaunchTarget]]
    recipe: Recipe
    lacks: Sequence[tuple[str, str]]
    """IAM statements that the caller lacks, each with its fix."""

    @property
    def usd_per_hour(self) -> float:
        """The price of the most expensive place."""
        return max(offer.usd_per_hour or 0.0 for offer, _ in self.places)

    def usd(self, minutes: float) -> float:
        """Return the dollars that a builder costs in `minutes`."""
        return self.usd_per_hour * minutes / 60.0


def image_plan(
    cloud: AwsCloud, config: Path, instance_type: str | None, *, pip: tuple[str, ...],
    containers: tuple[str, ...], script: str, minutes: float, keep: int,
) -> ImagePlan:  # fmt: skip
    """Return the plan of an image build.

    Raises:
        CallFailed: when a call to AWS fails.
        InputError: when nodes have no instance profile, the type may not be rented, or no zone offers it.
    """
    settings, catalog = cloud.settings, catalog_of(cloud.settings)
    if not settings.instance_profile:
        raise InputError(
            "nodes have no instance profile, so nothing can be run on them", hint="`boa up` makes it"
        )
    if not settings.instance_types:
        raise InputError(
            "[cloud] instance_types is empty", hint="Name the types to rent; `boa catalog` lists them"
        )
    name = instance_type or min(settings.instance_types, key=catalog.price_of)
    if name not in settings.instance_types:
        raise InputError(
            f"--type {name} is not in [cloud] instance_types",
            hint=f"The policy allows {', '.join(settings.instance_types)}",
        )
    base_name = settings.base_of(name)
    plain = settings.model_copy(update={"image": base_name, "images": {}, "market": "on-demand"})
    looking = AwsCloud(plain, catalog=catalog, clock=SystemClock(), calls=cloud.calls, touches=False)
    offers = [each for each in looking.market.offers({}) if each.instance_type == name]
    found: list[tuple[Offer, LaunchTarget]] = []
    for offer in offers:
        site = looking.launcher.site(offer)
        open_subnets = looking.launcher.open_subnets(offer.zone)
        reachable = [each for each in open_subnets if not looking.launcher.why_cut_off(each, 1)]
        found += [
            (offer, LaunchTarget(image=site.image, root_device=site.root_device, subnet=each))
            for each in reachable[:1]
        ]
    if not found:
        raise InputError(f"no zone of {settings.region} offers {name} in a subnet that reaches SSM")
    if any(offer.usd_per_hour is None for offer, _ in found):
        raise InputError(
            f"the price of {name} in {settings.region} is not known", hint=how_to_price(settings)
        )
    recipe = Recipe(
        base_name=base_name, base=found[0][1].image, pip=pip, containers=containers, script=script,
        minutes=minutes, keep=keep,
    )  # fmt: skip
    return ImagePlan(instance_type=name, places=found, recipe=recipe, lacks=_lacks(cloud, config))


def _lacks(cloud: AwsCloud, config: Path) -> list[tuple[str, str]]:
    """Return the IAM statements that the caller lacks, with fixes; empty where IAM may not be asked."""
    caller = cloud.calls.call("sts:GetCallerIdentity")
    principal = principal_of(str(caller["Arn"]))
    role = principal if ":role/" in principal else ""
    document = image_policy(
        cloud.settings, uses=used_resources(config), account=str(caller["Account"]), role=role
    )
    try:
        missing = list(missing_statements(cloud.calls, principal, document)) if principal else []
    except CallFailed as error:
        if may_not_ask(error):
            return []
        raise
    name = f"boa-{slug_of(cloud.settings)}-image"
    return [(sid, f"{said}. {to_give(sid, principal, ' --image', name=name)}") for sid, said in missing]
