"""`aws/prices/list_prices.py`: list prices come from the AWS price API or a saved answer of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_rigs import RigMaker

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.prices.list_prices import ask_price
from boa_daemon.backends.aws.prices.offer_file import read_offers
from boa_daemon.errors import InputError
from boa_daemon.testing.fake_answers import price_entry
from boa_daemon.testing.fake_terms import Terms


def entry(name: str, usd: float, *, day: str = "2026-11-20T00:00:00Z", **attributes: str) -> str:
    """Return an entry of a price list as the API sends it."""
    found: dict[str, Any] = json.loads(price_entry(name, usd))
    found["product"]["attributes"] |= {"regionCode": "us-east-1", "operatingSystem": "Linux"} | attributes
    return json.dumps(found | ({"publicationDate": day} if day else {}))


def read_price_list(path: Path, region: str) -> tuple[dict[str, float], str]:
    """Return a region's prices by type, and the oldest day, as `boa prices refresh --from` reads them."""
    found = read_offers(path, as_of="", region=region).prices
    return {one.instance_type: one.usd_per_hour for one in found}, min(one.as_of for one in found)


def saved(folder: Path, *entries: str) -> Path:
    """Write a saved price list and return its path."""
    path = folder / "list.json"
    path.write_text(json.dumps({"PriceList": list(entries)}))
    return path


def test_a_price_question_is_counted_as_a_call(make_rig: RigMaker) -> None:
    """A type that is not in the price list gives the error `NoPrice`."""
    rig = make_rig(Terms(list_prices={"g5.xlarge": 0.5}))

    assert ask_price(rig.cloud.calls, "us-east-1", "g5.xlarge") == 0.5
    assert rig.cloud.calls.counts["pricing:GetProducts"] == 1
    with pytest.raises(CallFailed) as failed:
        ask_price(rig.cloud.calls, "us-east-1", "g5.nothing")
    assert failed.value.code == "NoPrice"


def test_a_saved_list_gives_prices_of_the_region_and_the_oldest_day(tmp_path: Path) -> None:
    """Other regions, Windows and dedicated hosts are left out."""
    path = saved(
        tmp_path,
        entry("g5.xlarge", 0.5),
        entry("p4d.24xlarge", 20.0, day="2026-11-01T00:00:00Z"),
        entry("g6.xlarge", 0.6, regionCode="eu-west-1"),
        entry("g5.2xlarge", 9.0, operatingSystem="Windows"),
        entry("g5.4xlarge", 9.0, tenancy="Dedicated"),
    )

    assert read_price_list(path, "us-east-1") == ({"g5.xlarge": 0.5, "p4d.24xlarge": 20.0}, "2026-11-01")


def test_a_malformed_price_list_is_refused(tmp_path: Path) -> None:
    """The error names the fault: no list, a strange entry, another region or no date."""
    (tmp_path / "x.json").write_text('{"Prices": []}')
    with pytest.raises(InputError, match="no price list of AWS"):
        read_price_list(tmp_path / "x.json", "us-east-1")
    with pytest.raises(InputError, match="entry 0 of PriceList"):
        read_price_list(saved(tmp_path, "[]"), "us-east-1")
    with pytest.raises(InputError, match="no on-demand price in us-west-2"):
        read_price_list(saved(tmp_path, entry("g5.xlarge", 0.5)), "us-west-2")
    with pytest.raises(InputError, match="no publication date"):
        read_price_list(saved(tmp_path, entry("g5.xlarge", 0.5, day="")), "us-east-1")


def terms_of(usd: float, since: str, currency: str = "USD") -> dict[str, Any]:
    """Return a term of an entry, in effect since an instant."""
    dimension = {"unit": "Hrs", "pricePerUnit": {currency: str(usd)}}
    return {"effectiveDate": since, "priceDimensions": {"R": dimension}}


OTHERS = {
    "a Capacity Block": entry("p5.48xlarge", 0.0001, marketoption="CapacityBlock"),
    "a reservation's idle capacity": entry("p5.48xlarge", 9.0, capacitystatus="UnusedCapacityReservation"),
    "a reservation's used capacity": entry("p5.48xlarge", 9.0, capacitystatus="AllocatedCapacityReservation"),
    "a dedicated instance": entry("p5.48xlarge", 9.0, tenancy="Dedicated"),
    "a dedicated host": entry("p5.48xlarge", 9.0, tenancy="Host"),
    "Windows": entry("p5.48xlarge", 9.0, operatingSystem="Windows"),
    "RHEL": entry("p5.48xlarge", 9.0, operatingSystem="RHEL"),
    "a system with SQL": entry("p5.48xlarge", 9.0, preInstalledSw="SQL Std"),
    "a licence of one's own": entry("p5.48xlarge", 9.0, licenseModel="Bring your own license"),
    "a Local Zone": entry("p5.48xlarge", 9.0, locationType="AWS Local Zone"),
    "another region": entry("p5.48xlarge", 9.0, regionCode="sa-east-1"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_price_never_wins(tmp_path: Path, other: str) -> None:
    """Entries of other markets, terms, systems, tenancies and places are left out, however cheap."""
    path = saved(tmp_path, OTHERS[other], entry("p5.48xlarge", 55.04, marketoption="OnDemand"))

    assert read_price_list(path, "us-east-1")[0] == {"p5.48xlarge": 55.04}
    with pytest.raises(InputError, match="no on-demand price"):
        read_price_list(saved(tmp_path, OTHERS[other]), "us-east-1")


def test_a_reserved_term_and_a_future_price_are_left_out(tmp_path: Path) -> None:
    """Of several terms the newest that has begun counts."""
    found = json.loads(entry("p5.48xlarge", 1.0))
    found["terms"] = {
        "OnDemand": {
            "old": terms_of(98.3, "2024-01-01T00:00:00Z"),
            "now": terms_of(55.04, "2026-06-01T00:00:00Z"),
            "then": terms_of(31.0, "2099-01-01T00:00:00Z"),
        },
        "Reserved": {"one": terms_of(20.0, "2024-01-01T00:00:00Z")},
    }

    assert read_price_list(saved(tmp_path, json.dumps(found)), "us-east-1")[0] == {"p5.48xlarge": 55.04}


def test_two_prices_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    """The smallest would break a cap if it were not ours."""
    path = saved(tmp_path, entry("g5.xlarge", 1.006), entry("g5.xlarge", 0.5))
    said = r"g5\.xlarge in us-east-1 costs \$0\.50/hour here and \$1\.006 in entry 0 of PriceList"
    with pytest.raises(InputError, match=said):
        read_price_list(path, "us-east-1")


def test_another_currency_is_named(tmp_path: Path) -> None:
    """The partition of China answers in CNY."""
    found = json.loads(entry("g5.xlarge", 1.0, regionCode="cn-north-1"))
    found["terms"] = {"OnDemand": {"one": terms_of(9.9, "2024-01-01T00:00:00Z", "CNY")}}
    with pytest.raises(InputError, match="the prices in cn-north-1 are in CNY"):
        read_price_list(saved(tmp_path, json.dumps(found)), "cn-north-1")
