"""Units: budgets as people write them, money in whole micro-dollars, durations in words."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.errors import InputError
from boa_daemon.units import (
    PER_HOUR,
    counted,
    dollars,
    format_hours,
    micro_dollars,
    parse_budget,
    parse_dollars,
    split_budgets,
)
from policies.model import Budget

amounts = st.floats(min_value=1e-6, max_value=1e9)


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("60/h", 60.0, "usd_per_hour"),
        ("60/hour", 60.0, "usd_per_hour"),
        ("$60 / H", 60.0, "usd_per_hour"),
        ("900/day", 900 / 24, "usd_per_hour"),
        ("8,400/week", 8400 / (24 * 7), "usd_per_hour"),
        ("25000/month", 25000 / (365 * 24 / 12), "usd_per_hour"),
        ("gpus:48", 48.0, "gpus"),
        (" GPUS: 1.5 ", 1.5, "gpus"),
        ("87600/year", 10.0, "usd_per_hour"),
        ("60/hr", 60.0, "usd_per_hour"),
        ("US$60/h", 60.0, "usd_per_hour"),
        ("60 USD/hour", 60.0, "usd_per_hour"),
        ("60 $/h", 60.0, "usd_per_hour"),
        ("25 000/month", 25000 / 730, "usd_per_hour"),
        ("25\u202f000/month", 25000 / 730, "usd_per_hour"),
        ("25'000.50/month", 25000.5 / 730, "usd_per_hour"),
        ("1,00,000/month", 100000 / 730, "usd_per_hour"),
        ("\u0666\u0660/h", 60.0, "usd_per_hour"),
        ("1.5e3/day", 1500 / 24, "usd_per_hour"),
    ],
)
def test_a_budget_is_an_amount_per_time_or_a_count(text: str, amount: float, unit: str) -> None:
    """Dollars per any time become dollars per hour; a month is a twelfth of 365 days."""
    budget = parse_budget(text)

    assert budget.unit == unit
    assert budget.amount == pytest.approx(amount, rel=1e-15)


@given(amount=amounts)
def test_the_same_money_reads_alike_in_every_unit(amount: float) -> None:
    """A day is 24 hours, a week 7 days, and a month 730 hours."""
    by_hour = parse_budget(f"{amount!r}/h").amount

    assert by_hour == amount
    for per, hours in (("day", 24), ("week", 168), ("month", 730)):
        assert math.isclose(parse_budget(f"{amount * hours!r}/{per}").amount, by_hour, rel_tol=1e-12)
    assert parse_budget(f"gpus:{amount!r}") == Budget(amount=amount, unit="gpus")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "60",
        "60/",
        "/h",
        "60/fortnight",
        "-3/h",
        "0/day",
        "nan/h",
        "inf/h",
        "1e999/h",
        "gpus:",
        "gpus:0",
        "gpus:x",
        "1/h/h",
    ],
)
def test_a_budget_that_says_nothing_is_refused(text: str) -> None:
    """No unit, an unknown one, or an amount that is not positive: the answer shows how to write it."""
    with pytest.raises(InputError, match="60/h, 900/day or 25000/month"):
        parse_budget(text)


@given(text=st.text(max_size=12) | st.from_regex(r"(gpus:)?[\d.,e+-]{1,6}(/[a-z]{1,5})?", fullmatch=True))
def test_any_text_is_a_budget_or_refused(text: str) -> None:
    """Whatever stands on the command line, the budget is positive and finite, or there is an error."""
    try:
        amount = parse_budget(text).amount
    except InputError:
        return
    assert 0.0 < amount < math.inf


def test_dollars_in_all() -> None:
    """A sum may have a sign and thousands."""
    assert parse_dollars("$1,500") == 1500.0
    with pytest.raises(InputError, match="'ten' is not a positive number"):
        parse_dollars("ten")


@given(micro=st.integers(-(10**15), 10**15))
def test_micro_dollars_survive_the_way_to_dollars_and_back(micro: int) -> None:
    """Amounts up to a thousand million dollars lose nothing."""
    assert micro_dollars(dollars(micro)) == micro


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5k/day", "Write 5000/day"),
        ("$1.2M/year", "Write $1200000/year"),
        ("0x10/h", "Write 16/h"),
        ("\u20ac900/day", "is in \u20ac: budgets and caps count USD"),
        ("CHF 5'000/month", "is in CHF"),
        ("5.000 EUR/month", "is in EUR"),
        ("C$40/h", "is in C$"),
        ("25.000/month", "may be 25000 or 25. Write 25000/month or 25/month"),
        ("gpus:1.500", "may be 1500 or 1.5"),
        ("(900)/day", "'(900)' is not a positive number"),
        ("90%/day", "not a positive number"),
    ],
)
def test_an_amount_that_may_mean_another_is_refused(text: str, said: str) -> None:
    """With what to write."""
    with pytest.raises(InputError) as refused:
        parse_budget(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (0.0, "0 s"),
        (0.01, "36 s"),
        (0.5, "30.0 min"),
        (3.2, "3.20 h"),
        (72.0, "3.0 days"),
        (math.inf, "unknown"),
    ],
)
def test_durations_are_said_in_a_fitting_unit(hours: float, words: str) -> None:
    """Seconds, minutes, hours or days, whichever a person would use."""
    assert format_hours(hours) == words


def test_one_thing_is_no_plural() -> None:
    """None and many are, one is not."""
    assert [counted(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


@pytest.mark.parametrize(
    ("text", "hint"), [("60,5/h", "Write 60.5/h"), ("gpus:1,5", "1.5"), ("0,500/h", "0.500/h")]
)
def test_a_decimal_comma_is_no_thousands_separator(text: str, hint: str) -> None:
    """60,5 an hour is not 605: the answer shows how to write it."""
    with pytest.raises(InputError, match="decimal comma") as refused:
        parse_budget(text)
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("text", "texts", "points"),
    [
        ("8..40", ("8", "40"), None),
        ("8..40:200", ("8", "40"), 200),
        ("8,12,20", ("8", "12", "20"), None),
        ("200..900/day:15", ("200/day", "900/day"), 15),
        ("200..900:15/day", ("200/day", "900/day"), 15),
        ("20/h..900/day", ("20/h", "900/day"), None),
        ("20,30/h", ("20/h", "30/h"), None),
        ("20/h, 30/h ,900/day", ("20/h", "30/h", "900/day"), None),
        ("gpus:8..40", ("gpus:8", "gpus:40"), None),
        ("GPUS:8..40:4", ("GPUS:8", "gpus:40"), 4),
        ("gpus:8,gpus:12", ("gpus:8", "gpus:12"), None),
        ("gpus:8,20/h", ("gpus:8", "20/h"), None),
        ("60/h", ("60/h",), None),
    ],
)
def test_lists_and_ranges_of_budgets_are_split_into_budgets(
    text: str, texts: tuple[str, ...], points: int | None
) -> None:
    """A unit at the end, or gpus: at the beginning, holds for all without their own."""
    found = split_budgets(text)
    assert (found.texts, found.points) == (texts, points)
    assert found.is_range == (".." in text)


def test_the_unit_of_several_budgets_is_that_of_the_first() -> None:
    """Answers are given in the unit that was typed first; GPUs have none."""
    assert split_budgets("200..900/day:15").per.name == "day"
    assert split_budgets("20000/month,40/h").per.name == "month"
    assert split_budgets("gpus:8..40").per is PER_HOUR
