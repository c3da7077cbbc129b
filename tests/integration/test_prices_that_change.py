"""A list price that changes: what runs on demand is charged what EC2 charges, and the caps follow.

Each row changes a price under a daemon whose job runs on one node, restarts the daemon, and compares the
final bill with EC2's: the old price until the date of the new one, then the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from aws_days import EXTRAS, PRICE, TYPE, with_credentials
from aws_rigs import START
from priced_days import Path_, Priced, a_priced_day

NOTICED_SECONDS = 240.0
"""A price list is asked each 170 s, in the rhythm of refreshes and ticks."""
BEFORE_SECONDS = 240.0


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with_credentials(monkeypatch)


@pytest.fixture
def priced(tmp_path: Path) -> Iterator[Priced]:
    """A daemon whose job of half an hour has run for four minutes on one node."""
    with a_priced_day(tmp_path) as found:
        found.day.submit(hours=0.5)
        found.day.ticks(BEFORE_SECONDS / 60.0)
        assert found.day.statuses() == ["running"]
        yield found


def _from_a_file(priced: Priced) -> None:
    """Restart with a price file, and without the right to the price list."""
    priced.write(PRICE)
    priced.day.rig.fake.faults.plan("GetProducts", "error:AccessDeniedException", times=10**6)
    priced.day.rig.settings = priced.day.rig.settings.model_copy(update={"prices": str(priced.file)})
    priced.reopen()
    priced.day.ticks(1.0)


Change = Callable[[Priced], Path_]


def listed(usd: float, *, ago: float) -> Change:
    """Return a change of the price list, which begins so many seconds ago, or later if negative."""

    def do(priced: Priced) -> Path_:
        since = float(int(priced.now() - ago))
        terms = priced.day.rig.fake.terms
        terms.dated_prices[TYPE] = [(START - 1e7, PRICE), (since, usd)]
        return [(since, usd)]

    return do


def undated(usd: float) -> Change:
    """Return a change of a price list that does not say since when."""

    def do(priced: Priced) -> Path_:
        priced.day.rig.fake.terms.list_prices[TYPE] = usd
        return [(priced.now(), usd)]

    return do


def same_date(usd: float) -> Change:
    """Return another price with the date of the one before: it counts from when it is seen."""

    def do(priced: Priced) -> Path_:
        terms = priced.day.rig.fake.terms
        terms.dated_prices[TYPE] = [(START - 1e7, PRICE)]
        priced.day.ticks(4.0)
        terms.dated_prices[TYPE] = [(START - 1e7, usd)]
        return [(priced.now(), usd)]

    return do


def twice(first: float, second: float) -> Change:
    """Return two changes with a restart between them."""

    def do(priced: Priced) -> Path_:
        path = listed(first, ago=0.0)(priced)
        priced.day.ticks(4.0)
        priced.reopen()
        priced.day.ticks(4.0)
        since = float(int(priced.now()))
        priced.day.rig.fake.terms.dated_prices[TYPE] = [(since, second)]
        return [*path, (since, second)]

    return do


def in_a_file(usd: float) -> Change:
    """Return a change of the price file where the price list is denied."""

    def do(priced: Priced) -> Path_:
        _from_a_file(priced)
        priced.write(usd)
        if usd < PRICE:
            # As a SIGHUP does once somebody has consented.
            priced.day.rig.cloud.use(priced.day.rig.settings)
        return [(priced.now(), usd)]

    return do


def another_file(usd: float) -> Change:
    """Return another price file by `[cloud] prices` and a SIGHUP."""

    def do(priced: Priced) -> Path_:
        _from_a_file(priced)
        other = priced.folder / "other.toml"
        priced.write(usd, file=other)
        rig = priced.day.rig
        rig.settings = rig.settings.model_copy(update={"prices": str(other)})
        rig.cloud.use(rig.settings)
        rig.cloud.ask_anew()
        return [(priced.now(), usd)]

    return do


def while_down(priced: Priced) -> Path_:
    """Another price begins while no daemon runs."""
    priced.day.rig.pass_time(240.0)
    since = float(int(priced.now()))
    priced.day.rig.fake.terms.dated_prices[TYPE] = [(since, 2.0)]
    priced.day.rig.pass_time(240.0)
    priced.reopen()
    return [(since, 2.0)]


def before_the_launch(priced: Priced) -> Path_:
    """The price had changed before the launch, and the daemon did not know yet."""
    life = priced.day.rig.fake.history()[0]
    priced.day.rig.fake.terms.dated_prices[TYPE] = [(START - 1e7, PRICE), (life.launched_at - 60.0, 2.0)]
    return [(life.launched_at, 2.0)]


ROWS: dict[str, Change] = {
    "a dearer price from now on": listed(2.0, ago=0.0),
    "a dearer price, seen late": listed(2.0, ago=150.0),
    "a dearer price from later on": listed(2.0, ago=-400.0),
    "a cheaper price from now on": listed(0.5, ago=0.0),
    "a cheaper price, seen late": listed(0.5, ago=150.0),
    "a dearer price without a date": undated(2.0),
    "a cheaper price without a date": undated(0.5),
    "another price with the same date": same_date(2.0),
    "two changes with a restart between": twice(2.0, 3.0),
    "a change while the daemon is down": while_down,
    "a change before the launch": before_the_launch,
    "a dearer price in the file": in_a_file(2.0),
    "a cheaper price in the file, with consent": in_a_file(0.5),
    "another file": another_file(2.0),
}


DATED = [name for name in ROWS if "file" not in name and "without a date" not in name and "same" not in name]


QUICK = ("a dearer price, seen late", "a cheaper price without a date", "another file")
"""Rows that always run; each has a day of half an hour in it."""


@pytest.mark.first_set(1)
@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.exhaustive) for each in ROWS]
)
def test_the_bill_is_that_of_ec2(priced: Priced, name: str) -> None:
    """Also after a restart; the status shows the new price, and an alert says it."""
    path = ROWS[name](priced)
    priced.day.ticks(8.0)
    decision = priced.day.play.daemon.standing.decision
    assert decision is not None
    (node,) = decision.state.nodes.values()
    assert node.usd_per_hour == pytest.approx(path[-1][1] + EXTRAS, rel=1e-3)
    priced.reopen()
    priced.day.ticks(35.0)
    assert priced.day.statuses() == ["finished"]
    (life,) = priced.day.rig.fake.history()
    assert life.ended_at is not None
    begins = [life.launched_at, *(at for at, _ in path), life.ended_at]
    prices = [PRICE, *(usd for _, usd in path)]
    hours = [(end - begin) / 3600.0 for begin, end in pairwise(begins)]
    truth = sum(usd * each for usd, each in zip(prices, hours, strict=True))
    truth += EXTRAS * (life.ended_at - life.launched_at) / 3600.0
    # A price without a date counts from when it is seen.
    late = 0.0 if name in DATED else NOTICED_SECONDS / 3600.0 * abs(prices[-1] - prices[-2])
    assert priced.day.charged() == pytest.approx(truth, abs=late + 0.001)


def test_a_price_above_the_cap_ends_the_node(priced: Priced) -> None:
    """The caps count what EC2 charges from now on: the node goes before the day's cap is broken."""
    priced.day.rig.fake.terms.list_prices[TYPE] = 900.0
    priced.day.ticks(30.0)
    assert priced.day.rig.fake.live() == []
    assert priced.day.charged() <= 300.0
