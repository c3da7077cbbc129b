"""What a node costs beside its compute: its disk, its public address, its requests to S3 and SQS.

Prices are those of the region (`side_prices`); the node is born with them in a tag, so its bill never
changes with settings or price lists of later days. Transfer within a region to S3 is free. What jobs fetch
through a NAT gateway is estimated by `[cloud] nat_gb_per_hour`, as nobody else knows it beforehand: `boa cost
--reconcile` shows what Cost Explorer says of it.
"""

from __future__ import annotations

from math import isfinite

from boa_daemon.backends.aws.side_prices import side_prices
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.tick.offers import EXTRAS, Extras

FREE_MB_PER_SECOND = 125
HOURS_OF_A_MONTH = 730.0
BEATS_PER_HOUR = 240.0
"""A unit lists its folder in S3 and sends a message every 15 s (`engines.ssm_scripts.errands_for`)."""
_MOST = 1000.0
"""Dollars per hour; a tag that says more was written by somebody else."""


def extras_of(settings: AwsSettings, *, has_address: bool = True) -> Extras:
    """Return the dollars per hour of a node beside its compute, by kind.

    One listing and one upload of a log that grew, and one message, for each beat: only of nodes that run jobs
    through SSM, which those without an instance profile do not.

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


def tag_of(extras: Extras) -> str:
    """Return extras as the value of a tag."""
    return " ".join(f"{kind}={usd:.6f}" for kind, usd in extras)


def extras_in(text: str) -> Extras | None:
    """Return what such a tag says; None where it says nothing that can be believed."""
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
