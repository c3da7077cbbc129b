"""Names of machines in several regions: `g5.xlarge` in the home region, `g5.xlarge~sa-east-1` elsewhere."""

from __future__ import annotations

from collections.abc import Collection

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
