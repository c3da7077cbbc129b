"""AWS's offer files as prices: the entry that a node costs, of many that look like it."""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from boa_daemon.backends.aws.prices.offer_file import read_offers
from boa_daemon.errors import InputError
from boa_daemon.testing.fake_answers import price_entry

DATA = Path(__file__).parents[4] / "data" / "prices"
OFFERS = (DATA / "aws-offers.csv").read_text()
NOW = datetime(2026, 11, 28, tzinfo=UTC)


def read(path: Path, now: datetime = NOW) -> dict[tuple[str, str], tuple[float, str]]:
    """Return price and day by type and region."""
    found = read_offers(path, as_of="", now=now).prices
    return {(one.instance_type, one.region): (one.usd_per_hour, one.as_of) for one in found}


def test_the_example_by_hand() -> None:
    """Neither dedicated, Windows, Capacity Blocks, reserved nor the price before November."""
    assert read(DATA / "aws-offers.csv") == {
        ("p4d.24xlarge", "us-east-1"): (22.0, "2026-11-20"),
        ("p4d.24xlarge", "eu-west-1"): (26.0, "2026-11-20"),
    }


def test_a_price_holds_from_its_day_on() -> None:
    """In October the price before held."""
    found = read(DATA / "aws-offers.csv", datetime(2026, 10, 1, tzinfo=UTC))
    assert found == {("p4d.24xlarge", "us-east-1"): (25.0, "2026-11-20")}


def test_json_forms_of_the_same_list(tmp_path: Path) -> None:
    """An offer file, and the saved output of the Pricing API."""
    entry = json.loads(price_entry("p4d.24xlarge", 22.0))
    entry["product"]["attributes"]["regionCode"] = "us-east-1"
    offers = {
        "publicationDate": "2026-11-20T00:00:00Z",
        "products": {"A1": entry["product"]},
        "terms": {"OnDemand": {"A1": entry["terms"]["OnDemand"]}, "Reserved": {}},
    }
    saved = {"PriceList": [json.dumps(entry | {"publicationDate": "2026-11-20T00:00:00Z"})]}
    one = entry | {"publicationDate": "2026-11-20T00:00:00Z"}
    pages = json.dumps(saved) + "\n" + json.dumps({"PriceList": []})
    for content in (offers, saved, saved["PriceList"], [one], one, pages):
        (tmp_path / "list.json").write_text(content if isinstance(content, str) else json.dumps(content))
        assert read(tmp_path / "list.json") == {("p4d.24xlarge", "us-east-1"): (22.0, "2026-11-20")}


def test_prices_of_one_region_are_read_from_every_form(tmp_path: Path) -> None:
    """`boa prices refresh --from` takes what `boa prices import` takes, and leaves other regions out."""
    (tmp_path / "index.csv.gz").write_bytes(gzip.compress(OFFERS.encode()))
    for path in (DATA / "aws-offers.csv", tmp_path / "index.csv.gz"):
        found = read_offers(path, as_of="", region="eu-west-1", now=NOW)
        assert [(one.instance_type, one.usd_per_hour) for one in found.prices] == [("p4d.24xlarge", 26.0)]
        assert found.left_out["of other regions"]
    with pytest.raises(InputError, match="no on-demand price in sa-east-1"):
        read_offers(DATA / "aws-offers.csv", as_of="", region="sa-east-1", now=NOW)


REFUSED = {
    "cut short": (OFFERS[: OFFERS.index(',"EU (Ireland)"')] + "\n", ":13: 9 cells where the header has 19"),
    "no header": ("a,b\n1,2,3\n", "no header with SKU"),
    "no price column": (OFFERS.replace('"PricePerUnit"', '"Price"'), ":6: column 'PricePerUnit' is missing"),
    "no number": (OFFERS.replace("22.0000000000", "free"), ":7: PricePerUnit must be dollars"),
    "no day": (OFFERS.replace("2026-11-01", "soon", 1), ":7: EffectiveDate must be a day"),
    "cut in a cell": (OFFERS[:-20], "not valid CSV"),
    "two prices": (OFFERS.replace("2026-09-01", "2026-11-01"), "costs $25.00/hour here and $22.00 in line 7"),
    "no date": (OFFERS.replace("Publication Date", "Date"), "no publication date"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_damaged_files_are_refused_by_line(text: str, said: str, tmp_path: Path) -> None:
    """The error says what is wrong and where."""
    (tmp_path / "index.csv").write_text(text)
    with pytest.raises(InputError) as refused:
        read_offers(tmp_path / "index.csv", as_of="", now=NOW)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "text", ['{"products": {"A": 1}}', '{"PriceList": ["x"]}', "[]", '{"SpotPriceHistory": []}']
)
def test_other_json_is_refused(text: str, tmp_path: Path) -> None:
    """In a sentence."""
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(InputError, match=r"price list|offer file"):
        read_offers(tmp_path / "index.json", as_of="", now=NOW)


@pytest.mark.parametrize("mark", [";", "\t"])
def test_a_file_that_a_spreadsheet_saved(mark: str, tmp_path: Path) -> None:
    """With semicolons or tabs in place of commas; a price with two readings is refused."""
    path = tmp_path / "index.csv"
    text = OFFERS.replace('","', f'"{mark}"')
    path.write_text(text)
    assert read(path) == read(DATA / "aws-offers.csv")
    path.write_text(re.sub(r'"22\.0+"', '"22,000"', text))
    with pytest.raises(InputError, match="may be 22000 or 22"):
        read_offers(path, as_of="", now=NOW)


def test_a_page_that_is_missing_is_said(tmp_path: Path) -> None:
    """The last answer names a further one."""
    entry = json.loads(price_entry("p4d.24xlarge", 22.0))
    entry["product"]["attributes"]["regionCode"] = "us-east-1"
    content = {"PriceList": [json.dumps(entry)], "NextToken": "abc"}
    (tmp_path / "list.json").write_text(json.dumps(content))
    assert [
        "lacks pages" in note for note in read_offers(tmp_path / "list.json", as_of="2026-11-20").notes
    ] == [True]


def test_spaces_around_cells_are_no_part_of_them(tmp_path: Path) -> None:
    """A price file is read without them, so they would name another region."""
    (tmp_path / "list.csv").write_text(
        OFFERS.replace('"us-east-1"', '"\u00a0us-east-1 "').replace('"SKU"', '" SKU"')
    )
    assert read(tmp_path / "list.csv") == read(DATA / "aws-offers.csv")
