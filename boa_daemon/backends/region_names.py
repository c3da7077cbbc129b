"""The form of region names, and which region a zone and a machine's name in plans are in."""

from __future__ import annotations

from collections.abc import Collection

from policies.kinds import MachineName

REGION = r"[a-z]{2,4}(?:-[a-z]+)+-\d{1,2}"
"""The names of regions in all partitions, as a regular expression: `us-gov-west-1`, `eusc-de-east-1`."""


def name_in(instance_type: str, region: str, *, home: str) -> str:
    """Return the name in plans of a machine in a region."""
    return instance_type if region == home else str(MachineName(instance_type, region))


def region_of_zone(zone: str, regions: Collection[str]) -> str:
    """Return the region of a zone; empty if it is in none of them."""
    return max((each for each in regions if zone.startswith(each)), key=len, default="")


def is_plain_zone(zone: str, region: str) -> bool:
    """Return whether a zone has the region's prices: `us-east-1a`, not a Local or Wavelength Zone.

    Those are named `us-west-2-lax-1a` and `us-east-1-wl1-bos-wlz-1`, and have prices of their own.
    """
    letter = zone.removeprefix(region)
    return zone.startswith(region) and len(letter) == 1 and letter.isascii() and letter.islower()
