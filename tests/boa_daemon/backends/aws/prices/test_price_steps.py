"""`aws/prices/price_steps.py`: list prices over time."""

from __future__ import annotations

import pytest

from boa_daemon.backends.aws.prices.price_steps import (
    ListPrice,
    PricePath,
    PriceStep,
    PriceSteps,
    after_end,
    after_steps,
    day_of,
    joined,
)


def live(usd: float, since: float | None = None) -> ListPrice:
    """Return a price that AWS lists."""
    return ListPrice(usd_per_hour=usd, since=since, is_live=True)


NOTED: dict[str, tuple[list[ListPrice], PricePath]] = {
    "one price": ([live(1.0, 50.0)], ((100.0, 1.0),)),
    "a later one": ([live(1.0, 50.0), live(2.0, 300.0)], ((100.0, 1.0), (300.0, 2.0))),
    "one without a date": ([live(1.0), live(2.0)], ((100.0, 1.0), (1000.0, 2.0))),
    "another than that of the launch, without a date": ([live(2.0)], ((100.0, 1.0), (1000.0, 2.0))),
    "another one of the same date": ([live(1.0, 50.0), live(2.0, 50.0)], ((100.0, 1.0), (1000.0, 2.0))),
    "one before the launch": ([live(2.0, 60.0)], ((100.0, 1.0), (100.0, 2.0))),
    "the same price with another date": ([live(1.0, 50.0), live(1.0, 300.0)], ((100.0, 1.0),)),
    "a price that goes back": (
        [live(1.0, 50.0), live(2.0, 300.0), live(1.0, 400.0)],
        ((100.0, 1.0), (300.0, 2.0), (400.0, 1.0)),
    ),
    "an old price of a file": ([ListPrice(usd_per_hour=9.0, since=50.0)], ((100.0, 1.0),)),
    "a newer price of a file": ([ListPrice(usd_per_hour=9.0, since=150.0)], ((100.0, 1.0), (150.0, 9.0))),
    "a file that changes": (
        [ListPrice(usd_per_hour=1.0, since=50.0), ListPrice(usd_per_hour=2.0, since=150.0)],
        ((100.0, 1.0), (1000.0, 2.0)),
    ),
    "a file, and then AWS itself": (
        [ListPrice(usd_per_hour=1.0, since=50.0), live(2.0, 80.0)],
        ((100.0, 1.0), (100.0, 2.0)),
    ),
}


@pytest.mark.parametrize("name", NOTED)
def test_an_instance_is_charged_what_is_in_effect(name: str) -> None:
    """Launched at 100 for a dollar, looked at at 1000; looking again changes nothing."""
    prices, expected = NOTED[name]
    steps = PriceSteps()
    for price in prices:
        steps.note("t", price, now=1000.0)
    path = after_steps(((100.0, 1.0),), steps.of("t"))

    assert path == expected
    assert after_steps(path, steps.of("t")) == path


@pytest.mark.parametrize("name", NOTED)
def test_the_next_process_goes_on_with_the_same_steps(name: str) -> None:
    """A restart after each price: a step that no list says any more stays known."""
    prices, expected = NOTED[name]
    documents: dict[str, str] = {}
    for price in prices:
        steps = PriceSteps()
        steps.restore(documents)
        steps.note("t", price, now=1000.0)
        documents = steps.documents()
    steps = PriceSteps()
    steps.restore(documents)

    assert after_steps(((100.0, 1.0),), steps.of("t")) == expected
    assert steps.documents() == documents


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", "[1, 2, 3, 4]", "[null, null, 0, [[1]]]", "[[], [], 0, 0]"]
)
def test_a_text_that_cannot_be_read_is_as_if_there_were_none(text: str) -> None:
    """Written by another version, or damaged."""
    steps = PriceSteps()
    steps.restore({"t": text})

    assert list(steps.of("t")) == []
    assert steps.last_of_aws("t") is None


def test_a_file_that_stands_in_for_aws_changes_nothing_that_runs() -> None:
    """A restart without the price list: the file's old price is none of a step, its next one is."""
    steps = PriceSteps()
    steps.note("t", live(2.0), now=1000.0)
    again = PriceSteps()
    again.restore(steps.documents())
    again.note("t", ListPrice(usd_per_hour=1.0, since=50.0), now=2000.0)
    path: PricePath = ((500.0, 1.5),)

    assert again.last_of_aws("t") == (live(2.0), 1000.0)
    assert after_steps(path, again.of("t")) == ((500.0, 1.5), (1000.0, 2.0))
    again.note("t", ListPrice(usd_per_hour=3.0, since=60.0), now=3000.0)
    assert after_steps(path, again.of("t")) == ((500.0, 1.5), (1000.0, 2.0), (3000.0, 3.0))


ENDED: dict[str, tuple[PricePath, PricePath]] = {
    "an ordinary node": (((100.0, 1.0),), ((100.0, 1.0), (300.0, 2.0))),
    "one that shut down": (((100.0, 1.0), (400.0, 0.0)), ((100.0, 1.0), (300.0, 2.0), (400.0, 0.0))),
    "one that shut down before": (((100.0, 1.0), (250.0, 0.0)), ((100.0, 1.0), (250.0, 0.0))),
    "one that was free": (((100.0, 0.0),), ((100.0, 0.0),)),
    "one that has no prices": ((), ()),
    "one that knows the step": (((100.0, 1.0), (300.0, 2.0)), ((100.0, 1.0), (300.0, 2.0))),
}


@pytest.mark.parametrize("name", ENDED)
def test_an_ended_node_is_charged_a_step_that_became_known_late(name: str) -> None:
    """Steps at 300 and, after its end at 500, at 600: what was free stays free, and twice is as once."""
    steps = [PriceStep(since=300.0, usd_per_hour=2.0), PriceStep(since=600.0, usd_per_hour=9.0)]
    prices, expected = ENDED[name]
    found = after_end(prices, lambda paid: after_steps(paid, steps), ended_at=500.0)

    assert found == expected
    assert after_end(found, lambda paid: after_steps(paid, steps), ended_at=500.0) == expected


def test_a_history_goes_before_what_was_known() -> None:
    """A history that begins later leaves the earlier prices; without one they stay."""
    before = ((100.0, 1.0), (300.0, 2.0))

    assert joined(before, ()) == before
    assert joined(before, [(200.0, 5.0)]) == ((100.0, 1.0), (200.0, 5.0))
    assert joined((), [(200.0, 5.0)]) == ((200.0, 5.0),)


def test_a_tag_rounds_and_is_no_other_price() -> None:
    """Tags have six digits."""
    assert after_steps(((0.0, 1.00000),), [PriceStep(since=5.0, usd_per_hour=1.0000004)]) == ((0.0, 1.0),)


def test_a_day_begins_in_utc_and_other_text_is_no_day() -> None:
    """Files state days."""
    assert (day_of("1970-01-02"), day_of(""), day_of("spring")) == (86_400.0, None, None)
