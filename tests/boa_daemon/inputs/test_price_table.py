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
    "On-Demand": 15.92,
    "per hour": 15.92,
    "US dollars/hour": 15.92,
    "Linux On Demand cost": 15.92,
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
     "Price A$", "HK$/hr", "Windows On Demand cost", "discount",
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
    "$15.92 per hour per GPU": 127.36,
    "$15.92/hr/GPU": 127.36,
    "$15.92/GPU\u00b7h": 127.36,
    "$15.92 hourly per GPU": 127.36,
    "$15.92 an hour": 15.92,
    "$15.92/node/hr": 15.92,
    "15.92 US dollars": 15.92,
    "15.92\u200b": 15.92,
    "\u200f$15.92": 15.92,
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
    [("from $3.59/hr", "in place of a bound"), ("~3.59", "in place of a bound"),
     ("$3.59 - $4.10", "the one price"), ("$3.59 $2.99", "the one price"),
     ("$3.59/day", "the price of an hour"),
     ("$0.05/min", "the price of an hour"), ("$1,785 monthly", "the price of an hour"),
     ("3.59\u00b9", "the number alone"), ("free", "Leave the cell empty"),
     ("1,250", "may be 1250 or 1.250"), ("$1.2k", "Write 1200"), ("CHF 5'000.-", "in CHF"),
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


# (header, row): GPUs and dollars per hour of the machine.
NUMBERS = {
    "before the model": ("GPU,Price", "8x NVIDIA A100 SXM,$16/hr", 8, 16.0),
    "close to the model": ("GPU,Price", "8xH100,$16/hr", 8, 16.0),
    "a word apart": ("GPU,Price", "8 A100,$16/hr", 8, 16.0),
    "with a star": ("GPU,Price", "8*A100,$16/hr", 8, 16.0),
    "after the model": ("GPU,Price", "A100 x8,$16/hr", 8, 16.0),
    "after the model, close": ("GPU,Price", "A100x8,$16/hr", 8, 16.0),
    "with a sign": ("GPU,Price", "A100\u00d78,$16/hr", 8, 16.0),
    "before its sign": ("GPU,Price", "B300 8x,$16/hr", 8, 16.0),
    "not of a name with an x": ("GPU,Price", "MI300X,$16/hr", 1, 16.0),
    "not of a card": ("GPU,Price", "RTX PRO 6000,$16/hr", 1, 16.0),
    "in brackets": ("GPU,Price", "A100 (x8),$16/hr", 8, 16.0),
    "of the machine's name": ("Instance,GPU,Price", "On-demand 8x NVIDIA H100,NVIDIA H100,$16/hr", 8, 16.0),
    "of the machine's name, each": ("Instance,GPU,Price", "gpu_8x_h100_sxm5,H100,$2/GPU/hr", 8, 16.0),
    "not of a size": ("Instance,GPU,Price", "g5.12xlarge,A10G,$16/hr", 1, 16.0),
    "not of a model": ("GPU,Price", "RTX 3090 Ti,$16/hr", 1, 16.0),
    "in words": ("GPU,GPUs,Price", "A100,8 GPUs,$16/hr", 8, 16.0),
    "a bracket of memory": ("GPU,GPUs,Price", "RTX 6000 (48),8,$16/hr", 8, 16.0),
}  # fmt: skip


@pytest.mark.parametrize(("header", "row", "gpus", "usd"), NUMBERS.values(), ids=NUMBERS)
def test_the_number_of_gpus_is_read_where_people_write_it(
    header: str, row: str, gpus: int, usd: float, tmp_path: Path
) -> None:
    """In a column, beside the model, or in the machine's name: never one GPU in place of eight."""
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n{row}\n")
    (price,) = read_price_table(path, as_of="2026-11-20", cloud="x").prices
    assert (price.gpus, price.usd_per_hour) == (gpus, usd)


def test_a_number_behind_the_model_may_be_memory(tmp_path: Path) -> None:
    """Without a column of GPUs it is refused."""
    path = tmp_path / "t.csv"
    path.write_text("GPU,Price\nA100 (8),16\n")
    with pytest.raises(InputError, match=r":2: 8 in 'A100 \(8\)' may be a number of GPUs"):
        read_price_table(path, as_of="2026-11-20", cloud="x")


@pytest.mark.parametrize(
    ("column", "cell", "market"),
    [("market", "preemptible", "spot"), ("market", "Interruptible", "spot"),
     ("market", "on demand", "on-demand"),
     ("pricing model", "PAYG", "on-demand"), ("market", "Reserved 1yr", None),
     ("purchase option", "Savings Plan", None),
     ("term", "0 months", "on-demand"), ("commitment", "No commitment", "on-demand"),
     ("type", "Spot", "spot"), ("type", "Reserved 1y", None), ("type", "On-Demand", "on-demand"),
     ("term", "1 year", None), ("term", "none", "on-demand"), ("commitment", "36 months", None),
     ("os", "Windows", None), ("os", "Ubuntu 22.04", "on-demand"), ("GPU", "Total", None)],
)  # fmt: skip
def test_a_price_on_a_condition_is_not_that_on_demand(
    column: str, cell: str, market: str | None, tmp_path: Path
) -> None:
    """What is reserved, of another system or a sum is left out and counted."""
    path = tmp_path / "t.csv"
    row = f"A100,8,16,{cell}" if column != "GPU" else "Total,8,16,"
    path.write_text(f"GPU,GPUs,Price,{'x' if column == 'GPU' else column}\n{row}\n")
    found = read_price_table(path, as_of="2026-11-20", cloud="x")
    assert [price.market for price in found.prices] == ([market] if market else [])
    assert sum(found.left_out.values()) == (market is None)


def test_a_column_of_units_says_what_a_price_is_per(tmp_path: Path) -> None:
    """Of an hour, or of an hour and a GPU; that of a month is refused."""
    path = tmp_path / "t.csv"
    path.write_text("GPU,GPUs,Price,unit\nA100,8,16,hour\nH100,8,2,per GPU hour\n")
    assert [one.usd_per_hour for one in read_price_table(path, as_of="", cloud="x").prices] == [16.0, 16.0]
    path.write_text("GPU,GPUs,Price,unit\nA100,8,16,month\n")
    with pytest.raises(InputError, match=":2: a price per 'month'"):
        read_price_table(path, as_of="2026-11-20", cloud="x")


TABLES = {
    "Markdown": "| GPU | GPUs | Price |\n|:----|-----:|-------|\n| A100 | 8 | $16 |\n",
    "UTF-16 of a spreadsheet": "\ufeffsep=;\r\nGPU;GPUs;Price\r\nA100;8;16,00\r\n".encode("utf-16-le"),
    "UTF-16 without a mark": "GPU\tGPUs\tPrice\r\nA100\t8\t16\r\n".encode("utf-16-le"),
    "UTF-16, big end first": "GPU\tGPUs\tPrice\r\nA100\t8\t16\r\n".encode("utf-16-be"),
    "UTF-32": "GPU,GPUs,Price\nA100,8,16\n".encode("utf-32"),
}


@pytest.mark.parametrize("content", TABLES.values(), ids=TABLES)
def test_tables_of_other_programs(content: str | bytes, tmp_path: Path) -> None:
    """A rule below a header is no row; encodings are known by their bytes."""
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (price,) = read_price_table(path, as_of="2026-11-20", cloud="x").prices
    assert (price.gpus, price.usd_per_hour) == (8, 16.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [("Prices of 2026\n\nGPU,GPUs,Price\nA100,8,16\n", "Line 3 looks like the header"),
     ('[{"gpu": "A100", "gpus": 8, "price": 16}]', "this is JSON"),
     ('{"data": {}}', "this is JSON")],
)  # fmt: skip
def test_another_kind_of_file_is_said(text: str, said: str, tmp_path: Path) -> None:
    """With what to do."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_price_table(path, as_of="2026-11-20", cloud="x")


def test_a_machine_has_a_name_of_one_line_and_gpus(tmp_path: Path) -> None:
    """What is no GPU is left out; a line break in a cell is a space; a market is no name."""
    path = tmp_path / "t.csv"
    path.write_text('GPU,GPUs,Price,type\n"A100\n80GB",8,16,spot\nTPU v5e,8,9,\nGaudi 3,8,9,\n')
    found = read_price_table(path, as_of="2026-11-20", cloud="x")
    assert [(price.instance_type, price.market) for price in found.prices] == [("8x-a100-80gb", "spot")]
    assert found.left_out == {"with other accelerators": 2}


DAYS: dict[str, tuple[tuple[str, ...], list[str] | str]] = {
    "ISO": (("2026-11-01", "2026-01-11"), ["2026-11-01", "2026-01-11"]),
    "the day first": (("01/11/2026", "13/11/2026"), ["2026-11-01", "2026-11-13"]),
    "the month first": (("01/11/2026", "11/13/2026"), ["2026-01-11", "2026-11-13"]),
    "dots": (("1.11.2026", "28.11.2026"), ["2026-11-01", "2026-11-28"]),
    "one reading": (("11/11/2026", "2026-11-12"), ["2026-11-11", "2026-11-12"]),
    "words and none": (("Nov 1, 2026", "n/a"), ["2026-11-01", ""]),
    "two readings": (
        ("01/11/2026", "02/11/2026"),
        ":2: the day '01/11/2026' may be 2026-11-01 or 2026-01-11",
    ),
    "both orders": (
        ("13/11/2026", "11/13/2026"),
        ":3: '13/11/2026' has the day first, and '11/13/2026' the month",
    ),
    "no day": (("2026-11-01", "Marathon 3 2026"), ":3: 'Marathon 3 2026' is no day"),
    "no such day": (("31/11/2026", "2026-11-01"), ":2: '31/11/2026' is no day: there is no such day"),
}


@pytest.mark.parametrize(("days", "expected"), DAYS.values(), ids=DAYS)
def test_days_are_read_or_refused(days: tuple[str, ...], expected: list[str] | str, tmp_path: Path) -> None:
    """A day with two readings is that of the rows with one; where there are none, both are named."""
    path = tmp_path / "prices.csv"
    rows = "".join(f'A100,{n},{n}.5,"{day}"\n' for n, day in enumerate(days, 1))
    path.write_text(f"gpu,gpus,usd_per_hour,updated\n{rows}", encoding="utf-8")
    if isinstance(expected, list):
        assert [price.as_of for price in read_price_table(path, as_of="", cloud="x").prices] == expected
    else:
        with pytest.raises(InputError) as refused:
            read_price_table(path, as_of="", cloud="x")
        assert expected in str(refused.value)
        assert {price.as_of for price in read_price_table(path, as_of="2026-11-20", cloud="x").prices} == {
            "2026-11-20"
        }
