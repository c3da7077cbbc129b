"""The RunInstances request of a launch. Everything is in this one call, above all the tags.

A second call that adds something would be lost in a crash between the two, so there is none.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from boa_daemon.backends.aws.instances.user_data import user_data
from boa_daemon.backends.aws.prices.extra_costs import (
    FREE_MB_PER_SECOND,
    extras_of,
    tag_of,
    with_higher_transfer,
)
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.offers import Extras, Offer

CLUSTER_TAG, INTENT_TAG, LEASE_TAG = "boa:cluster", "boa:intent", "boa:lease"
PRICE_TAG, MARKET_TAG, LEDGER_TAG = "boa:usd-per-hour", "boa:market", "boa:books"
EXTRAS_TAG = "boa:extra-usd-per-hour"
CARDS_TAG = "boa:efa-cards"
"""Number of network cards with EFA that an instance was launched with; a node must show as many."""
JOB_TAG, GENERATION_TAG = "boa:job", "boa:generation"
RESERVATION_TAG = "boa:reservation"
"""Tag with the id of the capacity reservation that an instance was launched in."""
BUILD_TAG = "boa:image-build"
"""Tag of an instance that builds an image: no job runs there, and the daemon does not renew its lease."""


LONGEST_TAG = 256
"""Most characters in the value of a tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTarget:
    """Facts of the region that one launch needs besides the settings."""

    image: str
    root_device: str
    subnet: str = ""
    efa_interfaces: int = 0
    reservation: str = ""
    is_block: bool = False
    has_address: bool = True


TOKEN_PREFIX = "boa-"
"""The tokens of all our launches begin with this."""


def client_token(action_id: str, *, ledger_id: str, attempt: int, place: str) -> str:
    """Return the idempotency token of a launch: at most 64 ASCII characters, equal for equal arguments.

    EC2's tokens count per zone, so `place` is part of the token. `ledger_id`, the id of the database, is too:
    an empty database numbers its ticks from one again, and must not get the nodes of the old database.
    """
    digest = sha256("\n".join((ledger_id, action_id, str(attempt), place)).encode()).digest()
    return f"{TOKEN_PREFIX}{b32encode(digest).decode().rstrip('=').lower()}"


def launch_tags(
    action: LaunchNodes,
    offer: Offer,
    settings: AwsSettings,
    *,
    ledger_id: str,
    lease: float,
    extras: Extras = (),
) -> dict[str, str]:
    """Return the tags of a launch; the node's record can be rebuilt from them alone."""
    price = offer.compute_usd_per_hour or action.instance_type.usd_per_hour
    rented_for = {}
    if action.for_jobs:
        job, generation = action.for_jobs[0]
        rented_for = {JOB_TAG: job[:LONGEST_TAG], GENERATION_TAG: str(generation)}
    # The house's own first: none of them may replace a tag that nodes are found and ended by.
    return (
        {**settings.tags}
        | rented_for
        | {
            CLUSTER_TAG: settings.cluster,
            INTENT_TAG: action.id,
            LEDGER_TAG: ledger_id,
            MARKET_TAG: offer.market,
            PRICE_TAG: f"{price:.6g}",
            EXTRAS_TAG: tag_of(extras or offer.extras or extras_of(settings)),
            LEASE_TAG: str(int(lease)),
            "Name": f"{settings.cluster}-{action.instance_type.name}",
        }
    )


def run_request(
    action: LaunchNodes,
    offer: Offer,
    site: LaunchTarget,
    settings: AwsSettings,
    *,
    ledger_id: str,
    lease: float,
    attempt: int = 0,
) -> dict[str, Any]:
    """Return the arguments of RunInstances. A gang is launched whole or not at all: MinCount = MaxCount."""
    extras = with_higher_transfer(extras_of(settings, has_address=site.has_address), offer.extras)
    tags = launch_tags(action, offer, settings, ledger_id=ledger_id, lease=lease, extras=extras)
    if site.reservation and offer.market == "reserved":
        tags[RESERVATION_TAG] = site.reservation
    if cards := _cards(site, settings):
        tags[CARDS_TAG] = str(cards)
    request: dict[str, Any] = {
        "ImageId": site.image,
        "InstanceType": action.instance_type.name,
        "MinCount": action.count if action.is_gang else 1,
        "MaxCount": action.count,
        "ClientToken": client_token(
            action.id, ledger_id=ledger_id, attempt=attempt, place=site.subnet or offer.zone
        ),
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "HttpEndpoint": "enabled",
            "InstanceMetadataTags": "enabled",
        },
        "BlockDeviceMappings": [_root_volume(site, settings)],
        "UserData": user_data(lease),
        "TagSpecifications": _tagged(tags, offer),
        **_network(site, settings),
        **_market(offer, site, settings),
    }
    placement = _placement(action, offer, site, settings)
    if placement:
        request["Placement"] = placement
    if settings.key_name:
        request["KeyName"] = settings.key_name
    if settings.instance_profile:
        kind = "Arn" if settings.instance_profile.startswith("arn:") else "Name"
        request["IamInstanceProfile"] = {kind: settings.instance_profile}
    return request


def _root_volume(site: LaunchTarget, settings: AwsSettings) -> dict[str, Any]:
    """Return the root volume: encrypted, and deleted with its instance."""
    disk: dict[str, Any] = {"VolumeSize": settings.volume_gib, "VolumeType": "gp3"}
    if settings.volume_mb_per_second > FREE_MB_PER_SECOND:
        disk["Throughput"] = settings.volume_mb_per_second
    return {"DeviceName": site.root_device, "Ebs": {**disk, "Encrypted": True, "DeleteOnTermination": True}}


def _tagged(tags: Mapping[str, str], offer: Offer) -> list[dict[str, Any]]:
    """Return the tags for every resource that the call creates."""
    kinds = ["instance", "volume", "network-interface"]
    if offer.market == "spot":
        kinds.append("spot-instances-request")
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    return [{"ResourceType": kind, "Tags": listed} for kind in kinds]


def _cards(site: LaunchTarget, settings: AwsSettings) -> int:
    """Return how many EFA cards to request: none without a subnet, named or the default one."""
    return site.efa_interfaces if settings.efa and site.subnet else 0


def _network(site: LaunchTarget, settings: AwsSettings) -> dict[str, Any]:
    """Return subnet and security groups; with EFA each interface carries them."""
    groups = list(settings.security_groups)
    if not _cards(site, settings):
        found: dict[str, Any] = {"SubnetId": site.subnet} if site.subnet else {}
        return found | ({"SecurityGroupIds": groups} if groups else {})
    return {"NetworkInterfaces": _efa_interfaces(site, groups)}


def _efa_interfaces(site: LaunchTarget, groups: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "NetworkCardIndex": card,
            "DeviceIndex": 0 if card == 0 else 1,
            "InterfaceType": "efa" if card == 0 else "efa-only",
            "SubnetId": site.subnet,
            "DeleteOnTermination": True,
            **({"Groups": list(groups)} if groups else {}),
        }
        for card in range(site.efa_interfaces)
    ]


def _market(offer: Offer, site: LaunchTarget, settings: AwsSettings) -> dict[str, Any]:
    """Return the arguments of a market. Spot requests are one-time, so that EC2 does not relaunch them."""
    if offer.market == "reserved":
        target = {"CapacityReservationId": site.reservation}
        found: dict[str, Any] = {"CapacityReservationSpecification": {"CapacityReservationTarget": target}}
        return found | ({"InstanceMarketOptions": {"MarketType": "capacity-block"}} if site.is_block else {})
    if offer.market != "spot":
        return {}
    spot: dict[str, Any] = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    limit = settings.spot_max_usd_per_hour.get(offer.instance_type)
    if limit is not None:
        spot["MaxPrice"] = f"{limit:.6g}"
    return {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": spot}}


def _placement(
    action: LaunchNodes, offer: Offer, site: LaunchTarget, settings: AwsSettings
) -> dict[str, str]:
    """Return the zone if no subnet implies it, and the placement group of a gang with EFA."""
    place = {} if site.subnet or not offer.zone else {"AvailabilityZone": offer.zone}
    group = settings.placement_groups.get(offer.zone, "")
    if action.is_gang and site.efa_interfaces and group:
        place["GroupName"] = group
    return place
