"""AWS's spot price history as prices, in each form in which people save it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.backends.aws.prices.spot_history import read_spot_history
from boa_daemon.errors import InputError

DATA = Path(__file__).parents[4] / "data" / "prices"
ENTRY: dict[str, Any] = {
    "AvailabilityZone": "us-east-1a",
    "InstanceType": "p4d.24xlarge",
    "ProductDescription": "Linux/UNIX",
    "SpotPrice": "9.500000",
    "Timestamp": "2026-11-20T10:00:00+00:00",
}


def test_the_example_by_hand() -> None:
    """Zone a costs 9.5 since the 20th (8 before), zone b 12 since the 18th; Windows and m5 are left out."""
    found = read_spot_history(DATA / "spot-history.json")
    (price,) = found.prices
    assert (price.usd_low, price.usd_per_hour, price.region, price.market) == (9.5, 12.0, "us-east-1", "spot")
    assert price.as_of == "2026-11-20"
    assert found.left_out == {"of other systems": 1, "of types that the catalogue lacks": 1}


HEADER = "AvailabilityZone,InstanceType,ProductDescription,SpotPrice,Timestamp"
CELLS = ",".join(ENTRY.values())
SHAPES = {
    "whole.json": json.dumps({"SpotPriceHistory": [ENTRY]}, indent=4),
    "whole-no-suffix": json.dumps({"SpotPriceHistory": [ENTRY], "NextToken": ""}),
    "list.json": json.dumps([ENTRY]),
    "lines.jsonl": json.dumps(ENTRY)
    + "\n"
    + json.dumps(ENTRY | {"Timestamp": "2026-11-19T10:00:00Z"})
    + "\n",
    "table.csv": f"{HEADER}\n{CELLS}\n",
    "table.tsv": f"{HEADER}\n{CELLS}\n".replace(",", "\t"),
    "snake.csv": "availability_zone,instance_type,product_description,spot_price,timestamp\n" + CELLS + "\n",
    "no-product.csv": f"Timestamp,SpotPrice,InstanceType,AvailabilityZone,Extra\n"
    f"{ENTRY['Timestamp']},9.5,p4d.24xlarge,us-east-1a,x\n",
    "local-zone.csv": f"{HEADER}\n{CELLS}\n".replace("us-east-1a", "us-east-1-bos-1a"),
}


SHAPES |= {
    "printed.txt": "SPOTPRICEHISTORY\t" + CELLS.replace(",", "\t") + "\nNEXTTOKEN\tabc\n",
    "printed-with-zone-ids.txt": "SPOTPRICEHISTORY\t"
    + CELLS.replace(",", "\tuse1-az4\t", 1).replace(",", "\t"),
    "printed-as-table.txt": f"""----------------------------------------------------------------
|                   DescribeSpotPriceHistory                     |
+----------------------------------------------------------------+
||                       SpotPriceHistory                       ||
|+------------------+-------------------------------------------+|
|| {HEADER.replace(",", " | ")} ||
|+------------------+-------------------------------------------+|
||  {CELLS.replace(",", "  |  ")} ||
|+------------------+-------------------------------------------+|
""",
    "spreadsheet.csv": f"{HEADER}\n{CELLS}\n".replace(",", ";").replace("9.500000", "9,50"),
    "dollars.csv": f"{HEADER}\n{CELLS}\n".replace("9.500000", "$9.50"),
}


@pytest.mark.parametrize(("name", "text"), SHAPES.items(), ids=SHAPES)
def test_forms_of_the_same_history(name: str, text: str, tmp_path: Path) -> None:
    """JSON of the CLI, a list, an object a line, CSV and tabs."""
    (tmp_path / name).write_text(text)
    (price,) = read_spot_history(tmp_path / name).prices
    assert (price.usd_per_hour, price.region, price.as_of) == (9.5, "us-east-1", "2026-11-20")


def history(**changed: Any) -> str:
    """Return a history with one entry changed."""
    return json.dumps({"SpotPriceHistory": [ENTRY, ENTRY | changed]})


REFUSED = {
    "no price": (history(SpotPrice="free"), "entry 1 of SpotPriceHistory: SpotPrice must be dollars"),
    "zero": (history(SpotPrice="0.0"), "SpotPrice must be dollars"),
    "nothing": (history(SpotPrice=None), "SpotPrice is missing"),
    "no time": (history(Timestamp="yesterday"), "Timestamp must be a time"),
    "no zone": (history(AvailabilityZone="use1-az4"), "'use1-az4' is no zone"),
    "two prices": (history(SpotPrice="8.0"), "a second price of p4d.24xlarge in us-east-1a"),
    "not entries": (json.dumps({"SpotPriceHistory": [1]}), "entry 0 of SpotPriceHistory: not an object"),
    "other JSON": (json.dumps({"PriceList": []}), "no SpotPriceHistory in it"),
    "cut short": (history()[:-20], "not valid JSON"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_damaged_files_are_refused(text: str, said: str, tmp_path: Path) -> None:
    """The error names the entry."""
    (tmp_path / "h.json").write_text(text)
    with pytest.raises(InputError) as refused:
        read_spot_history(tmp_path / "h.json")
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["h.json", "h.txt", "h.jsonl"])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000], ids=["lists", "objects"])
def test_a_history_that_is_nested_too_deeply_is_refused(name: str, text: str, tmp_path: Path) -> None:
    """Whatever the file is called."""
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match="nested too deeply"):
        read_spot_history(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "said"),
    [(f"{HEADER}\n{CELLS},x\n", ":2: 6 cells"),
     (f'{HEADER}\n{CELLS}\n"p4d', ":3: not CSV"),
     (f'"{HEADER}', ":1: not CSV"),
     (HEADER.replace("SpotPrice", "Price") + "\n", ":1: column 'SpotPrice'"),
     (f"{HEADER}\n{CELLS}\n".replace("9.500000", "a"), ":2: SpotPrice must be")],
)  # fmt: skip
def test_damaged_tables_are_refused_by_line(text: str, said: str, tmp_path: Path) -> None:
    """The error names the line."""
    (tmp_path / "h.csv").write_text(text)
    with pytest.raises(InputError) as refused:
        read_spot_history(tmp_path / "h.csv")
    assert said in str(refused.value)


def test_a_group_of_three_digits_is_refused(tmp_path: Path) -> None:
    """Where the comma is decimal, 9.500 may be 9500; a page that is missing is said."""
    (tmp_path / "h.csv").write_text(f"{HEADER}\n{CELLS}\n".replace(",", ";").replace("9.500000", "9.500"))
    with pytest.raises(InputError, match=r":2: SpotPrice .* may be 9500 or 9\.500"):
        read_spot_history(tmp_path / "h.csv")
    (tmp_path / "h.json").write_text(json.dumps({"SpotPriceHistory": [ENTRY], "NextToken": "abc"}))
    found = read_spot_history(tmp_path / "h.json")
    assert ["lacks pages" in note for note in found.notes] == [True]
    assert not found.left_out
