"""Capacity Blocks of the fake cloud: offerings, purchases, and the reservations of sold blocks."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from boa_daemon.backends.aws.instances.blocks import RECLAIM_SECONDS
from boa_daemon.testing.fake_answers import Answer, Call, ec2_error, ec2_rows, iso
from boa_daemon.testing.fake_terms import CloudFacts


def offerings(cloud: CloudFacts, call: Call) -> Answer:
    """Return the unsold blocks that match a request."""
    kind, count = call.query.get("InstanceType", ""), int(call.query.get("InstanceCount", "1"))
    hours = float(call.query["CapacityDurationHours"])
    found = [
        {
            "capacityBlockOfferingId": name,
            "instanceType": one.instance_type,
            "availabilityZone": one.zone,
            "instanceCount": one.instances,
            "startDate": iso(one.begins_at),
            "endDate": iso(one.ends_at),
            "capacityBlockDurationHours": round((one.ends_at - one.begins_at) / 3600.0),
            "upfrontFee": f"{one.usd:.2f}",
            "currencyCode": "USD",
            "tenancy": "default",
        }
        for name, one in cloud.terms.blocks.items()
        if not one.bought
        and (one.instance_type, one.instances) == (kind, count)
        and abs(one.ends_at - one.begins_at - 3600.0 * hours) <= 3600.0
    ]
    return ec2_rows("DescribeCapacityBlockOfferings", "capacityBlockOfferingSet", found)


def purchase(cloud: CloudFacts, call: Call) -> Answer:
    """Sell a block once."""
    name = call.query.get("CapacityBlockOfferingId", "")
    block = cloud.terms.blocks.get(name)
    if block is None or block.bought:
        return ec2_error("InvalidCapacityBlockOfferingId.NotFound", f"no offering {name}")
    block.bought += 1
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<PurchaseCapacityBlockResponse><capacityReservation>'
        f"<capacityReservationId>cr-{name}</capacityReservationId><state>payment-pending</state>"
        "</capacityReservation></PurchaseCapacityBlockResponse>"
    )
    return Answer(200, body.encode(), {"content-type": "text/xml"})


def rows(cloud: CloudFacts) -> list[dict[str, object]]:
    """Return the sold blocks as reservations: scheduled, active, or expired."""
    now, found = cloud.clock(), []
    for name, one in cloud.terms.blocks.items():
        if not one.bought:
            continue
        state = "scheduled" if now < one.begins_at else "active" if now < one.ends_at else "expired"
        used = used_of(cloud, f"cr-{name}")
        found.append(
            {
                "capacityReservationId": f"cr-{name}",
                "instanceType": one.instance_type,
                "availabilityZone": one.zone,
                "availableInstanceCount": one.instances - used,
                "totalInstanceCount": one.instances,
                "state": state,
                "reservationType": "capacity-block",
                "startDate": iso(one.begins_at),
                "endDate": iso(one.ends_at),
            }
        )
    return found


def used_of(cloud: CloudFacts, reservation: str) -> int:
    """Return how many of our nodes run in a reservation."""
    return sum(
        life.is_running and life.tags.get("boa:reservation") == reservation for life in cloud.history()
    )


def capacity_rows(cloud: CloudFacts) -> list[dict[str, object]]:
    """Return the capacity reservations of the terms."""
    found = []
    for name, one in cloud.terms.capacity.items():
        is_over = one.ends_at is not None and cloud.clock() >= one.ends_at
        row: dict[str, object] = {
            "capacityReservationId": name,
            "instanceType": one.instance_type,
            "availabilityZone": one.zone,
            "availableInstanceCount": max(one.instances - one.used_by_others - used_of(cloud, name), 0),
            "totalInstanceCount": one.instances,
            "state": "cancelled" if one.is_cancelled else "expired" if is_over else "active",
            "reservationType": "default",
        }
        found.append(row | ({} if one.ends_at is None else {"endDate": iso(one.ends_at)}))
    return found


def over(cloud: CloudFacts, now: float) -> list[str]:
    """Return the instances of blocks that end within half an hour, which EC2 now takes back."""
    ends = {f"cr-{name}": one.ends_at for name, one in cloud.terms.blocks.items() if one.bought}
    return [
        life.id
        for life in cloud.history()
        if life.is_running and now >= ends.get(life.tags.get("boa:reservation", ""), inf) - RECLAIM_SECONDS
    ]


def left(cloud: CloudFacts, query: Mapping[str, str], reservation: str, *, otherwise: int) -> int:
    """Return how many instances a block has for a launch: 0 outside its time or on another market."""
    own = next((one for one in capacity_rows(cloud) if one["capacityReservationId"] == reservation), None)
    if own is not None:
        return int(str(own["availableInstanceCount"])) if own["state"] == "active" else 0
    row = next((one for one in rows(cloud) if one["capacityReservationId"] == reservation), None)
    if row is None:
        return otherwise
    is_asked_for = query.get("InstanceMarketOptions.MarketType") == "capacity-block"
    return int(str(row["availableInstanceCount"])) if is_asked_for and row["state"] == "active" else 0
