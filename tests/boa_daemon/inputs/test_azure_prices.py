"""Azure's list: one price of each machine, region and market, the one in effect; the rest is counted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.azure_prices import read_azure
from boa_daemon.inputs.price_lists import PriceList

NOW = datetime(2026, 11, 1, tzinfo=UTC)
ITEM: dict[str, Any] = {
    "armSkuName": "Standard_NC4as_T4_v3",
    "skuName": "NC4as T4 v3",
    "productName": "Virtual Machines NCasT4 v3 Series",
    "armRegionName": "eastus",
    "retailPrice": 0.5,
    "currencyCode": "USD",
    "type": "Consumption",
    "unitOfMeasure": "1 Hour",
    "effectiveStartDate": "2026-01-01T00:00:00Z",
}


def read(folder: Path, *changes: dict[str, Any], as_of: str = "") -> PriceList:
    """Return what a file with these items says."""
    path = folder / "azure.json"
    path.write_text(json.dumps({"Items": [{**ITEM, **change} for change in changes]}))
    return read_azure(path, as_of=as_of, now=NOW)


def test_a_machine_has_its_price_by_region_and_market(tmp_path: Path) -> None:
    """What it consists of comes from the table of machines; the day is that of the price unless given."""
    spot = {"skuName": "NC4as T4 v3 Spot", "retailPrice": 0.1}
    found = read(tmp_path, {}, spot, {"armRegionName": "westus", "retailPrice": 0.6})
    assert {(one.region, one.market): one.usd_per_hour for one in found.prices} == {
        ("eastus", "on-demand"): 0.5,
        ("eastus", "spot"): 0.1,
        ("westus", "on-demand"): 0.6,
    }
    one = found.prices[0]
    assert (one.instance_type, one.gpus, one.vcpus, one.as_of) == ("Standard_NC4as_T4_v3", 1, 4, "2026-01-01")
    assert read(tmp_path, {}, as_of="2026-10-01").prices[0].as_of == "2026-10-01"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"type": "Reservation"}, "of reservations and other terms"),
        ({"unitOfMeasure": "1 Month"}, "of reservations and other terms"),
        ({"productName": "NCasT4 v3 Series Windows"}, "of other systems"),
        ({"productName": "NCasT4 v3 Series Cloud Services"}, "of other systems"),
        ({"armSkuName": "Standard_D2s_v3"}, "of machines that are not known to have GPUs"),
        ({"skuName": "NC4as T4 v3 Low Priority"}, "of low priority, which Azure retires"),
        ({"effectiveStartDate": "2026-11-01T00:00:01Z"}, "that are not in effect"),
        ({"effectiveEndDate": "2026-11-01T00:00:00Z"}, "that are not in effect"),
        ({"retailPrice": 0}, "without a price"),
    ],
)
def test_what_nobody_rents_by_the_hour_is_left_out(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    """Each is counted with its reason."""
    found = read(tmp_path, change)
    assert found.prices == []
    assert found.left_out == {reason: 1}


def test_of_two_prices_the_newer_is_in_effect(tmp_path: Path) -> None:
    """In any order; an end in the future ends nothing yet."""
    old = {"retailPrice": 0.9, "effectiveStartDate": "2025-01-01T00:00:00Z"}
    new = {"effectiveEndDate": "2026-11-01T00:00:01Z"}
    for items in ((old, new), (new, old)):
        assert [one.usd_per_hour for one in read(tmp_path, *items).prices] == [0.5]


@pytest.mark.parametrize(
    ("items", "said"),
    [
        (
            [{}, {"retailPrice": 0.7}],
            r"item 1 \(NC4as T4 v3\).*costs \$0\.70/hour here and \$0\.50 in item 0",
        ),
        ([{"currencyCode": "EUR"}], "a price in EUR: budgets and caps count USD"),
        ([{"armRegionName": ""}], "armRegionName is empty"),
        ([{"retailPrice": "cheap"}], "retailPrice must be dollars"),
        ([{"effectiveStartDate": "soon"}], "effectiveStartDate must be a time; got 'soon'"),
        ([{"effectiveEndDate": "never"}], "effectiveEndDate must be a time; got 'never'"),
    ],
)
def test_a_damaged_item_is_refused_by_its_place(
    tmp_path: Path, items: list[dict[str, Any]], said: str
) -> None:
    """The same price twice is no damage."""
    with pytest.raises(InputError, match=said):
        read(tmp_path, *items)
    assert len(read(tmp_path, {}, {}).prices) == 1


@pytest.mark.parametrize("name", ["armSkuName", "armRegionName", "retailPrice", "currencyCode", "type"])
def test_an_item_without_a_key_is_refused(tmp_path: Path, name: str) -> None:
    """The hint says where such items come from."""
    (tmp_path / "azure.json").write_text(json.dumps([{key: ITEM[key] for key in ITEM if key != name}, 5]))
    with pytest.raises(InputError, match=rf"item 0 .*{name} is missing.*prices\.azure\.com"):
        read_azure(tmp_path / "azure.json", as_of="", now=NOW)


def test_a_missing_page_is_noted(tmp_path: Path) -> None:
    """Only that of the last answer is missing."""
    path = tmp_path / "azure.json"
    pages = [{"Items": [ITEM], "NextPageLink": "x"}, {"Items": [], "NextPageLink": None}]
    path.write_text(json.dumps(pages))
    assert read_azure(path, as_of="", now=NOW).notes == []
    path.write_text(json.dumps(pages[:1]))
    assert "lacks pages" in read_azure(path, as_of="", now=NOW).notes[0]
