"""The log of orders and lowered caps: what is noted is read back, in order, after a restart too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from boa_daemon.store.order_log import KEPT_SECONDS, OrderLog, lowest
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder


@pytest.fixture
def play(tmp_path: Path) -> Iterator[DaemonInAFolder]:
    found = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0))
    yield found
    found.close()


def test_orders_are_read_newest_first_and_old_ones_are_dropped(play: DaemonInAFolder) -> None:
    """Two orders of one instant stay apart; an order of three months ago goes with the next one."""
    log = OrderLog(play.storage.store.database)
    for number, at in enumerate((10.0, 10.0, 20.0)):
        log.note(user="ann", what="hold", target=f"job-{number}", said="said", at=at)
    again = OrderLog(play.storage.store.database)

    assert [one["target"] for one in again.newest(10)] == ["job-2", "job-1", "job-0"]
    assert [one["target"] for one in again.newest(1)] == ["job-2"]
    again.note(user="ann", what="hold", target="late", said="said", at=15.0 + KEPT_SECONDS)
    assert [one["target"] for one in again.newest(10)] == ["late", "job-2"]


def test_lowered_caps_outlive_a_restart_and_never_raise_a_cap(play: DaemonInAFolder) -> None:
    """The lower of the two holds; without an order the settings' cap does."""
    database = play.storage.store.database
    OrderLog(database).lower("day", 12.5)

    assert OrderLog(database).lower_caps == {"day": 12.5}
    OrderLog(database).lower("day", None)
    assert OrderLog(database).lower_caps == {}
    assert [lowest(20.0, 12.5), lowest(10.0, 12.5), lowest(None, 12.5), lowest(20.0, None)] == [
        *(12.5, 10.0, 12.5, 20.0),
    ]
    assert lowest(None, None) is None


def test_an_order_that_is_not_stored_changes_no_cap(play: DaemonInAFolder) -> None:
    """Who orders it hears that it failed: the cap in memory stays what the database says."""
    database = play.storage.store.database
    play.service.lower_cap("day", 12.5, user="ann")

    def refuse(_connection: Any) -> None:
        raise OperationalError("COMMIT", {}, Exception("disk full"))

    event.listen(database.engine, "commit", refuse)
    with pytest.raises(OperationalError):
        play.service.lower_cap("day", None, user="ann")
    event.remove(database.engine, "commit", refuse)

    assert play.storage.orders.lower_caps == OrderLog(database).lower_caps == {"day": 12.5}
    assert [one["what"] for one in play.storage.orders.newest(10)] == ["cap"]
