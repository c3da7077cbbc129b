"""Hourly cost of a node besides its compute: disk, public address, requests to S3 and SQS, NAT transfer.

Prices are the region's (`side_prices`). A tag records them at launch, so later settings and price lists do
not change a node's bill. Transfer to S3 within a region is free. Transfer of jobs through a NAT gateway is
an estimate (`[cloud] nat_gb_per_hour`), as nothing knows it beforehand: `boa cost --reconcile` shows what
Cost Explorer says of it.
"""

from __future__ import annotations

from math import isfinite

from boa_daemon.backends.aws.prices.side_prices import side_prices
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.tick.facts.offers import EXTRAS, Extras

FREE_MB_PER_SECOND = 125
HOURS_OF_A_MONTH = 730.0
BEATS_PER_HOUR = 240.0
"""A unit lists its folder in S3 and sends a message every 15 s (`engines.ssm_scripts.unit_scripts_for`)."""
_MOST = 1000.0
"""Dollars per hour; a tag with a higher amount was not written by BOA."""


def extras_of(settings: AwsSettings, *, has_address: bool = True) -> Extras:
    """Return the dollars per hour of a node besides its compute, by kind.

    Requests count only for nodes with an instance profile, which run jobs through SSM: one listing, one
    upload of a log that grew, and one message per beat.

    Raises:
        MissingPrice: when the prices of the region are not known.
    """
    prices = side_prices(settings)
    paid_mb = settings.volume_mb_per_second - FREE_MB_PER_SECOND
    disk = settings.volume_gib * prices.gp3_usd_per_gib_month + paid_mb * prices.gp3_usd_per_mb_month
    found = [("disk", disk / HOURS_OF_A_MONTH)]
    if has_address:
        found.append(("address", prices.address_usd_per_hour))
    if settings.instance_profile:
        per_beat = 2.0 * prices.s3_usd_per_1000_writes / 1000.0 + prices.sqs_usd_per_million / 1e6
        found.append(("requests", BEATS_PER_HOUR * per_beat))
    if settings.nat_gb_per_hour:
        found.append(("transfer", settings.nat_gb_per_hour * prices.nat_usd_per_gb))
    return tuple((kind, round(usd, 6)) for kind, usd in found)


def with_higher_transfer(extras: Extras, other: Extras) -> Extras:
    """Return extras with the higher of both transfers; the offer of a far region knows more."""
    usd = max(dict(extras).get("transfer", 0.0), dict(other).get("transfer", 0.0))
    return (*(each for each in extras if each[0] != "transfer"), ("transfer", usd)) if usd else extras


def tag_of(extras: Extras) -> str:
    """Return extras as the value of a tag."""
    return " ".join(f"{kind}={usd:.6f}" for kind, usd in extras)


def extras_in(text: str) -> Extras | None:
    """Return the extras in the value of a tag; None if it cannot be parsed or an amount is implausible."""
    found: dict[str, float] = {}
    for part in text.split():
        kind, _, amount = part.partition("=")
        try:
            usd = float(amount)
        except ValueError:
            return None
        if kind not in EXTRAS or not (isfinite(usd) and 0.0 <= usd <= _MOST):
            return None
        found[kind] = usd
    return tuple((kind, found[kind]) for kind in EXTRAS if kind in found) if found else None
