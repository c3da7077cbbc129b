"""The form of region names, and names of machines in several: `g5.xlarge` at home, `g5.xlarge~sa-east-1`."""

from __future__ import annotations

from collections.abc import Collection

REGION = r"[a-z]{2,4}(?:-[a-z]+)+-\d{1,2}"
"""The names of regions in all partitions, as a regular expression: `us-gov-west-1`, `eusc-de-east-1`."""
_IN = "~"


def name_in(instance_type: str, region: str, *, home: str) -> str:
    """Return the name in plans of a machine in a region."""
    return instance_type if region == home else f"{instance_type}{_IN}{region}"


def name_in_key(key: str, region: str, *, home: str) -> str:
    """Return the name in plans of an offer, `type/zone/market`, in a region."""
    kind, slash, rest = key.partition("/")
    return f"{name_in(kind, region, home=home)}{slash}{rest}"


def plain_name(name: str) -> str:
    """Return the name of a machine that the cloud knows."""
    return name.partition(_IN)[0]


def region_in(name: str) -> str:
    """Return the region in the name of a machine; empty for the home region."""
    return name.partition(_IN)[2].partition("@")[0]


def region_of_zone(zone: str, regions: Collection[str]) -> str:
    """Return the region of a zone; empty if it is in none of them."""
    return max((each for each in regions if zone.startswith(each)), key=len, default="")
