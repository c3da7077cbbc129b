"""Google's list: a machine costs its GPUs, cores and memory together, by region and market."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.cloud_machines import machines_of
from boa_daemon.inputs.gcp_prices import read_gcp
from boa_daemon.inputs.price_lists import PriceList


def a_sku(text: str, usd: float, usage: str = "OnDemand", **changes: Any) -> dict[str, Any]:
    """Return a SKU of one region."""
    whole, part = divmod(usd, 1.0)
    price = {"currencyCode": "USD", "units": str(int(whole)), "nanos": round(part * 1e9)}
    expression = {"usageUnit": "h", "tieredRates": [{"startUsageAmount": 0, "unitPrice": price}]}
    return {
        "description": text,
        "skuId": text[:4],
        "category": {"usageType": usage},
        "serviceRegions": ["us-east1"],
        "pricingInfo": [{"effectiveTime": "2026-10-05T00:00:00Z", "pricingExpression": expression}],
    } | changes


G2 = (
    a_sku("Nvidia L4 GPU running in Americas", 0.5),
    a_sku("G2 Instance Core running in Americas", 0.02),
    a_sku("G2 Instance Ram running in Americas", 0.003),
)
SPOT = (
    a_sku("Nvidia L4 GPU attached to Spot Preemptible VMs", 0.2, "Preemptible"),
    a_sku("Spot Preemptible G2 Instance Core", 0.01, "Preemptible"),
    a_sku("Spot Preemptible G2 Instance Ram", 0.001, "Preemptible"),
)


def read(folder: Path, *skus: Any, as_of: str = "") -> PriceList:
    """Return what a file with these SKUs says."""
    path = folder / "gcp.json"
    path.write_text(json.dumps({"skus": skus}))
    return read_gcp(path, as_of=as_of)


def test_a_machine_costs_its_parts(tmp_path: Path) -> None:
    """Every machine of the series has a price, of its own number of GPUs, cores and GiB."""
    found = read(tmp_path, *G2, *SPOT)
    series = {name: one for name, one in machines_of("gcp").items() if name.startswith("g2-")}
    for market, gpu, core, ram in (("on-demand", 0.5, 0.02, 0.003), ("spot", 0.2, 0.01, 0.001)):
        prices = {one.instance_type: one.usd_per_hour for one in found.prices if one.market == market}
        assert set(prices) == set(series)
        for name, one in series.items():
            usd = one["gpus"] * gpu + one["vcpus"] * core + one["memory_mib"] / 1024.0 * ram
            assert prices[name] == pytest.approx(usd, abs=1e-6)
    assert {(one.region, one.as_of) for one in found.prices} == {("us-east1", "2026-10-05")}
    assert read(tmp_path, *G2, as_of="2026-01-01").prices[0].as_of == "2026-01-01"


def test_a_machine_without_the_price_of_a_part_has_none(tmp_path: Path) -> None:
    """It is counted; without its GPU nobody asked for it."""
    left = read(tmp_path, *G2[:2])
    assert left.prices == []
    assert set(left.left_out) == {"of machines of which a part has no price"}
    assert read(tmp_path, *G2[1:]).left_out == {}


@pytest.mark.parametrize(
    ("text", "usage", "reason"),
    [
        ("N1 Predefined Instance Core", "OnDemand", "of other parts"),
        ("Nvidia L4 GPU DWS calendar mode", "OnDemand", "of other parts"),
        ("Reserved Nvidia L4 GPU", "OnDemand", "of other parts"),
        ("Nvidia L4 GPU reserved", "OnDemand", "of other parts"),
        ("Nvidia L4 GPU", "Commit1Yr", "of commitments"),
    ],
)
def test_what_is_no_part_of_a_machine_by_the_hour_is_left_out(
    tmp_path: Path, text: str, usage: str, reason: str
) -> None:
    """Its price may be of anything."""
    assert read(tmp_path, a_sku(text, 9.0, usage, pricingInfo=[])).left_out == {reason: 1}


@pytest.mark.parametrize(
    ("cards", "machine"),
    [
        (["Nvidia Tesla A100 80GB GPU", "A2 Instance Core", "A2 Instance Ram"], "a2-ultragpu-1g"),
        (["Nvidia Tesla A100 GPU", "A2 Instance Core", "A2 Instance Ram"], "a2-highgpu-1g"),
        (["Nvidia H100 80GB Mega GPU", "A3Plus Instance Core", "A3Plus Instance Ram"], "a3-megagpu-8g"),
        (["Nvidia H100 80GB GPU", "A3 Instance Core", "A3 Instance Ram"], "a3-highgpu-8g"),
        (["Nvidia H200 141GB GPU", "A3Ultra Instance Core", "A3Ultra Instance Ram"], "a3-ultragpu-8g"),
    ],
)
def test_cards_of_one_name_are_told_apart(tmp_path: Path, cards: list[str], machine: str) -> None:
    """An A100 with 80 GB is another card than one with 40."""
    found = {one.instance_type for one in read(tmp_path, *(a_sku(card, 1.0) for card in cards)).prices}
    assert machine in found
    others = {"a2-ultragpu-1g", "a2-highgpu-1g", "a3-megagpu-8g", "a3-highgpu-8g", "a3-ultragpu-8g"}
    assert not found & (others - {machine})


@pytest.mark.parametrize(
    ("sku", "said"),
    [
        (a_sku("Nvidia L4 GPU", 0.7), r"SKU 3 \(Nvid\): \$0\.70 in us-east1, and \$0\.50 in SKU 0"),
        (a_sku("Nvidia L4 GPU", 0.7, serviceRegions="us-east1"), "serviceRegions is no list"),
        (a_sku("Nvidia L4 GPU", 0.7, pricingInfo=[]), "its pricingInfo is not whole"),
        ({"description": "Nvidia L4 GPU"}, "SKU 3 has no description and category"),
        (5, "SKU 3 is no object"),
    ],
)
def test_a_damaged_sku_is_refused_by_its_place(tmp_path: Path, sku: Any, said: str) -> None:
    """The same price twice is no damage."""
    with pytest.raises(InputError, match=said):
        read(tmp_path, *G2, sku)
    assert len(read(tmp_path, *G2, G2[0]).prices) == len(read(tmp_path, *G2).prices)


def test_a_price_is_dollars_per_hour(tmp_path: Path) -> None:
    """A price per month or in euros would be far off; the last step of several is what is paid."""
    for key, value, said in (
        ("usageUnit", "mo", "per mo, not per hour"),
        ("tieredRates", [{"unitPrice": {"currencyCode": "EUR", "units": "1"}}], "a price in EUR"),
    ):
        sku = a_sku("Nvidia L4 GPU", 0.5)
        sku["pricingInfo"][0]["pricingExpression"][key] = value
        with pytest.raises(InputError, match=said):
            read(tmp_path, sku)
