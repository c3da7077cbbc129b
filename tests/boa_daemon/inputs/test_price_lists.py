"""Imported prices are a price file: what was read comes back, by region and market."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.price_file import read_price_file
from boa_daemon.inputs.price_lists import ListedPrice, PriceList, write_price_list

P4D = ListedPrice(
    instance_type="p4d.24xlarge",
    region="us-east-1",
    market="on-demand",
    usd_per_hour=20.0,
    usd_low=20.0,
    as_of="2026-11-20",
    source="a list",
)
SPOT = replace(P4D, market="spot", usd_per_hour=11.0, usd_low=9.0)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8)


@given(
    prices=st.lists(
        st.builds(
            ListedPrice,
            instance_type=NAMES.map("x".__add__),
            region=NAMES.map("r".__add__),
            market=st.sampled_from(["on-demand", "spot"]),
            usd_per_hour=st.floats(0.001, 1e6),
            usd_low=st.floats(0.001, 1e6),
            as_of=st.dates(max_value=date(2026, 1, 1)).map(str),
            source=NAMES.map("s".__add__),
            gpus=st.integers(1, 16),
            gpu_model=NAMES.map("g".__add__),
        ),
        min_size=1,
        unique_by=lambda price: (price.instance_type, price.region, price.market),
    )
)
def test_what_is_written_is_read_back(
    prices: list[ListedPrice], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every price with its region, market, currency, day and source."""
    path = tmp_path_factory.mktemp("prices") / "prices.csv"
    write_price_list(prices, path)
    rows = read_price_file(path)[0].types
    found = {(row.instance_type, row.region, row.market): row for row in rows}
    assert len(found) == len(prices)
    for price in prices:
        row = found[price.instance_type, price.region, price.market]
        assert (row.usd_per_hour, row.as_of, row.source) == (price.usd_per_hour, price.as_of, price.source)
        assert (row.currency, row.gpus, row.gpu_model) == ("USD", price.gpus, price.gpu_model)
        assert row.spot_usd_per_hour_min == (price.usd_low if price.market == "spot" else None)


def test_a_spot_price_stands_beside_the_price_on_demand(tmp_path: Path) -> None:
    """20 USD on demand; spot from 9 to 11 USD."""
    write_price_list([P4D, SPOT], tmp_path / "p.csv")
    for region in ("", "us-east-1"):
        entry = Catalog.load(tmp_path / "p.csv", region=region).entry("p4d.24xlarge")
        assert (entry.usd_per_hour, entry.spot_usd_per_hour_min, entry.spot_usd_per_hour_max) == (
            20.0,
            9.0,
            11.0,
        )
        assert entry.spot_as_of == "2026-11-20"


def test_a_spot_price_alone_is_planned_with_and_no_price_to_rent_at(tmp_path: Path) -> None:
    """Plans pay 11 USD and say so; where nodes are rented the price on demand stays the list's."""
    write_price_list([SPOT], tmp_path / "p.csv")
    planned = Catalog.load(tmp_path / "p.csv").entry("p4d.24xlarge")
    assert (planned.usd_per_hour, planned.source) == (11.0, "spot: a list")
    rented = Catalog.load(tmp_path / "p.csv", region="us-east-1").entry("p4d.24xlarge")
    shipped = Catalog.load().entry("p4d.24xlarge")
    assert (rented.usd_per_hour, rented.source, rented.as_of) == (
        shipped.usd_per_hour,
        shipped.source,
        shipped.as_of,
    )
    assert rented.spot_usd_per_hour_max == 11.0


def test_regions_never_mix(tmp_path: Path) -> None:
    """Two regions in one file are refused without a region, and each is read with its own."""
    write_price_list([P4D, replace(P4D, region="eu-west-1", usd_per_hour=24.0)], tmp_path / "p.csv")
    with pytest.raises(InputError, match=r"p\.csv:3: prices of p4d\.24xlarge in eu-west-1 and in us-east-1"):
        Catalog.load(tmp_path / "p.csv")
    assert Catalog.load(tmp_path / "p.csv", region="eu-west-1").price_of("p4d.24xlarge") == 24.0


def test_only_some_regions_and_markets() -> None:
    """An absent region is refused with those that there are; so is an empty rest."""
    whole = PriceList([P4D, SPOT, replace(P4D, region="eu-west-1")])
    assert whole.only(["us-east-1"], None, path=Path("f")).prices == [P4D, SPOT]
    assert whole.only([], "spot", path=Path("f")).prices == [SPOT]
    assert whole.only([], "spot", path=Path("f")).left_out == {"of other regions or markets": 2}
    with pytest.raises(InputError, match="It has eu-west-1, us-east-1"):
        whole.only(["us-east1"], None, path=Path("f"))
    with pytest.raises(InputError, match="no spot price is left"):
        whole.only(["eu-west-1"], "spot", path=Path("f"))
