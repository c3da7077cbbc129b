"""Prices besides instances, by region: disks, snapshots, addresses, NAT gateways, buckets, queues.

The catalogue `data/side_prices.csv` has a day and a source per region; `[cloud] side_prices` overrides it.
A region in neither has no prices, and whatever needs them is refused; `boa prices --beside` asks the Pricing
API. Prices of one region are never used for another.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import resources
from typing import Any

from pydantic import ValidationError

from boa_daemon.backends.aws.client.answers import reading
from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.settings import AwsSettings, SidePrices
from boa_daemon.errors import InputError, MissingPrice

_Filter = Mapping[str, str]
QUESTIONS: Mapping[str, tuple[str, _Filter, str, float]] = {
    "gp3_usd_per_gib_month": (
        "AmazonEC2", {"productFamily": "Storage", "volumeApiName": "gp3"}, "GB-Mo", 1.0
    ),
    "gp3_usd_per_mb_month": (
        "AmazonEC2", {"productFamily": "Provisioned Throughput", "volumeApiName": "gp3"}, "GiBps-mo", 1024.0
    ),
    "snapshot_usd_per_gb_month": (
        "AmazonEC2", {"productFamily": "Storage Snapshot", "usagetype": "*EBS:SnapshotUsage"}, "GB-Mo", 1.0
    ),
    "address_usd_per_hour": (
        "AmazonVPC", {"usagetype": "*PublicIPv4:InUseAddress"}, "Hrs", 1.0
    ),
    "nat_usd_per_hour": (
        "AmazonEC2", {"productFamily": "NAT Gateway", "usagetype": "*NatGateway-Hours"}, "Hrs", 1.0
    ),
    "nat_usd_per_gb": (
        "AmazonEC2", {"productFamily": "NAT Gateway", "usagetype": "*NatGateway-Bytes"}, "GB", 1.0
    ),
    "s3_usd_per_gb_month": (
        "AmazonS3", {"productFamily": "Storage", "usagetype": "*TimedStorage-ByteHrs"}, "GB-Mo", 1.0
    ),
    "s3_usd_per_1000_writes": (
        "AmazonS3", {"productFamily": "API Request", "usagetype": "*Requests-Tier1"}, "Requests", 1e-3
    ),
    "sqs_usd_per_million": (
        "AWSQueueService", {"productFamily": "API Request", "queueType": "Standard"}, "Requests", 1e-6
    ),
}  # fmt: skip
"""Of each price: its service, the filters that select it (`*` at the front: a region's prefix may precede
the rest), the unit that AWS quotes it in, and the divisor from AWS's unit to ours."""


MOST_TRANSFER_USD_PER_GB = 0.15
"""Above every list price between two regions: what is assumed where a region's own price is not known."""
_TRANSFER = {"transferType": "InterRegion Outbound"}


def side_prices(settings: AwsSettings) -> SidePrices:
    """Return the prices of the region of the settings.

    Raises:
        MissingPrice: when neither the settings nor the catalogue have them.
    """
    found = settings.side_prices or _shipped().get(settings.region)
    if found is None:
        raise MissingPrice(
            f"what disks, addresses and requests cost in {settings.region} is not known",
            hint=f"`boa prices --beside --region {settings.region}` asks AWS, and writes it down",
        )
    return found


def ask_side_prices(calls: AwsCalls, region: str, *, as_of: str) -> SidePrices:
    """Ask the Pricing API for every price of a region: of several tiers, the first that is not free.

    Raises:
        CallFailed: when the Pricing API cannot be reached.
        InputError: when it has no price or several for one name; prices are returned for all names or none.
    """
    values: dict[str, float] = {}
    for name, (service, wanted, unit, parts) in QUESTIONS.items():
        with reading("pricing:GetProducts"):
            prices = sorted(set(_prices(calls, service, region, wanted, unit)))
        if len(prices) != 1:
            said = "no price" if not prices else f"{len(prices)} prices ({prices[0]:g} to {prices[-1]:g})"
            raise InputError(
                f"the Pricing API has {said} for {name} in {region}",
                hint="Write all of [cloud] side_prices by hand, from AWS's price pages; "
                f"it has {', '.join(QUESTIONS)}",
            )
        values[name] = float(f"{prices[0] / parts:.10g}")
    transfer = _transfer_price(calls, region)
    if transfer is not None:
        values["transfer_usd_per_gb"] = transfer
    try:
        return SidePrices(**values, as_of=as_of, source="the AWS Pricing API")
    except ValidationError as error:
        raise InputError(f"the Pricing API has prices that cannot be right: {error}") from error


def transfer_usd_per_gb(settings: AwsSettings) -> float:
    """Return the price of a GB from the region of the settings to another one; if unknown, the most."""
    found = settings.side_prices or _shipped().get(settings.region)
    return (found and found.transfer_usd_per_gb) or MOST_TRANSFER_USD_PER_GB


def _transfer_price(calls: AwsCalls, region: str) -> float | None:
    """Return the highest price of a GB from a region to another; None if the Pricing API does not say."""
    wanted = {**_TRANSFER, "fromRegionCode": region}
    with suppress(CallFailed):
        prices = _prices(calls, "AWSDataTransfer", "", wanted, "GB")
        return max((usd for usd in prices if usd <= 10.0), default=None)
    return None


def _prices(calls: AwsCalls, service: str, region: str, wanted: _Filter, unit: str) -> Iterator[float]:
    """Yield the price of the first tier that is not free, for each matching product."""
    terms = {key: value for key, value in wanted.items() if value[0] != "*"}
    if region:
        terms["regionCode"] = region
    ends = {key: value[1:] for key, value in wanted.items() if value[0] == "*"}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in terms.items()]
    for item in calls.pages("pricing:GetProducts", "PriceList", ServiceCode=service, Filters=filters):
        entry = _entry(item)
        facts = entry.get("product", {}).get("attributes", {})
        if not all(_ends(str(facts.get(key, "")), end) for key, end in ends.items()):
            continue
        tiers = [
            (float(row.get("beginRange", 0) or 0), float(row["pricePerUnit"].get("USD", 0)))
            for term in entry.get("terms", {}).get("OnDemand", {}).values()
            for row in term["priceDimensions"].values()
            if row.get("unit") == unit
        ]
        paid = [usd for _, usd in sorted(tiers) if usd > 0.0]
        if paid:
            yield paid[0]


def _entry(item: object) -> Any:
    """Return an entry of the price list, which is a string of JSON."""
    return json.loads(item) if isinstance(item, str) else item


def _ends(usage: str, end: str) -> bool:
    """Return whether a usage type is `end`, perhaps after a region's prefix: `EUW1-NatGateway-Hours`."""
    return usage == end or usage.endswith(f"-{end}")


def catalogue_of(region: str) -> dict[str, float]:
    """Return the catalogue's prices of a region by name; empty for a region that it lacks."""
    found = _shipped().get(region)
    return {} if found is None else {name: float(getattr(found, name)) for name in QUESTIONS}


def shipped_price(region: str, name: str) -> float | None:
    """Return a price of the catalogue by its name in `SidePrices`; None if the region has none there."""
    found = _shipped().get(region)
    price = None if found is None else getattr(found, name, None)
    if price is None and name == "transfer_usd_per_gb":
        return MOST_TRANSFER_USD_PER_GB
    return price if isinstance(price, float) else None


@cache
def _shipped() -> Mapping[str, SidePrices]:
    """Return the catalogue of the package, by region."""
    text = (resources.files("boa_daemon") / "data" / "side_prices.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {row.pop("region"): SidePrices.model_validate(row, strict=False) for row in rows}
