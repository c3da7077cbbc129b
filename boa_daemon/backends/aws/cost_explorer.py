"""Compare the daily costs of our resources in Cost Explorer with the ledger.

Cost Explorer lags: a day is complete about a day after its end, so today and yesterday (UTC) are never final.
It knows our tag only from the day on which the tag was activated as a cost allocation tag; before, it
returns zeros, which mean nothing. A day without an answer is unknown, never zero.

The query selects resources with a tag of ours (the cluster's, the stack's, the images'), without credits,
refunds and taxes, grouped by service and type of usage. Compute must agree to the dollar. Disks, public
addresses, requests, transfer, the gateway and images are estimates in the ledger, and only Cost Explorer
knows the bucket: both numbers are shown, and a difference is never drift. Each request costs 0.01 USD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from boa_daemon.backends.aws.client.answers import reading
from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.instances.images import IMAGE_TAG
from boa_daemon.backends.aws.instances.launch_request import CLUSTER_TAG
from boa_daemon.errors import BoaError
from boa_daemon.tick.money.ledger import COMPUTE
from policies.money_text import in_dollars

_EC2, _OTHER = "Amazon Elastic Compute Cloud - Compute", "EC2 - Other"
SERVICES = (
    _EC2,
    _OTHER,
    "Amazon Virtual Private Cloud",
    "Amazon Simple Storage Service",
    "Amazon Simple Queue Service",
)
"""Cost Explorer's names of the services that we use."""
_USAGES = (
    ("NatGateway-Hours", "gateway"),
    ("NatGateway-Bytes", "transfer"),
    ("DataTransfer", "transfer"),
    ("AWS-In-Bytes", "transfer"),
    ("AWS-Out-Bytes", "transfer"),
    ("PublicIPv4", "address"),
    ("EBS:Snapshot", "images"),
    ("EBS:", "disk"),
    ("TimedStorage", "storage"),
    ("Requests", "requests"),
)
"""A part of a usage type's name, and its kind of cost; the first match counts."""
BESIDE = ("gateway", "images", "storage", "other")
"""Kinds of cost that belong to no node: those of the stack, the images and the bucket. The last two are
in no ledger."""
_TAGS = (CLUSTER_TAG, "boa:stack", IMAGE_TAG)
"""Tags of our resources on the bill: nodes and their parts, what `boa up` made, and images."""
_NOT_COUNTED = ["Credit", "Refund", "Tax"]
TOLERANCE_FRACTION, TOLERANCE_USD = 0.02, 0.05
"""A difference is drift if it is above both this fraction of the ledger's day and this many dollars."""


class NoCostData(BoaError):
    """Cost Explorer has no data to compare the ledger with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCost:
    """Dollars of a day (UTC) in the ledger and in Cost Explorer; None if Cost Explorer has no data."""

    day: date
    ledger_usd: float
    explorer_usd: float | None
    is_final: bool
    tolerance_usd: float

    @property
    def difference_usd(self) -> float | None:
        """Cost Explorer's dollars less the ledger's; None if Cost Explorer has no data."""
        return None if self.explorer_usd is None else self.explorer_usd - self.ledger_usd

    @property
    def is_drift(self) -> bool:
        """Whether a final day differs by more than the tolerance."""
        found = self.difference_usd
        return self.is_final and found is not None and abs(found) > self.tolerance_usd

    @property
    def note(self) -> str:
        """The day's state: `not final`, `no data`, `drift` or empty."""
        if not self.is_final:
            return "not final"
        if self.explorer_usd is None:
            return "no data"
        return "drift" if self.is_drift else ""


def explorer_days(calls: AwsCalls, cluster: str, first: date, last: date) -> dict[date, dict[str, float]]:
    """Return dollars per day and kind, including the last day; days without data are absent.

    Raises:
        CallFailed: when Cost Explorer cannot be reached, or refuses.
        NoCostData: when Cost Explorer answers in another currency.
    """
    found: dict[date, dict[str, float]] = {}
    arguments: dict[str, Any] = {
        "TimePeriod": {"Start": first.isoformat(), "End": (last + timedelta(days=1)).isoformat()},
        "Granularity": "DAILY",
        "Metrics": ["UnblendedCost"],
        "GroupBy": [{"Type": "DIMENSION", "Key": key} for key in ("SERVICE", "USAGE_TYPE")],
        "Filter": {
            "And": [
                {"Or": [{"Tags": {"Key": key, "Values": [cluster]}} for key in _TAGS]},
                {"Dimensions": {"Key": "SERVICE", "Values": list(SERVICES)}},
                {"Not": {"Dimensions": {"Key": "RECORD_TYPE", "Values": _NOT_COUNTED}}},
            ]
        },
    }
    while True:
        answer = calls.call("ce:GetCostAndUsage", **arguments)
        with reading("ce:GetCostAndUsage"):
            for row in answer["ResultsByTime"]:
                _add_day(found, row)
        if not answer.get("NextPageToken"):
            return found
        arguments["NextPageToken"] = answer["NextPageToken"]


def _add_day(found: dict[date, dict[str, float]], row: Mapping[str, Any]) -> None:
    """Add one day of an answer to the days found so far."""
    day = found.setdefault(date.fromisoformat(row["TimePeriod"]["Start"]), {COMPUTE: 0.0})
    for group in row.get("Groups", ()):
        kind, cost = kind_of(*group["Keys"]), group["Metrics"]["UnblendedCost"]
        if cost["Unit"] != "USD":
            raise NoCostData(f"Cost Explorer answers in {cost['Unit']}; the ledger counts USD")
        day[kind] = day.get(kind, 0.0) + float(cost["Amount"])


def kind_of(service: str, usage: str) -> str:
    """Return the kind of cost of a usage type; what EC2 bills itself is compute, except for transfer."""
    kind = next((kind for part, kind in _USAGES if part in usage), "other")
    return COMPUTE if service == _EC2 and kind != "transfer" else kind


def compare_days(
    ledger: Mapping[date, float],
    explorer: Mapping[date, float],
    *,
    first: date,
    now: float,
    fraction: float = TOLERANCE_FRACTION,
) -> list[DayCost]:
    """Return every day from the first to today, with the costs of the ledger and of Cost Explorer."""
    today = datetime.fromtimestamp(now, UTC).date()
    return [
        DayCost(
            day=day,
            ledger_usd=ledger.get(day, 0.0),
            explorer_usd=explorer.get(day),
            is_final=day < today - timedelta(days=1),
            tolerance_usd=max(fraction * ledger.get(day, 0.0), TOLERANCE_USD),
        )
        for day in (first + timedelta(days=number) for number in range((today - first).days + 1))
    ]


def check_known(days: Sequence[DayCost], cluster: str) -> None:
    """Refuse a comparison with zeros on every day that cost something: the tag is not activated then.

    Raises:
        NoCostData: when no final day that cost something has anything in Cost Explorer.
    """
    spent = [day for day in days if day.is_final and day.ledger_usd > day.tolerance_usd]
    if spent and not any(day.explorer_usd for day in spent):
        total = sum(day.ledger_usd for day in spent)
        raise NoCostData(
            f"Cost Explorer knows nothing under the tag {CLUSTER_TAG}={cluster}, and the ledger has "
            f"{in_dollars(total)} on {len(spent)} days that are final. Activate {CLUSTER_TAG} as a cost "
            "allocation tag in the billing console (it counts from then on, within 24 hours)"
        )
