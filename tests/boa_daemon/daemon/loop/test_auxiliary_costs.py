"""Instances rented outside of the daemon: none that a cap has no room for, and each bill once."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.daemon.loop import auxiliary_costs
from boa_daemon.daemon.loop.assembly import database_url, open_storage
from boa_daemon.daemon.loop.auxiliary_costs import NoRoom, billed_usd, check_cap_room, enter_bill
from boa_daemon.daemon.loop.lock import Lock
from boa_daemon.daemon.money.standing_costs import StandingCosts
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.daemon_paths import daemon_paths
from boa_daemon.store.records import InstanceRecord
from boa_daemon.store.storage import Storage
from boa_daemon.testing import a_node, an_instance_type
from boa_daemon.tick.facts.limits import FixedCost, day_of
from boa_daemon.tick.facts.state import NodeState

NOON = day_of(1_800_057_600.0).begins_at + 12 * 3600.0
HOUR = 3600.0
KIND = an_instance_type(gpus=4, usd_per_gpu_hour=0.5)


def site(folder: Path, **budget: Any) -> Settings:
    """Return settings with wide caps, but for the given ones."""
    wide = {"usd_per_hour": 1.0, "usd_per_day_cap": 1000.0, "usd_per_month_cap": 10_000.0}
    return Settings.model_validate({"budget": wide | budget, "daemon": {"state_dir": str(folder)}})


def storage_of(settings: Settings) -> Storage:
    """Return the opened database of a site."""
    daemon_paths(settings).state.mkdir(exist_ok=True)
    return open_storage(database_url(settings), durable=False)


def rented(settings: Settings, *nodes: NodeState) -> None:
    """Record instances as the daemon lists them."""
    with closing(storage_of(settings)) as storage:
        for node in nodes:
            storage.queue.save_instance(InstanceRecord(node=node, last_seen_at=NOON))


def ended(name: str, *, at: float) -> NodeState:
    """Return a node that ran for an hour until then."""
    node = a_node(name, kind=KIND, launched_at=at - HOUR, phase="terminated")
    return replace(node, ended_at=at)


def has_room(settings: Settings, usd: float, rate: float = 0.0, **standing: float) -> bool:
    """Return whether the caps have room for one more instance at noon."""
    try:
        check_cap_room(settings, usd, rate, now=NOON, **standing)
    except NoRoom:
        return False
    return True


@pytest.mark.parametrize("window", ["day", "month"])
def test_the_highest_cost_of_an_instance_fits_under_each_cap(tmp_path: Path, window: str) -> None:
    """Up to the cap, the cap itself included; the error names it and what it leaves."""
    settings = site(tmp_path, usd_per_hour=0.01, **{f"usd_per_{window}_cap": 50.0})
    assert has_room(settings, 50.0)
    assert not has_room(settings, 50.01)
    with pytest.raises(NoRoom, match=rf"usd_per_{window}_cap \$50\.00 leaves \$50\.00"):
        check_cap_room(settings, 60.0, 0.0, now=NOON)


@pytest.mark.parametrize("window", ["day", "month"])
def test_a_cap_that_was_lowered_by_order_holds(tmp_path: Path, window: str) -> None:
    """The settings' cap is the higher one; an order to raise it does nothing."""
    settings = site(tmp_path)
    with closing(storage_of(settings)) as storage:
        storage.orders.lower(window, 5.0)
    assert has_room(settings, 5.0)
    assert not has_room(settings, 5.1)
    with closing(storage_of(settings)) as storage:
        storage.orders.lower(window, 1e6)
    assert not has_room(settings, 10_001.0)


def test_what_runs_counts_from_its_launch_on_and_what_was_billed_counts_in_its_window(tmp_path: Path) -> None:
    """Two hours at 2 USD; yesterday's hours are in the month alone."""
    settings = site(tmp_path, usd_per_day_cap=50.0)
    rented(settings, a_node("i-1", kind=KIND, launched_at=NOON - 2 * HOUR))
    assert has_room(settings, 46.0)
    assert not has_room(settings, 46.01)
    rented(settings, a_node("i-1", kind=KIND, launched_at=NOON - 14 * HOUR))
    assert has_room(settings, 26.0)
    assert not has_room(settings, 26.01)


def test_standing_costs_of_the_hours_to_come_are_set_aside(tmp_path: Path) -> None:
    """An hour is charged already, eleven are to come today; those beside the settings count, too."""
    settings = site(tmp_path, usd_per_day_cap=50.0, standing_usd_per_hour=1.0)
    with closing(storage_of(settings)) as storage:
        StandingCosts(storage.store).charge((("gateway", 1.0),), now=NOON)
    assert has_room(settings, 38.0)
    assert not has_room(settings, 38.01)
    assert has_room(settings, 27.0, standing_usd_per_hour=1.0)
    assert not has_room(settings, 27.01, standing_usd_per_hour=1.0)


def test_what_is_paid_in_any_case_is_set_aside_and_runs_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commitment of 1 USD per hour takes 24 USD of the day, and 1 USD of the ceiling per hour."""
    paid = SimpleNamespace(fixed=(FixedCost(name="plan", usd_per_hour=1.0),))
    monkeypatch.setattr(auxiliary_costs, "site_commitments", lambda *_: paid)
    settings = site(tmp_path, usd_per_day_cap=50.0, usd_per_hour_ceiling=5.0)
    assert has_room(settings, 26.0)
    assert not has_room(settings, 26.01)
    assert has_room(settings, 1.0, 4.0)
    assert not has_room(settings, 1.0, 4.01)


def test_the_ceiling_counts_all_that_runs_and_stands(tmp_path: Path) -> None:
    """A node of 2 USD, half a dollar of standing costs, and the new one; an ended node costs nothing more."""
    settings = site(tmp_path, usd_per_hour_ceiling=5.0, standing_usd_per_hour=0.25)
    rented(settings, a_node("i-1", kind=KIND, launched_at=NOON - HOUR), ended("i-0", at=NOON - 60.0))
    assert has_room(settings, 1.0, 2.5, standing_usd_per_hour=0.25)
    assert not has_room(settings, 1.0, 2.51, standing_usd_per_hour=0.25)
    with pytest.raises(NoRoom, match=r"\$5\.25/hour would run, and \[budget\] usd_per_hour_ceiling is \$5"):
        check_cap_room(settings, 1.0, 3.0, now=NOON)


def test_stopped_and_ended_instances_do_not_count_as_running(tmp_path: Path) -> None:
    """Two run and two are allowed: no third; with one of them stopped there is room."""
    settings = site(tmp_path, max_instances=2)
    first, second = (a_node(name, kind=KIND, launched_at=NOON - HOUR) for name in ("i-1", "i-2"))
    rented(settings, first, second)
    with pytest.raises(NoRoom, match="2 instances run"):
        check_cap_room(settings, 1.0, 1.0, now=NOON)
    rented(settings, a_node("i-2", kind=KIND, launched_at=NOON - HOUR, phase="stopped"))
    assert has_room(settings, 1.0, 1.0)


def test_a_bill_is_entered_once_and_by_one_program(tmp_path: Path) -> None:
    """While a daemon runs it lists and bills the instance itself."""
    settings = site(tmp_path)
    node = ended("i-1", at=NOON - HOUR)
    lock = Lock(daemon_paths(settings).state)
    lock.take()
    assert enter_bill(settings, node) is True
    lock.give_back()
    assert billed_usd(settings, now=NOON) in (None, {})
    assert enter_bill(settings, node) is False
    assert sum((billed_usd(settings, now=NOON) or {}).values()) == pytest.approx(2.0)
    assert enter_bill(settings, node) is False
    assert sum((billed_usd(settings, now=NOON) or {}).values()) == pytest.approx(2.0)
