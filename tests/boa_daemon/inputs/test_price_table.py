"""Tables of prices as small clouds and strangers write them: dollars per hour, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.price_table import read_price_table

# One machine of eight A100: 15.92 is its price, or that of one of its GPUs.
COLUMNS = {
    "price": 15.92,
    "$/h": 15.92,
    "$/hr": 15.92,
    "usd_per_hour": 15.92,
    "Hourly price": 15.92,
    "On Demand ($/hr)": 15.92,
    "pricePerHour": 15.92,
    "Instance Price (per hour)": 15.92,
    "dph_total": 15.92,
    "USD/GPU-hr": 127.36,
    "price per gpu hour": 127.36,
    "On-demand ($/GPU/hr)": 127.36,
    "securePrice": 127.36,
}


@pytest.mark.parametrize(("column", "usd"), COLUMNS.items(), ids=COLUMNS)
def test_a_column_of_dollars_per_hour(column: str, usd: float, tmp_path: Path) -> None:
    """Of the machine, or of one of its eight GPUs."""
    path = tmp_path / "t.csv"
    path.write_text(f"gpu,gpus,{column}\nA100,8,15.92\n")
    (price,) = read_price_table(path, as_of="2026-11-20", cloud="x").prices
    assert price.usd_per_hour == pytest.approx(usd)


@pytest.mark.parametrize(
    "column",
    ["price (EUR)", "price_eur", "price \u20ac", "price per minute", "price/min", "price per second",
     "price (cents)", "hourly_price_cents", "price per hour (8 GPUs)", "monthly price", "price/mo",
     "1yr price", "discount price %", "price change", "total cost", "min price", "max price", "unit price",
     "bid price", "egress price", "Storage cost", "price with tax", "communityPrice"],
)  # fmt: skip
def test_other_money_is_not_taken_for_dollars_per_hour(column: str, tmp_path: Path) -> None:
    """Alone it is refused; beside a price per hour it is not read, and a note says so."""
    path = tmp_path / "t.csv"
    path.write_text(f"gpu,gpus,{column}\nA100,8,15.92\n")
    with pytest.raises(InputError, match="may be something else"):
        read_price_table(path, as_of="2026-11-20", cloud="x")
    path.write_text(f"gpu,gpus,{column},usd_per_hour\nA100,8,15.92,2.00\n")
    found = read_price_table(path, as_of="2026-11-20", cloud="x")
    assert [price.usd_per_hour for price in found.prices] == [2.0]
    assert any(repr(column) in note for note in found.notes)


# A cell of the column "price" of eight A100.
CELLS = {
    "15.92": 15.92,
    "$15.92/hr": 15.92,
    "15.92 USD": 15.92,
    "US$ 15.92 per hour": 15.92,
    "15,92": 15.92,
    "1 250.50": 1250.5,
    "1'250.50": 1250.5,
    "\u0661\u0665\u066b\u0669\u0662": 15.92,
    "$15.92 / GPU / hr": 127.36,
    "15.92 per GPU-hour": 127.36,
}


@pytest.mark.parametrize(("cell", "usd"), CELLS.items(), ids=map(ascii, CELLS))
def test_a_cell_is_read_as_meant(cell: str, usd: float, tmp_path: Path) -> None:
    """A cell that says it is of one GPU is multiplied by them."""
    path = tmp_path / "t.csv"
    path.write_text(f'gpu,gpus,price\nA100,8,"{cell}"\n', encoding="utf-8")
    (price,) = read_price_table(path, as_of="2026-11-20", cloud="x").prices
    assert price.usd_per_hour == pytest.approx(usd)


@pytest.mark.parametrize(
    ("cell", "said"),
    [("1,250", "may be 1250 or 1.250"), ("$1.2k", "Write 1200"), ("CHF 5'000.-", "in CHF"),
     ("1.234,56 \u20ac", "in \u20ac"), ("A$20", "in A$"), ("(5)", "got '(5)'"), ("5%", "got '5%'"),
     ("inf", "got 'inf'"), ("0x10", "Write 16"), ("true", "got 'true'"), ("from $15.92", "got"),
     ("15.92/month", "got '15.92/month'"), ("15.92-20", "got"),
     ("92\u00a2", "got"), ("15.92*", "got"), ("-15", "got '-15'")],
)  # fmt: skip
def test_a_cell_that_is_no_price_is_refused_by_line(cell: str, said: str, tmp_path: Path) -> None:
    """With what it may be."""
    path = tmp_path / "t.csv"
    path.write_text(f'gpu,gpus,price\nA100,8,"{cell}"\n', encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_price_table(path, as_of="2026-11-20", cloud="x")
    assert ":2: the price" in str(caught.value)
    assert said in str(caught.value)


def test_a_number_of_gpus_in_the_model_agrees_with_its_column(tmp_path: Path) -> None:
    """8x A100 in a row of four GPUs is one of the two."""
    path = tmp_path / "t.csv"
    path.write_text("gpu,gpus,price\n8x A100,4,15.92\n")
    with pytest.raises(InputError, match=":2: 4 GPUs in their column, and 8x"):
        read_price_table(path, as_of="2026-11-20", cloud="x")
    path.write_text("gpu,gpus,price\n8x A100,,15.92\n")
    (price,) = read_price_table(path, as_of="2026-11-20", cloud="x").prices
    assert (price.instance_type, price.gpus) == ("8x-a100", 8)


def test_decimal_commas_of_a_spreadsheet(tmp_path: Path) -> None:
    """2,49 is 2.49; 1.250 may be 1250 there."""
    path = tmp_path / "t.csv"
    path.write_text("gpu;gpus;price\nA100;8;2,49\n")
    (price,) = read_price_table(path, as_of="2026-11-20", cloud="x").prices
    assert price.usd_per_hour == 2.49
    path.write_text("gpu;gpus;price\nA100;8;1.250\n")
    with pytest.raises(InputError, match=r"may be 1250 or 1\.250"):
        read_price_table(path, as_of="2026-11-20", cloud="x")
