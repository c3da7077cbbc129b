"""What a node costs beside its compute: its disk, its public address, its requests to S3 and SQS.

Prices are those of us-east-1, estimates elsewhere; the node is born with them in a tag, so its bill never
changes with settings or price lists of later days. Transfer within a region to S3 is free. What jobs fetch
from elsewhere nobody knows beforehand: `boa cost --reconcile` shows what Cost Explorer says of it.
"""

from __future__ import annotations

from math import isfinite

from boa_daemon.backends.settings import AwsSettings
from boa_daemon.tick.offers import EXTRAS, Extras

ADDRESS_USD_PER_HOUR, GP3_USD_PER_GIB_MONTH = 0.005, 0.08
FREE_MB_PER_SECOND, GP3_USD_PER_MB_MONTH = 125, 0.04
HOURS_OF_A_MONTH = 730.0
BEATS_PER_HOUR = 240.0
"""A unit lists its folder in S3 and sends a message every 15 s (`engines.ssm_scripts.errands_for`)."""
LIST_USD, PUT_USD, MESSAGE_USD = 0.005 / 1000, 0.005 / 1000, 0.4 / 1e6
_MOST = 1000.0
"""Dollars per hour; a tag that says more was written by somebody else."""


def extras_of(settings: AwsSettings, *, has_address: bool = True) -> Extras:
    """Return the dollars per hour of a node beside its compute, by kind.

    One listing and one upload of a log that grew, and one message, for each beat: only of nodes that run jobs
    through SSM, which those without an instance profile do not.
    """
    paid_mb = settings.volume_mb_per_second - FREE_MB_PER_SECOND
    disk = settings.volume_gib * GP3_USD_PER_GIB_MONTH + paid_mb * GP3_USD_PER_MB_MONTH
    found = [("disk", disk / HOURS_OF_A_MONTH)]
    if has_address:
        found.append(("address", ADDRESS_USD_PER_HOUR))
    if settings.instance_profile:
        found.append(("requests", BEATS_PER_HOUR * (LIST_USD + PUT_USD + MESSAGE_USD)))
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
