"""The ledger counts money in whole micro-dollars, including launches that are only intended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_node, a_state, an_instance_type
from boa_daemon.tick.facts.limits import Window
from boa_daemon.tick.facts.offers import Cooldown
from boa_daemon.tick.money.ledger import (
    Ledger,
    bill,
    bill_by_kind,
    bill_by_kind_within,
    bill_within,
    charge_for,
    micro_dollars_for,
    money_of,
    opening_of,
)
from policies.online.pacing import Pace

SECONDS = st.floats(0.0, 1e7)


def test_an_hour_on_two_nodes_costs_two_node_hours() -> None:
    """Charges are price times time, node by node."""
    kind = an_instance_type(gpus=3)

    assert 2 * micro_dollars_for(kind, 3600.0) == 2 * 3_000_000


def test_a_bill_is_for_at_least_a_minute_and_then_by_the_second() -> None:
    """One second costs as much as 60 s; 61 s cost 61 s."""
    kind = an_instance_type(gpus=4)

    assert micro_dollars_for(kind, 1.0) == micro_dollars_for(kind, 60.0) == round(4e6 / 60)
    assert micro_dollars_for(kind, 61.0) == round(4e6 * 61 / 3600)


@given(seconds=SECONDS, more=SECONDS)
def test_a_longer_run_never_costs_less(seconds: float, more: float) -> None:
    """Every bill is above zero."""
    kind = an_instance_type()

    assert 0 < micro_dollars_for(kind, seconds) <= micro_dollars_for(kind, seconds + more)


@given(runs=st.lists(SECONDS, max_size=20))
def test_the_sum_of_bills_is_node_seconds_times_price(runs: list[float]) -> None:
    """The tolerance is half a micro-dollar of rounding per bill."""
    kind = an_instance_type()
    total = sum(micro_dollars_for(kind, seconds) for seconds in runs)
    exact = sum(max(seconds, 60.0) * 4e6 / 3600.0 for seconds in runs)

    assert abs(total - exact) <= 0.5 * len(runs) + 1e-3


def test_a_final_bill_covers_the_time_from_launch_to_end() -> None:
    """Half an hour at 4 USD per hour costs 2 USD."""
    node = replace(a_node(launched_at=100.0), phase="terminated", ended_at=1900.0)

    assert charge_for(node).micro_dollars == 2_000_000


def test_a_ready_node_counts_as_spent_and_a_requested_node_as_committed() -> None:
    """The state has 8 USD settled, an hour of a ready node, and the minimum minute of a requested node."""
    state = a_state(
        nodes=[a_node("n1"), a_node("n2", phase="requested", launched_at=3600.0)],
        now=3600.0,
        settled_micro_dollars=8_000_000,
    )
    ledger = Ledger.of(state)

    assert ledger.spent_usd == 8.0 + 4.0
    assert ledger.committed_usd == round(8e6 + 4e6 + 4e6 / 60) / 1e6


def test_a_policy_gets_spent_money_hours_since_the_opening_and_its_memory() -> None:
    """Spent money covers bills and the running cost of ready and requested nodes."""
    state = a_state(
        nodes=[a_node("n1"), a_node("n2", phase="requested")],
        now=7200.0,
        settled_micro_dollars=3_000_000,
        cooldowns={"gpu-x4": Cooldown(until=7260.0)},
        books_opened_at=3600.0,
        memory=((0.5,), 5400.0),
    )
    money = money_of(state)

    assert money is not None
    assert money.spent == 3.0 + 2.0 * 4.0 + 2.0 * 4.0
    assert (money.elapsed_hours, money.is_refused) == (1.0, True)
    assert (money.memory, money.memory_age_hours) == ((0.5,), 0.5)
    assert money_of(a_state()) is None


def test_a_monthly_budget_accrues_the_same_in_every_calendar_month() -> None:
    """From mid January to mid March 1970 two months of 730 h accrue."""
    middle_of_january, middle_of_march = 15.5 * 86_400.0, (31.0 + 28.0 + 15.5) * 86_400.0
    state = a_state(now=middle_of_march, books_opened_at=middle_of_january)
    monthly, hourly = (
        money_of(state, Pace(budget=1.0, period="month", is_monthly=is_monthly))
        for is_monthly in (True, False)
    )

    assert monthly is not None
    assert hourly is not None
    assert monthly.elapsed_hours == pytest.approx(2.0 * 730.0)
    assert (monthly.accrual, hourly.accrual) == (pytest.approx(730.0 / 744.0), 1.0)
    assert monthly.period_elapsed_hours == pytest.approx(365.0)
    assert monthly.period_left_hours == hourly.period_left_hours == 15.5 * 24.0
    assert (hourly.elapsed_hours, hourly.period_elapsed_hours) == (59.0 * 24.0, 15.5 * 24.0)
    quarter = money_of(state, Pace(budget=1.0))
    assert quarter is not None
    assert quarter.period_left_hours == (90.0 - 31.0 - 28.0 - 15.5) * 24.0


def test_the_opening_moves_forward_if_unspent_money_is_older_than_the_window() -> None:
    """Of ten hours one was paid for; with a window of four hours five hours are forgone."""
    pace = Pace(budget=8.0, window_hours=4.0)
    state = a_state(now=36_000.0, settled_micro_dollars=8_000_000, books_opened_at=0.0)

    assert opening_of(state, pace) == 5.0 * 3600.0
    assert opening_of(a_state(now=3600.0, books_opened_at=0.0), pace) == 0.0
    assert opening_of(a_state(), pace) is None


rates = st.floats(min_value=0.0, max_value=0.5)


@given(
    extras=st.tuples(rates, rates, rates),
    price=st.floats(min_value=0.1, max_value=100.0),
    borders=st.lists(st.floats(min_value=0.0, max_value=200_000.0), min_size=2, max_size=6),
)
def test_the_parts_of_a_bill_by_kind_and_by_window_add_up_to_the_bill(
    extras: tuple[float, float, float], price: float, borders: list[float]
) -> None:
    """The kinds are compute, disk, address and requests; the sums are exact to the micro-dollar."""
    kinds = tuple(zip(("disk", "address", "requests"), extras, strict=True))
    node = replace(a_node(launched_at=100.0), prices=((100.0, price),), extras=kinds)
    first, *rest = sorted(borders)
    windows = [
        Window(begins_at=begin, ends_at=end)
        for begin, end in zip([min(first, 0.0), first, *rest], [first, *rest, 300_000.0], strict=True)
        if end > begin
    ]
    until = 250_000.0
    assert sum(bill_by_kind(node, until=until).values()) == bill(node, until=until)
    assert sum(bill_within(node, window, until=until) for window in windows) == bill(node, until=until)
    for window in windows:
        parts = bill_by_kind_within(node, window, until=until)
        assert sum(parts.values()) == bill_within(node, window, until=until)


def test_extras_are_billed_like_compute() -> None:
    """A disk at 0.5 USD per hour is in the ledger, in the node's price, and has the minimum of a minute."""
    node = replace(a_node(), prices=((0.0, 3.0),), extras=(("disk", 0.5),))
    assert node.usd_per_hour == 3.5
    assert Ledger.of(a_state(nodes=[node], now=3600.0)).spent_usd == 3.5
    assert bill(node, until=1.0) == round(3e6 / 60) + round(0.5e6 / 60)


def test_a_bill_is_split_at_each_midnight_and_each_change_of_price() -> None:
    """The node runs from six hours before a midnight to six hours after the next one."""
    kind = an_instance_type(gpus=1)
    node = replace(a_node("n", kind=kind, launched_at=18 * 3600.0), phase="terminated", ended_at=54 * 3600.0)
    assert charge_for(node).days == ((0, 6_000_000), (1, 24_000_000), (2, 6_000_000))
    dearer = replace(node, prices=((0.0, 1.0), (24 * 3600.0, 3.0)))
    assert charge_for(dearer).days == ((0, 6_000_000), (1, 72_000_000), (2, 18_000_000))
    three = replace(node, prices=((0.0, 1.0), (24 * 3600.0, 3.0), (48 * 3600.0, 2.0)))
    assert charge_for(three).micro_dollars == 6_000_000 + 72_000_000 + 12_000_000
    at_midnight = replace(node, ended_at=24 * 3600.0)
    assert charge_for(at_midnight).days == ((0, 6_000_000), (1, 0))
    late = replace(node, launched_at=30 * 3600.0)
    assert charge_for(late).days == ((1, 18_000_000), (2, 6_000_000))


def test_a_nodes_own_price_and_extras_replace_the_price_of_its_type() -> None:
    """Half an hour costs 2 USD at the type's price, 1 USD on spot, and 2.25 USD with a disk."""
    plain = a_node("n", launched_at=0.0)
    for node, usd in (
        (plain, 2.0),
        (replace(plain, prices=((0.0, 2.0),)), 1.0),
        (replace(plain, extras=(("disk", 0.5),)), 2.25),
    ):
        assert Ledger.of(a_state(nodes=[node], now=1800.0)).spent_usd == usd


def test_a_monthly_budget_accrues_twelve_months_of_730_hours_per_year() -> None:
    """Two years from 2027-01-01 accrue 24 months."""
    begin, end = 1_798_761_600.0, 1_861_920_000.0
    state = a_state(now=end, books_opened_at=begin)
    money = money_of(state, Pace(budget=1.0, is_monthly=True))
    assert money is not None
    assert money.elapsed_hours == pytest.approx(24 * 730.0)


def test_a_ledger_that_was_never_opened_has_no_opening() -> None:
    """An opening within the window stays where it is."""
    pace = Pace(budget=1.0, window_hours=24.0)
    assert opening_of(a_state(now=3600.0), pace) is None
    assert opening_of(a_state(now=3600.0, books_opened_at=0.0), pace) == 0.0
