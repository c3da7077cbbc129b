"""Money as people write it in price lists: what is dollars per hour is read, all else is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.money_cells import MAX_USD_PER_HOUR, NOTHING, usd_cell, usd_number

LIST = Path("list.csv")


@pytest.mark.parametrize(
    ("text", "usd"),
    [
        ("2.49", 2.49),
        (" $2.49 ", 2.49),
        ("$2.49/hr", 2.49),
        ("$2.49 / GPU / hour", 2.49),
        ("2.49 USD per hour", 2.49),
        ("$2.49 hourly", 2.49),
        ("2.49 an hour", 2.49),
        ("US$ 2.49 p/h", 2.49),
        ("$1,234.50/h", 1234.5),
        ("0", 0.0),
    ],
)
def test_an_amount_of_dollars_per_hour_is_read(text: str, usd: float) -> None:
    """With its sign and what it is per, or without."""
    assert usd_cell(text, "price", LIST) == usd


def test_with_decimal_commas_an_amount_has_them() -> None:
    """As in tables whose columns end at semicolons."""
    assert usd_cell("1,99", "price", LIST, has_decimal_commas=True) == 1.99


@pytest.mark.parametrize("text", [*sorted(NOTHING), " Sold Out ", "N/A"])
def test_a_cell_that_states_nothing_is_no_price(text: str) -> None:
    """In small or capital letters."""
    assert usd_cell(text, "price", LIST) is None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("$99/month", "Write the price of an hour"),
        ("99 daily", "Write the price of an hour"),
        ("$1.10 - $2.20", "Write the one price that you pay by"),
        ("from $2.49", "Write the price itself in place of a bound"),
        ("~2.49", "Write the price itself in place of a bound"),
        ("2.49 bananas", "Write the number alone, such as 2.49"),
        ("ask me", "Leave the cell empty if there is none"),
    ],
)
def test_another_amount_is_refused_with_what_to_write(text: str, hint: str) -> None:
    """The error names the cell, its file and its line."""
    with pytest.raises(InputError) as found:
        usd_cell(text, "price", LIST, 7)
    assert str(found.value).startswith("list.csv:7: price ")
    assert found.value.hint == hint


@pytest.mark.parametrize("text", ["-1", "1e9", "1e300", "inf", "nan0", "2.49 EUR"])
def test_no_machine_costs_less_than_nothing_or_a_billion(text: str) -> None:
    """Another currency is none of dollars."""
    with pytest.raises(InputError, match="price"):
        usd_cell(text, "price", LIST)


@pytest.mark.parametrize(("value", "usd"), [(0, 0.0), (2, 2.0), (2.5, 2.5)])
def test_a_number_in_json_is_dollars(value: object, usd: float) -> None:
    """Zero is a number."""
    assert usd_number(value, "price", LIST) == usd


@pytest.mark.parametrize("value", [True, "2.5", None, -0.01, MAX_USD_PER_HOUR, math.nan, math.inf])
def test_what_is_no_number_of_dollars_is_refused(value: object) -> None:
    """Text and truth are none."""
    with pytest.raises(InputError, match="price must be dollars; got"):
        usd_number(value, "price", LIST)
