"""How money is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from boa_daemon.units import parse_budget
from policies.money_text import in_dollars, least_in_dollars, price_in_dollars

SOURCES = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (0.0, "$0.00"),
        (1e-9, "$0.00"),
        (-1e-9, "$0.00"),
        (0.0000123, "$0.000012"),
        (0.00342, "$0.0034"),
        (0.05, "$0.05"),
        (0.0999, "$0.10"),
        (0.1, "$0.10"),
        (2.345, "$2.35"),
        (-5.0, "-$5.00"),
        (1234.5, "$1,234.50"),
        (12_345_678.0, "$12,345,678.00"),
        (None, "-"),
    ],
)
def test_amounts_have_cents_and_small_ones_two_digits(amount: float | None, said: str) -> None:
    """From micro-dollars to millions."""
    assert in_dollars(amount) == said


@pytest.mark.parametrize(
    ("price", "said"), [(21.957642, "$21.957642"), (1.006, "$1.006"), (24.0, "$24.00"), (0.0219, "$0.0219")]
)
def test_prices_keep_their_decimals(price: float, said: str) -> None:
    """As they are listed."""
    assert price_in_dollars(price) == said


@pytest.mark.parametrize(
    "least", [0.0000345678, 0.657483, 8.0, 8.06, 25.779321, 43.24251, 5840.0, 12_345_678.901]
)
def test_the_least_is_enough_when_it_is_typed_in_again(least: float) -> None:
    """Rounded up, at most by a cent or at the sixth digit, and never in powers of ten."""
    said = least_in_dollars(least)
    again = parse_budget(f"{said}/h").amount
    assert least * (1.0 - 1e-9) <= again <= least + max(0.01, least * 1e-5)
    assert "e" not in said


def test_no_sentence_of_the_program_writes_usd_behind_a_number() -> None:
    """Dollars have their sign, by the functions of this module; prose of the code may name the currency."""
    wrong = []
    for file in [*SOURCES.glob("boa_daemon/**/*.py"), *SOURCES.glob("policies/**/*.py")]:
        for line in file.read_text().splitlines():
            if re.search(r"""\} USD\b|USD \{|\bUSD/\{|"USD/hour"[^,\]]*$""", line):
                wrong.append(f"{file.name}: {line.strip()}")
            if re.search(r"\$\{[^{}]*:,?\.2f\}", line):
                wrong.append(f"{file.name}: {line.strip()}")
    assert wrong == []
