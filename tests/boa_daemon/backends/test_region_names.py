"""`backends/region_names.py`: the region of a zone, and the name of a machine in plans."""

from __future__ import annotations

import re

import pytest

from boa_daemon.backends.region_names import REGION, is_plain_zone, name_in, region_of_zone
from policies.kinds import MachineName


@pytest.mark.parametrize(
    "region", ["us-east-1", "us-gov-west-1", "eusc-de-east-1", "ap-southeast-12", "cn-north-1"]
)
def test_regions_of_all_partitions_have_the_form(region: str) -> None:
    """A zone has not."""
    assert re.fullmatch(REGION, region)
    assert not re.fullmatch(REGION, f"{region}a")


@pytest.mark.parametrize(
    ("zone", "is_plain"),
    [
        ("us-east-1a", True),
        ("us-east-1z", True),
        ("us-east-1", False),
        ("us-east-1A", False),
        ("us-east-11", False),
        ("us-east-1é", False),
        ("us-east-1-wl1-bos-wlz-1", False),
        ("us-east-1-bos-1a", False),
        ("us-west-2a", False),
        ("a", False),
        ("", False),
    ],
)
def test_only_a_zone_with_one_letter_has_the_regions_prices(zone: str, is_plain: bool) -> None:
    """Local and Wavelength Zones have prices of their own."""
    assert is_plain_zone(zone, "us-east-1") == is_plain


def test_a_zone_is_in_the_region_whose_name_it_begins_with() -> None:
    """The longest, where one region's name begins with another's; a Local Zone is in its region, too."""
    regions = ["ap-southeast-1", "ap-southeast-12", "us-west-2"]
    for order in (regions, regions[::-1]):
        zones = ("ap-southeast-12a", "ap-southeast-1a", "us-west-2-lax-1a", "eu-west-1a", "")
        assert [region_of_zone(zone, order) for zone in zones] == [
            "ap-southeast-12",
            "ap-southeast-1",
            "us-west-2",
            "",
            "",
        ]
    assert region_of_zone("us-east-1a", ["us-east-1", "us-east-1a"]) == "us-east-1a"
    assert region_of_zone("zz-1a", ["zz-1", "z"]) == "zz-1"


def test_a_machine_has_its_region_in_its_name_only_away_from_home() -> None:
    """Plans of one region need no longer names."""
    assert name_in("p4d", "us-east-1", home="us-east-1") == "p4d"
    assert name_in("p4d", "us-west-2", home="us-east-1") == str(MachineName("p4d", "us-west-2")) != "p4d"
