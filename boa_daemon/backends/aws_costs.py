"""What Cost Explorer says that our instances cost, a day at a time, and how the ledger compares.

Cost Explorer lags: a day is complete about a day after it has ended, so today and yesterday (UTC) are never
final. It knows our tag only once that has been activated as a cost allocation tag, and only from then on;
before that it answers zeros, which say nothing. A day without an answer is unknown, never zero.

Asked for is what bears the cluster's tag, without credits, refunds and taxes, by service. Compute is compared
to the dollar. Disks (a service with NAT gateways and transfer between zones), public addresses and requests
are estimates in the ledger: they stand beside what Cost Explorer says, and never count as drift. Each request
costs 0.01 USD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from boa_daemon.backends.aws_calls import AwsCalls
from boa_daemon.backends.aws_request import CLUSTER_TAG
from boa_daemon.errors import BoaError
from boa_daemon.tick.ledger import COMPUTE

SERVICES: Mapping[str, str] = {
    "Amazon Elastic Compute Cloud - Compute": COMPUTE,
    "EC2 - Other": "disk",
    "Amazon Virtual Private Cloud": "address",
    "Amazon Simple Storage Service": "requests",
    "Amazon Simple Queue Service": "requests",
}
"""What Cost Explorer calls a service, and the kind of the ledger that it is compared with."""
_NOT_COUNTED = ["Credit", "Refund", "Tax"]
TOLERANCE_FRACTION, TOLERANCE_USD = 0.02, 0.05
"""A difference is drift above this part of the ledger's day, and above so many dollars."""


class NoCostData(BoaError):
    """Cost Explorer has nothing that the ledger could be compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCost:
    """A day (UTC) in the ledger and in Cost Explorer, dollars; None where Cost Explorer does not know."""

    day: date
    ledger_usd: float
    explorer_usd: float | None
    is_final: bool
    tolerance_usd: float

    @property
    def difference_usd(self) -> float | None:
        """What Cost Explorer has more than the ledger."""
        return None if self.explorer_usd is None else self.explorer_usd - self.ledger_usd

    @property
    def is_drift(self) -> bool:
        """Whether the two differ by more than the tolerance on a day that is final."""
        found = self.difference_usd
        return self.is_final and found is not None and abs(found) > self.tolerance_usd

    @property
    def note(self) -> str:
        """What to know of the day."""
        if not self.is_final:
            return "not final"
        if self.explorer_usd is None:
            return "no data"
        return "drift" if self.is_drift else ""


def explorer_days(calls: AwsCalls, cluster: str, first: date, last: date) -> dict[date, dict[str, float]]:
    """Return dollars per day and kind, the last day included; days that Cost Explorer lacks are absent.

    Raises:
        CallFailed: when it cannot be asked, or denies the answer.
        NoCostData: when it answers in another currency.
    """
    found: dict[date, dict[str, float]] = {}
    arguments: dict[str, Any] = {
        "TimePeriod": {"Start": first.isoformat(), "End": (last + timedelta(days=1)).isoformat()},
        "Granularity": "DAILY",
        "Metrics": ["UnblendedCost"],
        "GroupBy": [{"Type": "DIMENSION", "Key": "SERVICE"}],
        "Filter": {
            "And": [
                {"Tags": {"Key": CLUSTER_TAG, "Values": [cluster]}},
                {"Dimensions": {"Key": "SERVICE", "Values": list(SERVICES)}},
                {"Not": {"Dimensions": {"Key": "RECORD_TYPE", "Values": _NOT_COUNTED}}},
            ]
        },
    }
    while True:
        answer = calls.call("ce:GetCostAndUsage", **arguments)
        for row in answer.get("ResultsByTime", ()):
            day = found.setdefault(date.fromisoformat(row["TimePeriod"]["Start"]), {COMPUTE: 0.0})
            for group in row.get("Groups", ()):
                kind, cost = SERVICES.get(group["Keys"][0]), group["Metrics"]["UnblendedCost"]
                if cost["Unit"] != "USD":
                    raise NoCostData(f"Cost Explorer answers in {cost['Unit']}; the ledger counts USD")
                if kind is not None:
                    day[kind] = day.get(kind, 0.0) + float(cost["Amount"])
        if not answer.get("NextPageToken"):
            return found
        arguments["NextPageToken"] = answer["NextPageToken"]


def compared(
    ledger: Mapping[date, float],
    explorer: Mapping[date, float],
    *,
    first: date,
    now: float,
    fraction: float = TOLERANCE_FRACTION,
) -> list[DayCost]:
    """Return every day from the first to today, the ledger beside Cost Explorer."""
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
    """Refuse to compare with nothing: zeros on all days that cost something are a tag that is not known.

    Raises:
        NoCostData: when no final day that cost something has anything in Cost Explorer.
    """
    spent = [day for day in days if day.is_final and day.ledger_usd > day.tolerance_usd]
    if spent and not any(day.explorer_usd for day in spent):
        total = sum(day.ledger_usd for day in spent)
        raise NoCostData(
            f"Cost Explorer knows nothing under the tag {CLUSTER_TAG}={cluster}, and the ledger has "
            f"{total:.2f} USD on {len(spent)} days that are final. Activate {CLUSTER_TAG} as a cost "
            "allocation tag in the billing console (it counts from then on, within 24 hours)"
        )
