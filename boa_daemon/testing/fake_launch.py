"""The fake cloud's rules for launches: refusals, the number of instances granted, and moto's request."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from math import inf

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS

from boa_daemon.testing import fake_blocks
from boa_daemon.testing.fake_answers import Answer, Call, ec2_error
from boa_daemon.testing.fake_terms import CloudFacts


def refused(cloud: CloudFacts, call: Call, zone: str) -> Answer | None:
    """Return why a launch is refused regardless of capacity; None if it is not."""
    query, cluster = call.query, cloud.terms.enforces_cluster
    if cluster and call.tags().get("boa:cluster") != cluster:
        return ec2_error("UnauthorizedOperation", "You are not authorized to perform this operation.", 403)
    lacking = missing_tags(cloud, call)
    if lacking:
        said = (
            f"You are not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:{call.region}:"
            f"123456789012:{lacking}/* with an explicit deny in a service control policy."
        )
        return ec2_error("UnauthorizedOperation", said, 403)
    if cloud.terms.allows not in (None, (query["InstanceType"], zone, market_of(query))):
        return ec2_error("UnauthorizedOperation", "You are not authorized to perform this operation.", 403)
    if int(query["MinCount"]) > int(query["MaxCount"]):
        return ec2_error("InvalidParameterValue", "MinCount is greater than MaxCount")
    if len(base64.b64decode(query.get("UserData", ""))) > 16384:
        return ec2_error("InvalidParameterValue", "User data is limited to 16384 bytes")
    if query.get("ImageId") not in cloud.backend(call.region).amis:
        return ec2_error("InvalidAMIID.NotFound", f"The image id '[{query.get('ImageId')}]' does not exist")
    name = query["InstanceType"]
    if not _is_offered(name, call.region, ""):
        return ec2_error("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
    if zone and not _is_offered(name, call.region, zone):
        return ec2_error("Unsupported", f"{name} is not supported in {zone}")
    if query.get("DryRun", "").lower() == "true":
        return cloud.error("DryRunOperation")
    return None


def missing_tags(cloud: CloudFacts, call: Call) -> str:
    """Return the kind of resource that lacks a tag of the organisation's policy; empty if none does."""
    kinds = ["instance", "volume", "network-interface"]
    kinds += ["spot-instances-request"] if market_of(call.query) == "spot" else []
    for kind in kinds:
        if not all(call.tags(kind).get(key) for key in cloud.terms.required_tags):
            return kind
    return ""


def grant(cloud: CloudFacts, call: Call, zone: str, most: int) -> tuple[int, Answer]:
    """Return how many instances are granted, and the error of the tightest limit."""
    query, region = call.query, call.region
    name, market = query["InstanceType"], market_of(query)
    subnet = query.get("SubnetId") or query.get("NetworkInterface.1.SubnetId", "")
    limits = [(quota_left(cloud, name, market, region), cloud.error("VcpuLimitExceeded"))]
    no_room = ec2_error("InsufficientInstanceCapacity", f"no capacity of {name} in {zone}", 500)
    limits.append((stock_left(cloud, name, zone, market), no_room))
    if subnet in cloud.terms.free_addresses:
        full = ec2_error("InsufficientFreeAddressesInSubnet", f"{subnet} has no free addresses")
        limits.append((cloud.terms.free_addresses[subnet], full))
    bid = float(query.get("InstanceMarketOptions.SpotOptions.MaxPrice", "inf"))
    if market == "spot" and bid < cloud.spot_price(name, zone):
        limits.append((0, ec2_error("SpotMaxPriceTooLow", "Your Spot request price is too low")))
    reserved = query.get("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId")
    if reserved:
        left = next((left for cr, _, left in cloud.terms.reservations.values() if cr == reserved), 0)
        left = fake_blocks.left(cloud, query, reserved, otherwise=left)
        limits.append((left, ec2_error("ReservationCapacityExceeded", f"{reserved} is full")))
    least, why = min(limits, key=lambda limit: limit[0])
    return int(min(most, least)), why


def quota_left(cloud: CloudFacts, name: str, market: str, region: str) -> float:
    """Return how many instances the quota still allows."""
    entry = cloud.catalog.entries.get(name)
    code = "" if entry is None else entry.vcpu_quota_spot if market == "spot" else entry.vcpu_quota_on_demand
    if entry is None or code not in cloud.terms.vcpu_quotas:
        return inf
    used = 0
    for life in cloud.history():
        other = cloud.catalog.entries.get(life.instance_type)
        if life.is_running and life.region == region and other is not None:
            theirs = other.vcpu_quota_spot if life.market == "spot" else other.vcpu_quota_on_demand
            used += other.vcpus if theirs == code else 0
    return (cloud.terms.vcpu_quotas[code] - used) // entry.vcpus


def stock_left(cloud: CloudFacts, name: str, zone: str, market: str) -> float:
    """Return how many more instances of a type a zone has on a market."""
    key = (name, zone, market)
    if key not in cloud.terms.stock:
        return inf
    taken = sum(
        1 for life in cloud.history()
        if life.is_running and (life.instance_type, life.zone, life.market) == key
    )  # fmt: skip
    return cloud.terms.stock[key] - taken


def comparable(query: Mapping[str, str]) -> Mapping[str, str]:
    """Return the part of a request that EC2 compares for a repeated token."""
    return {key: value for key, value in query.items() if key not in ("Version", "Action")}


def market_of(query: Mapping[str, str]) -> str:
    """Return the market that a launch asks for."""
    if any(key.startswith("CapacityReservationSpecification") for key in query):
        return "reserved"
    return "spot" if query.get("InstanceMarketOptions.MarketType") == "spot" else "on-demand"


def for_moto(query: Mapping[str, str], granted: int) -> dict[str, str]:
    """Return a launch for moto, which reads only MinCount, and leaks all EFA cards but one."""
    # moto treats every market but on-demand as spot.
    is_block = query.get("InstanceMarketOptions.MarketType") == "capacity-block"
    gone = ("NetworkInterface.", *(("InstanceMarketOptions.",) if is_block else ()))
    changed = {key: value for key, value in query.items() if not key.startswith(gone)}
    if "NetworkInterface.1.SubnetId" in query:
        changed["SubnetId"] = query["NetworkInterface.1.SubnetId"]
    return changed | {"MinCount": str(granted), "MaxCount": str(granted)}


def _is_offered(name: str, region: str, zone: str) -> bool:
    """Return whether a region, or a zone of it, rents a type."""
    kind = "availability-zone" if zone else "region"
    rows = INSTANCE_TYPE_OFFERINGS[kind].get(region, [])
    return any(row["InstanceType"] == name and row["Location"] in (zone, region) for row in rows)
