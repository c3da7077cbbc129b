"""Prices that become known after a node has ended, and prices that only an earlier process knew.

Each row has a daemon run a job of half an hour on one node, with some price out of its sight; the final bill
is that of EC2 once the price can be seen, also for the job, its user and the day, and people are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from aws_days import EXTRAS, PRICE, SETTINGS, TYPE, with_credentials
from aws_rigs import START
from postgres_server import PostgresServer, empty_database, postgres_programs
from priced_days import Path_, Priced, a_priced_day

from boa_daemon.daemon.money.costs import cost_rows
from boa_daemon.testing.fake_terms import Lifetime, Terms

ZONE = "us-east-1a"
COMMITMENT = f"""
as_of = 2026-11-01
source = "a test"
[[commitments]]
name = "half"
kind = "compute"
discounts = {{{TYPE.partition(".")[0]} = 0.0}}
usd_per_hour = {0.5 * PRICE}
begins = 2025-12-01
term_years = 3
ends = 2028-11-01
"""
Step = Callable[[Priced], None]


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with_credentials(monkeypatch)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all rows."""
    with PostgresServer() as found:
        yield found


def _nothing(priced: Priced) -> None:
    """Change nothing."""


def _hides(operation: str) -> Step:
    """Return a step that keeps AWS from answering an operation."""

    def do(priced: Priced) -> None:
        priced.day.rig.fake.faults.plan(operation, "error:AccessDeniedException", times=10**6)

    return do


def _shows_all(priced: Priced) -> None:
    """Let AWS answer again."""
    priced.day.rig.fake.faults.planned.clear()


def _lists(*path: tuple[float, float]) -> Step:
    """Return a step after which AWS lists these prices, by the time since the launch."""

    def do(priced: Priced) -> None:
        (life,) = priced.day.rig.fake.history()
        found = [(float(int(life.launched_at + at)), usd) for at, usd in path]
        priced.day.rig.fake.terms.dated_prices[TYPE] = found

    return do


def _spot(*path: tuple[float, float]) -> Step:
    """Return a step after which the spot price is this, by the time since the launch."""

    def do(priced: Priced) -> None:
        (life,) = priced.day.rig.fake.history()
        before = priced.day.rig.fake.terms.spot_paths[TYPE, ZONE][:1]
        found = [(float(int(life.launched_at + at)), usd) for at, usd in path]
        priced.day.rig.fake.terms.spot_paths[TYPE, ZONE] = [*before, *found]

    return do


@dataclass(frozen=True)
class Late:
    """What happens `at_launch` and `after` the end, and what EC2 charges since the launch."""

    after: Step
    truth: tuple[tuple[float, float], ...]
    at_launch: Step = _nothing
    market: str = "on-demand"


def _both(*steps: Step) -> Step:
    def do(priced: Priced) -> None:
        for step in steps:
            step(priced)

    return do


SPOT = ((0.0, 0.3), (900.0, 0.6), (1500.0, 0.2))
ROWS: dict[str, Late] = {
    "a dearer price, published after the end": Late(
        after=_lists((-1e7, PRICE), (600.0, 2.0)), truth=((0.0, PRICE), (600.0, 2.0))
    ),
    "a cheaper price, published after the end": Late(
        after=_lists((-1e7, PRICE), (600.0, 0.5)), truth=((0.0, PRICE), (600.0, 0.5))
    ),
    "a price since before the launch": Late(after=_lists((-1e7, PRICE), (-60.0, 1.5)), truth=((0.0, 1.5),)),
    "a price from after the end on": Late(after=_lists((-1e7, PRICE), (2500.0, 1.5)), truth=((0.0, PRICE),)),
    "a price list that was denied since the launch": Late(
        at_launch=_both(_hides("GetProducts"), _lists((-1e7, PRICE), (600.0, 2.0))),
        after=_shows_all,
        truth=((0.0, PRICE), (600.0, 2.0)),
    ),
    "a spot price of the last minutes": Late(
        market="spot",
        at_launch=_spot((1790.0, 0.9)),
        after=_nothing,
        truth=((0.0, 0.3), (1790.0, 0.9)),
    ),
    "spot prices that were denied since the launch": Late(
        market="spot",
        at_launch=_both(_hides("DescribeSpotPriceHistory"), _spot(*SPOT[1:])),
        after=_shows_all,
        truth=SPOT,
    ),
}
QUICK = ("a dearer price, published after the end", "spot prices that were denied since the launch")


def _usd(life: Lifetime, truth: tuple[tuple[float, float], ...]) -> float:
    """Return what EC2 charges for an instance, with its extras."""
    assert life.ended_at is not None
    begins = [*(life.launched_at + at for at, _ in truth), life.ended_at]
    hours = [(end - begin) / 3600.0 for begin, end in pairwise(begins)]
    compute = sum(usd * each for (_, usd), each in zip(truth, hours, strict=True))
    return compute + EXTRAS * (life.ended_at - life.launched_at) / 3600.0


@pytest.mark.first_set(1)
@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.exhaustive) for each in ROWS]
)
def test_a_final_bill_is_corrected(tmp_path: Path, name: str, is_restarted: bool) -> None:
    """Once, in the ledger and in the costs of jobs and days; told if it differs, and never again."""
    row = ROWS[name]
    terms = Terms(spot_paths={(TYPE, ZONE): [(START - 1e5, 0.3)]})
    terms.dated_prices[TYPE] = [(START - 1e7, PRICE)]
    with a_priced_day(tmp_path, terms, market=row.market) as priced:
        day = priced.day
        day.submit(hours=0.5)
        day.until(day.rig.fake.history, minutes=5.0)
        row.at_launch(priced)
        day.until(lambda: day.statuses() == ["finished"] and not day.rig.fake.live(), minutes=60.0)
        day.ticks(1.0)
        (life,) = day.rig.fake.history()
        before, truth = day.charged(), _usd(life, row.truth)
        assert before > 0.0
        if is_restarted:
            priced.reopen()
            day = priced.day
        row.after(priced)
        day.ticks(10.0)
        assert day.charged() == pytest.approx(truth, abs=0.0005)
        database, now = day.play.storage.store.database, priced.now()
        for by in ("job", "day"):
            rows = cost_rows(day.play.storage.queue, by=by, since=START - 1e6, now=now)
            assert sum(float(each["usd"]) for each in rows) == pytest.approx(truth, abs=0.0005), rows
        told = [said for said in day.alerts() if "became known late" in said]
        assert len(told) == (abs(truth - before) > 0.0005), told
        assert database is not None
        priced.reopen()
        priced.day.ticks(5.0)
        assert priced.day.charged() == pytest.approx(truth, abs=0.0005)
        assert [said for said in priced.day.alerts() if "became known late" in said] == told


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        each if each in QUICK else pytest.param(each, marks=pytest.mark.exhaustive)
        for each, row in ROWS.items()
        if row.market == "on-demand"
    ],
)
def test_a_final_bill_is_corrected_that_commitments_cover_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_restarted: bool
) -> None:
    """Half of the node is covered: the other half costs half of each list price."""
    file = tmp_path / "commitments.toml"
    file.write_text(COMMITMENT, encoding="utf-8")
    monkeypatch.setitem(SETTINGS, "cloud", {**SETTINGS["cloud"], "commitments": str(file)})  # type: ignore[arg-type]
    row = ROWS[name]
    terms = Terms()
    terms.dated_prices[TYPE] = [(START - 1e7, PRICE)]
    with a_priced_day(tmp_path, terms) as priced:
        day = priced.day
        day.submit(hours=0.5)
        day.until(day.rig.fake.history, minutes=5.0)
        row.at_launch(priced)
        if is_restarted:
            day.ticks(8.0)
            priced.reopen()
            day = priced.day
        day.until(lambda: day.statuses() == ["finished"] and not day.rig.fake.live(), minutes=60.0)
        day.ticks(1.0)
        (life,) = day.rig.fake.history()
        fixed = day.play.storage.store.settled_micro_dollars() / 1e6 - day.charged()
        assert fixed == pytest.approx(0.0, abs=1e-6), "what is paid in any case is no bill of a node"
        if is_restarted:
            priced.reopen()
            day = priced.day
        row.after(priced)
        day.ticks(10.0)
        halves = tuple((at, 0.5 * usd) for at, usd in row.truth)
        assert day.charged() == pytest.approx(_usd(life, halves), abs=0.0005)


def _new_list(priced: Priced, usd: float) -> None:
    """Have AWS list another price, without saying since when."""
    priced.day.rig.fake.terms.list_prices[TYPE] = usd


BEFORE, IN, AFTER = "before", "in", "after"
RESTARTS: dict[str, tuple[str, ...]] = {
    "never": (),
    "before the step": (BEFORE,),
    "in the step, which begins while no daemon runs": (IN,),
    "after the step": (AFTER,),
    "at each point": (BEFORE, IN, AFTER),
}


DATABASES = ("sqlite", *(("postgresql",) if postgres_programs() else ()))
CASES = [(kind, name, is_denied) for kind in DATABASES for name in RESTARTS for is_denied in (False, True)]


@pytest.mark.first_set(1)
@pytest.mark.parametrize(
    ("kind", "name", "is_denied"),
    [
        case if case[1:] == ("at each point", True) else pytest.param(*case, marks=pytest.mark.exhaustive)
        for case in CASES
    ],
)
def test_a_step_outlives_the_process(
    tmp_path: Path, server: PostgresServer, kind: str, name: str, is_denied: bool
) -> None:
    """Two steps without a date, the first of which no list says any more after the second.

    A node whose record was lost with its prices, as under commitments, is charged each step; where the
    price list is denied after the last restart, new nodes cost what AWS said last.
    """
    url = server.url if kind == "postgresql" else ""
    if url:
        empty_database(url)
    with a_priced_day(tmp_path, Terms(), database=url) as priced:
        assert priced.day.play.storage.store.database.engine.dialect.name == kind
        restarts = RESTARTS[name]
        priced.day.submit(hours=0.5)
        priced.day.ticks(4.0)
        path: Path_ = []
        for usd in (2.0, 3.0):
            if BEFORE in restarts:
                priced.reopen()
                priced.day.ticks(1.0)
            path.append((priced.now(), usd))
            _new_list(priced, usd)
            if IN in restarts:
                priced.reopen()
            priced.day.ticks(4.0)
        if AFTER in restarts:
            if is_denied:
                _hides("GetProducts")(priced)
            priced.reopen()
            priced.day.ticks(2.0)
        market = priced.day.rig.cloud.market
        (life,) = priced.day.rig.fake.history()
        known = market.charged(TYPE, ((life.launched_at, PRICE),))
        assert [usd for _, usd in known] == [PRICE, 2.0, 3.0]
        for (at, _), (since, _) in zip(known[1:], path, strict=True):
            assert 0.0 <= at - since <= 240.0
        assert market.list_price(TYPE) == 3.0
        priced.day.until(lambda: priced.day.statuses() == ["finished"], minutes=40.0)
        priced.day.ticks(3.0)
        late = 240.0 / 3600.0 * (2.0 - PRICE + 1.0)
        truth = _usd(life, ((0.0, PRICE), *((at - life.launched_at, usd) for at, usd in path)))
        assert priced.day.charged() == pytest.approx(truth, abs=late)
