"""Standing costs (without a node): each hour is charged once and in full."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from daemon_time import pass_time
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boa_daemon.daemon.loop.assembly import open_storage
from boa_daemon.daemon.loop.auxiliary_costs import billed_usd, close_standing
from boa_daemon.daemon.money.standing_costs import StandingCosts
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder
from boa_daemon.tick.facts.limits import day_of

START = 1_800_057_600.0 + 600.0
HOUR = 3600.0
SITE = {"budget": {"usd_per_hour": 20.0, "standing_usd_per_hour": 0.045}}


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(looks=st.lists(st.tuples(st.integers(0, 9000), st.booleans()), min_size=1, max_size=12))
def test_each_begun_hour_is_charged_once(
    tmp_path_factory: pytest.TempPathFactory, looks: list[tuple[int, bool]]
) -> None:
    """The charge is hours times price, for any pauses between charges and any restarts."""
    now = START
    with closing(
        open_storage(sqlite_url(tmp_path_factory.mktemp("books") / "b.sqlite"), durable=False)
    ) as storage:
        costs = StandingCosts(storage.store)
        for seconds, is_restarted in looks:
            costs = StandingCosts(storage.store) if is_restarted else costs
            costs.charge((("gateway", 0.045),), now=now)
            hours = 1 + int(now // HOUR) - int(START // HOUR)
            assert storage.store.settled_micro_dollars() == 45_000 * hours
            assert storage.store.standing_charged_until() == (now // HOUR + 1) * HOUR
            now += seconds
        today = day_of(START).begins_at
        assert storage.store.settled_since(today) == storage.store.settled_micro_dollars()


def test_an_hour_is_charged_at_its_highest_price(tmp_path: Path) -> None:
    """The next hour is charged at the price of that hour."""
    with closing(open_storage(sqlite_url(tmp_path / "b.sqlite"), durable=False)) as storage:
        for usd, later, expected in (
            (0.010, 0.0, 10_000),
            (0.025, 60.0, 25_000),
            (0.010, 120.0, 25_000),
            (0.030, 180.0, 30_000),
            (0.010, HOUR, 40_000),
        ):
            StandingCosts(storage.store).charge((("images", usd),), now=START + later)
            assert storage.store.settled_micro_dollars() == expected


def test_caps_count_each_hour_of_the_day_once(tmp_path: Path) -> None:
    """The part already charged and the part still to come add up to the whole day."""
    clock = ManualClock(START)
    play = DaemonInAFolder(tmp_path, clock, {**SITE, "daemon": {"tick_seconds": 300.0}})
    try:
        pass_time(play, 5 * HOUR, every=300.0)
        decision = play.daemon.tick()
        assert decision is not None
        state, caps = decision.state, play.daemon.planner.rules().caps
        assert caps is not None
        day = day_of(state.now)
        to_come = caps.standing_usd_per_hour * day.overlap_seconds(state.standing_charged_until, day.ends_at)
        whole = 0.045 * (day.ends_at - START // HOUR * HOUR) / HOUR
        assert state.settled_today_micro_dollars / 1e6 + to_come / HOUR == pytest.approx(whole)
    finally:
        play.close()


def test_hours_after_the_stack_was_deleted_are_not_charged(tmp_path: Path) -> None:
    """A pause is charged later, but not a pause after `boa down --all --stack`."""
    site = Settings.model_validate({**SITE, "daemon": {"state_dir": str(tmp_path)}})

    def billed(now: float, *, is_closed: bool = False) -> float:
        if is_closed:
            close_standing(site, now=now)
        else:
            with closing(open_storage(sqlite_url(tmp_path / "boa.sqlite"), durable=False)) as storage:
                StandingCosts(storage.store).charge((("gateway", 0.045),), now=now)
        return (billed_usd(site, now=now) or {})["gateway"]

    assert billed_usd(site) is None
    assert billed(START) == pytest.approx(0.045)
    assert billed(START + 3 * HOUR) == pytest.approx(4 * 0.045)
    assert billed(START + 5 * HOUR, is_closed=True) == pytest.approx(6 * 0.045)
    assert billed(START + 500 * HOUR) == pytest.approx(7 * 0.045)
    assert billed(START + 501 * HOUR) == pytest.approx(8 * 0.045)
