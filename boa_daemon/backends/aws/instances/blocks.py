"""Capacity Blocks: list what EC2 offers, and buy one at a stated price.

A block is a number of instances of a type in a zone between two instants, paid in advance. EC2 ends its
instances half an hour before the second instant. A purchase has no idempotency token: it is requested once,
and a lost answer is reported as lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.launch_request import CLUSTER_TAG
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.errors import InputError
from boa_daemon.units import SECONDS_PER_HOUR
from policies.money_text import in_dollars

RECLAIM_SECONDS = 1800.0
"""EC2 begins to end the instances of a block this long before its end."""
CENT = 0.005
_PLATFORM = "Linux/UNIX"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOffering:
    """A block for sale: instants in seconds since the epoch, the fee in dollars."""

    id: str
    instance_type: str
    zone: str
    instances: int
    begins_at: float
    ends_at: float
    usd: float

    @property
    def usable_hours(self) -> float:
        """Hours in which jobs can run."""
        return max(self.ends_at - self.begins_at - RECLAIM_SECONDS, 0.0) / SECONDS_PER_HOUR

    def document(self) -> dict[str, Any]:
        """Return the offering as a JSON object."""
        return {
            "id": self.id,
            "instance_type": self.instance_type,
            "zone": self.zone,
            "instances": self.instances,
            "begins_at": _text(self.begins_at),
            "ends_at": _text(self.ends_at),
            "usable_hours": self.usable_hours,
            "usd": self.usd,
        }


def offerings(
    calls: AwsCalls,
    instance_type: str,
    *,
    instances: int,
    hours: int,
    begin: datetime | None = None,
    end: datetime | None = None,
) -> list[BlockOffering]:
    """Return the offered blocks, cheapest first.

    Raises:
        CallFailed: when EC2 cannot be asked.
    """
    window: dict[str, Any] = {} if begin is None else {"StartDateRange": begin}
    window |= {} if end is None else {"EndDateRange": end}
    rows = calls.pages(
        "ec2:DescribeCapacityBlockOfferings",
        "CapacityBlockOfferings",
        InstanceType=instance_type,
        InstanceCount=instances,
        CapacityDurationHours=hours,
        **window,
    )
    found = [_offering(row) for row in rows if row.get("CurrencyCode", "USD") == "USD"]
    return sorted(found, key=lambda one: (one.usd, one.begins_at, one.id))


def buy(calls: AwsCalls, settings: AwsSettings, chosen: BlockOffering, *, usd: float) -> str:
    """Buy an offering if its price is the stated one, to the cent; return the reservation's id.

    Raises:
        InputError: when the offering has another price.
        CallFailed: when EC2 refuses, or its answer was lost: check the reservations before you try again.
    """
    if abs(chosen.usd - usd) > CENT:
        raise InputError(
            f"{chosen.id} costs {in_dollars(chosen.usd)} and not {in_dollars(usd)}: nothing was bought",
            hint=f"--buy {chosen.id} --usd {chosen.usd:.2f} buys it",
        )
    answer = calls.call(
        "ec2:PurchaseCapacityBlock",
        CapacityBlockOfferingId=chosen.id,
        InstancePlatform=_PLATFORM,
        TagSpecifications=[
            {
                "ResourceType": "capacity-reservation",
                "Tags": [
                    {"Key": key, "Value": value}
                    for key, value in {**settings.tags, CLUSTER_TAG: settings.cluster}.items()
                ],
            }
        ],
    )
    found = answer.get("CapacityReservation") or {}
    name = str(found.get("CapacityReservationId", ""))
    if not name:
        raise CallFailed(
            "ec2:PurchaseCapacityBlock", "NoReservation", "the answer names no reservation", http_status=0
        )
    return name


def _offering(row: dict[str, Any]) -> BlockOffering:
    """Return an offering from EC2's description."""
    return BlockOffering(
        id=row["CapacityBlockOfferingId"],
        instance_type=row["InstanceType"],
        zone=row.get("AvailabilityZone", ""),
        instances=int(row.get("InstanceCount", 1)),
        begins_at=row["StartDate"].timestamp(),
        ends_at=row["EndDate"].timestamp(),
        usd=float(row["UpfrontFee"]),
    )


def _text(instant: float) -> str:
    """Return an instant as text."""
    return datetime.fromtimestamp(instant, UTC).isoformat(timespec="minutes")
