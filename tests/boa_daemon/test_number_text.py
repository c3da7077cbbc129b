"""Numbers as strangers write them: read as meant, or refused with what they may mean."""

from __future__ import annotations

import pytest

from boa_daemon.number_text import NotOneNumber, number_of, number_readings

READ = {
    "12,50": 12.5,
    "1,250,000": 1250000.0,
    "1 250 000": 1250000.0,
    "1\u00a0250,5": 1250.5,
    "1\u2009250": 1250.0,
    "1\u2007250": 1250.0,
    "1\u2019250.5": 1250.5,
    "1'250'000": 1250000.0,
    "1.250.000": 1250000.0,
    "1.250,5": 1250.5,
    "1,250.5": 1250.5,
    "1,00,000": 100000.0,
    "12,34,567.5": 1234567.5,
    "-1,00,000": -100000.0,
    "1e3": 1000.0,
    "1_000": 1000.0,
    "\u22125": -5.0,
    "\u0661\u0662\u066b\u0665": 12.5,
    "\u0661\u066c\u0662\u0665\u0660": 1250.0,
    "\u06f1\u06f2": 12.0,
    "\u0967\u0968": 12.0,
    "\uff11\uff12\uff0e\uff15": 12.5,
}


@pytest.mark.parametrize(
    ("text", "number"), READ.items(), ids=[text.encode("unicode_escape").decode() for text in READ]
)
def test_a_number_is_read_as_meant(text: str, number: float) -> None:
    """Digits of other scripts, groups of thousands and of lakhs, decimal commas."""
    assert number_of(text) == number


@pytest.mark.parametrize(
    "text", ["", "x", "5k", "5 %", "(5)", "0x10", "true", "nan", "inf", "1,250", "1.2.3", "1,2,3", "5\u00b2",
             "\u00bd", "--5", "1 2", "1,0,000", "0,00,000", "1__0", "\u2164", "1e", "e3"],
)  # fmt: skip
def test_a_text_without_one_number_is_refused(text: str) -> None:
    """None, two, or an infinite one."""
    with pytest.raises(NotOneNumber):
        number_of(text)


def test_readings_keep_the_digits() -> None:
    """3.10 stays 3.10; two readings name the thousands first."""
    assert number_readings("3,10") == ("3.10",)
    assert number_readings("1,250") == ("1250", "1.250")
    assert number_readings("0x10") == ("16",)
