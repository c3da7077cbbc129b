"""What AWS or a person does to nodes and reservations: an alert, and the job goes on without a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from aws_days import TYPE, Day, a_day, with_credentials

from boa_daemon.testing.fake_terms import Capacity, Lifetime, Terms

TOLD_MINUTES = 5.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda one: setattr(one, "is_cancelled", True),
            "is not active any more: its nodes go on at $1.01/hour",
        ),
        (lambda one: setattr(one, "instances", 1), "has 1 nodes; it had 2"),
        (lambda one: setattr(one, "instances", 5), "has 5 nodes; it had 2"),
    ],
    ids=["cancelled or expired", "shrunk", "enlarged"],
)  # fmt: skip
def test_a_reservation_that_changes_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Capacity], None], says: str
) -> None:
    """A note for an hour and an alert; the job runs on, and its node costs what EC2 bills."""
    with_credentials(monkeypatch)
    one = Capacity(TYPE, "us-east-1a", 2, {"team": "ml"})
    terms = Terms(boot_seconds=60.0, shutdown_seconds=30.0, capacity={"cr-1": one})
    with a_day(tmp_path, terms, reservations={TYPE: "tag:team=ml"}) as day:
        (life,) = day.rig.fake.live()
        assert life.market == "reserved"
        change(one)
        day.ticks(TOLD_MINUTES)
        assert any(says in note for note in day.notes()), day.notes()
        assert any(says in said for said in day.alerts()), day.alerts()
        (node,) = (each for each in day.rig.cloud.nodes() if each.ended_at is None)
        assert node.usd_per_hour > 1.0 if one.is_cancelled else node.usd_per_hour < 0.1
        day.ticks(60.0)
        assert not any(says in note for note in day.notes())
        assert day.statuses() == ["running"]


@pytest.mark.parametrize(
    ("change", "says", "launched"),
    [
        (
            lambda day, life: day.rig.fake.stop(life.id, "User initiated (2027-01-15 08:00:30 GMT)"),
            "stopped", 2,
        ),
        (lambda day, life: day.rig.fake.stop(life.id), "stopped", 2),
        (lambda day, life: day.rig.fake.terms.impaired.update({life.id: "system"}), "impaired", 2),
        (
            lambda day, life: day.rig.fake.terms.events.update(
                {life.id: ("instance-retirement", day.rig.clock.now() + 600.0)}
            ),
            "instance-retirement", 2,
        ),
    ],
    ids=["stopped by a person", "stopped by AWS", "an impaired host", "retired within ten minutes"],
)  # fmt: skip
def test_a_node_that_is_lost_is_an_alert_and_its_job_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Day, Lifetime], None],
    says: str,
    launched: int,
) -> None:
    """The table of states says who is told; the log alone tells nobody."""
    with_credentials(monkeypatch)
    with a_day(tmp_path) as day:
        (life,) = day.rig.fake.live()
        change(day, life)
        day.ticks(TOLD_MINUTES)
        assert any(life.id in said and says in said for said in day.alerts()), day.alerts()
        day.ticks(10.0)
        assert day.statuses() == ["running"]
        assert day.launched() == launched
        assert [each.id for each in day.rig.fake.live()] != [life.id]
        assert len(day.rig.fake.live()) == 1
