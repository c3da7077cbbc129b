"""What the site says of itself: nodes by page, caps in force, months, plans, and when it is late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.service.service_base import NotReady
from boa_daemon.errors import InputError
from boa_daemon.store.records import InstanceRecord
from boa_daemon.testing import ManualClock, a_node
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

NOW = 1_800_000_000.0  # 15 January 2027
SETTINGS = {
    "budget": {"usd_per_hour": 10.0, "usd_per_day_cap": 300.0, "usd_per_month_cap": None},
    "daemon": {"tick_seconds": 30.0},
    "teams": {"vision": {"members": ["ann"]}},
}


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonInAFolder]:
    """A daemon that does not tick by itself."""
    found = DaemonInAFolder(tmp_path_factory.mktemp("play"), ManualClock(NOW), SETTINGS)
    yield found
    found.close()


def test_before_the_first_tick_there_is_no_plan_and_no_figure(play: DaemonInAFolder) -> None:
    """What waits is counted all the same."""
    play.service.submit([job_content()], user="ann")
    status = play.service.status()
    assert status["queued_since_then"] == 1
    assert "usd_per_hour" not in status
    with pytest.raises(NotReady, match="has not completed its first tick"):
        play.service.plan()


def test_a_daemon_is_late_after_three_ticks_and_a_minute(play: DaemonInAFolder) -> None:
    """To the second, from its start or its last tick."""
    clock = play.clock
    assert isinstance(clock, ManualClock)
    for silent, is_late in ((149.0, False), (150.0, True)):
        clock.instant = NOW + silent
        late = [note for note in play.service.condition()["notes"] if "no tick was done for" in note]
        assert bool(late) is is_late
    assert "one is due every 30 s" in late[0]
    clock.instant = NOW


def test_an_order_lowers_a_cap_and_takes_it_back_and_never_raises_it(play: DaemonInAFolder) -> None:
    """The settings' cap is the highest; where they have none, any cap can be ordered."""
    service = play.service
    assert service.lower_cap("day", 100.0, user="ann")["caps"]["day"] == {
        "usd": 100.0,
        "usd_in_settings": 300.0,
    }
    assert service.lower_cap("day", 300.0, user="ann")["caps"]["day"]["usd"] == 300.0
    with pytest.raises(InputError, match=r"cap a day at \$300\.00, and \$300\.01 is more"):
        service.lower_cap("day", 300.01, user="ann")
    assert service.lower_cap("month", 9e6, user="ann")["caps"]["month"] == {
        "usd": 9e6,
        "usd_in_settings": None,
    }
    assert service.lower_cap("month", None, user="ann")["caps"]["month"]["usd"] is None
    said = [order["said"] for order in service.decisions()["orders"] if order["what"] == "cap"]
    assert said == [
        "the cap of a month was changed from $9,000,000.00 to none",
        "the cap of a month was changed from none to $9,000,000.00",
        "the cap of a day was changed from $100.00 to $300.00",
        "the cap of a day was changed from $300.00 to $100.00",
    ]


def test_nodes_come_by_page_in_the_order_of_their_ids(play: DaemonInAFolder) -> None:
    """The last page has no next one; those that have ended come on request, for a day."""
    queue = play.storage.queue
    for name in ("n3", "n1", "n2"):
        queue.save_instance(InstanceRecord(node=a_node(name, launched_at=NOW - 3600.0)))
    gone = replace(a_node("n4", launched_at=NOW - 7200.0), phase="terminated", ended_at=NOW - 3600.0)
    queue.save_instance(InstanceRecord(node=gone))

    def page(**words: Any) -> tuple[list[str], str | None]:
        found = play.service.instances(**words)
        return [row["id"] for row in found["instances"]], found["next"]

    assert page() == (["n1", "n2", "n3"], None)
    assert page(limit=2) == (["n1", "n2"], "n2")
    assert page(limit=2, after="n2") == (["n3"], None)
    assert page(limit=3) == (["n1", "n2", "n3"], None)
    assert "n4" in page(ended=True)[0]
    rows = {row["id"]: row for row in play.service.instances(ended=True)["instances"]}
    assert (rows["n1"]["usd"], rows["n4"]["usd"]) == (4.0, 4.0)


@pytest.mark.parametrize(
    ("month", "team", "said"),
    [
        ("2027-02", "", "2027-02 has not begun"),
        ("soon", "", "soon"),
        ("2027-01", "vison", "there is no team 'vison'.*Did you mean 'vision'"),
    ],
)
def test_a_month_that_cannot_be_reported_is_refused(
    play: DaemonInAFolder, month: str, team: str, said: str
) -> None:
    """The error says why; the present month can be."""
    with pytest.raises(InputError, match=said):
        play.service.month(month, team=team)
    assert play.service.month("2027-01", team="vision")


def test_costs_are_of_the_month_unless_an_instant_is_given(play: DaemonInAFolder) -> None:
    """The month is UTC's."""
    assert play.service.cost()["since"] == 1_798_761_600.0
    assert play.service.cost(since=5.0)["since"] == 5.0


def test_a_plan_does_nothing_and_knows_the_jobs_that_came_since(tmp_path: Path) -> None:
    """The next tick would rent for both jobs."""
    play = DaemonInAFolder(tmp_path, ManualClock(NOW), {"budget": {"usd_per_hour": 10.0}})
    play.service.submit([job_content("one", hours=5.0)], user="ann")
    play.daemon.tick()
    (late,) = play.service.submit([job_content("late", hours=5.0)], user="ann")["jobs"]
    before = len(play.cloud.nodes())
    found = play.service.plan()
    assert late in found["waiting"]
    assert found["as_of"] == NOW
    assert len(play.cloud.nodes()) == before
    assert play.service.down(is_down=True) == {"as_of": NOW, "is_down": True}
    assert play.service.condition()["is_down"]
    play.close()
