"""`inputs/price_file.py`: region, currency and day of prices; rows with one key are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog

ROW = '[[types]]\ninstance_type = "g5.xlarge"\nusd_per_hour = {}\n'


def load(folder: Path, text: str, *, name: str = "p.toml", region: str = "") -> Catalog:
    """Load a price file with this text."""
    path = folder / name
    path.write_text(text)
    return Catalog.load(path, region=region)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ROW.format(1.0) + ROW.format(2.0), r"p\.toml:4: a second row for g5\.xlarge; .* on line 1"),
        ('[prices]\n"g5.xlarge" = 1.0\n' + ROW.format(2.0), "has a price here and under"),
        ('currency = "EUR"\n[prices]\n"g5.xlarge" = 1.0\n', r"p\.toml:1: prices in EUR: .* USD"),
        ('currency = "usd"\n[prices]\n"g5.xlarge" = 1.0\n', "prices in usd"),
        (ROW.format(1.0) + 'currency = "CNY"\n', "prices in CNY"),
        ('as_of = 2099-01-01\n[prices]\n"g5.xlarge" = 1.0\n', "2099-01-01, which has not come"),
        (ROW.format(1.0) + 'as_of = "2099-01-01"\n', "2099-01-01, which has not come"),
        ('region = "eu-west-1"\n' + ROW.format(1.0) + 'region = "sa-east-1"\n', "is of sa-east-1"),
        (
            ROW.format(1.0) + 'region = "eu-west-1"\n' + ROW.format(2.0) + 'region = "eu-west-1"\n',
            r"a second row for g5\.xlarge in eu-west-1",
        ),
        (
            ROW.format(1.0) + 'region = "eu-west-1"\n' + ROW.format(2.0) + 'region = "sa-east-1"\n',
            "in eu-west-1 and in sa-east-1",
        ),
    ],
)  # fmt: skip
def test_prices_that_are_not_what_they_seem_are_refused(tmp_path: Path, text: str, said: str) -> None:
    """Two rows of one key are named with both lines; another currency and a future day with theirs."""
    with pytest.raises(InputError, match=said):
        load(tmp_path, text)


def test_two_rows_of_a_csv_are_named_with_both_lines(tmp_path: Path) -> None:
    """A table is read alike."""
    text = "instance_type,usd_per_hour\ng5.xlarge,1.0\ng6.xlarge,2.0\ng5.xlarge,3.0\n"
    with pytest.raises(InputError, match=r"p\.csv:4: a second row for g5\.xlarge; the first is on line 2"):
        load(tmp_path, text, name="p.csv")


def test_a_file_of_many_regions_gives_those_of_the_one_asked_for(tmp_path: Path) -> None:
    """Public price lists have one row per region."""
    text = "instance_type,region,usd_per_hour\ng5.xlarge,us-east-1,1.0\ng5.xlarge,sa-east-1,1.6\n"
    catalog = load(tmp_path, text, name="p.csv", region="sa-east-1")

    assert catalog.price_of("g5.xlarge") == 1.6
    assert catalog.in_region("sa-east-1").entry("g5.xlarge").usd_per_hour == 1.6
    assert catalog.in_region("sa-east-1").entry("g6.xlarge").usd_per_hour is None
    assert catalog.in_region("us-east-1").entry("g5.xlarge").usd_per_hour is None


def test_shipped_prices_are_of_us_east_1() -> None:
    """They are unknown elsewhere, and the entry says why."""
    shipped = Catalog.load()

    assert shipped.in_region("us-east-1") == shipped
    assert shipped.in_region("eu-west-1").entry("g5.xlarge").source == (
        "none in eu-west-1: $1.006 is the price in us-east-1"
    )
