"""What AWS or a person does to nodes and reservations: an alert, and the job goes on without a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_days import EXTRAS, PRICE, TYPE, Day, a_day, with_credentials

from boa_daemon.testing.fake_terms import Capacity, Lifetime, Terms
from boa_daemon.tick.facts.node_lives import instance_of

TOLD_MINUTES = 5.0
BY_A_PERSON = "Client.UserInitiatedShutdown: User initiated shutdown"


@pytest.mark.first_set(1)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda one: setattr(one, "is_cancelled", True),
            "is not active any more: its nodes go on at $1.01/hour",
        ),
        (lambda one: setattr(one, "instances", 1), "has 1 nodes; it had 2"),
        pytest.param(
            lambda one: setattr(one, "instances", 5), "has 5 nodes; it had 2", marks=pytest.mark.exhaustive
        ),
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
        day.until(lambda: not any(says in note for note in day.notes()), minutes=60.0)
        assert not any(says in note for note in day.notes())
        assert day.statuses() == ["running"]


@pytest.mark.first_set(1)
@pytest.mark.parametrize(
    ("change", "says", "launched"),
    [
        (
            lambda day, life: day.rig.fake.stop(life.id, "User initiated (2027-01-15 08:00:30 GMT)"),
            "stopped", 2,
        ),
        pytest.param(
            lambda day, life: day.rig.fake.stop(life.id), "stopped", 2, marks=pytest.mark.exhaustive
        ),
        (lambda day, life: day.rig.fake.terms.impaired.update({life.id: "system"}), "impaired", 2),
        (lambda day, life: day.rig.fake.terms.impaired.update({life.id: "attachedEbs"}), "its disks", 2),
        (lambda day, life: day.rig.fake.end(life.id, BY_A_PERSON), "was ended, and not by us", 2),
        (
            lambda day, life: day.rig.fake.terms.events.update(
                {life.id: ("instance-retirement", day.rig.clock.now() + 600.0)}
            ),
            "instance-retirement", 2,
        ),
    ],
    ids=["stopped by a person", "stopped by AWS", "an impaired host", "an impaired disk", "ended by a person",
         "retired within ten minutes"],
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


@pytest.mark.first_set(1)
@pytest.mark.parametrize("how", ["end", "stop"])
def test_a_clean_up_rule_that_takes_each_new_node_is_named_and_costs_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Every node is ended or stopped a minute after its launch: a few are tried, not one a minute."""
    with_credentials(monkeypatch)
    with a_day(tmp_path) as day:
        for _ in range(30):
            for life in day.rig.fake.live():
                if life.stopped_at is None and day.rig.clock.now() - life.launched_at >= 60.0:
                    getattr(day.rig.fake, how)(life.id, BY_A_PERSON)
            day.step()
        assert day.launched() <= 10
        assert any("clean-up rule" in note and "CloudTrail" in note for note in day.notes()), day.notes()
        assert "clean-up rule" in day.play.service.explain(day.jobs[0])["text"]
        day.until(lambda: day.statuses() == ["running"], minutes=45.0)
        assert day.statuses() == ["running"]


def test_a_node_that_a_person_restarts_is_billed_for_both_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No listing shows it stopped: it ran before, it runs now, and the job runs again on it."""
    with_credentials(monkeypatch)
    with a_day(tmp_path) as day:
        (life,) = day.rig.fake.live()
        day.ticks(20.0)
        day.rig.fake.restart(life.id)
        ((begin, end),) = life.runs
        day.ticks(TOLD_MINUTES)
        assert any("stopped and started again" in said for said in day.alerts()), day.alerts()
        assert day.charged() == pytest.approx((end - begin) / 3600.0 * (PRICE + EXTRAS), rel=0.01)
        assert day.statuses() == ["running"]
        assert day.launched() == 1


def test_a_zone_that_takes_back_each_spot_node_at_once_does_not_get_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other zone is tried, as after a refusal, until a node is left to work."""
    with_credentials(monkeypatch)
    terms = Terms(boot_seconds=60.0, shutdown_seconds=30.0, spot_fraction=0.4, event_queue="warnings")
    with a_day(tmp_path, terms, market="spot-then-on-demand") as day:
        for _ in range(20):
            now = day.rig.clock.now()
            for life in day.rig.fake.live():
                is_due = life.warned_at is None and now - life.launched_at >= 60.0
                if is_due and life.zone == "us-east-1a":
                    day.rig.fake.warn(life.id)
            day.step()
        assert day.statuses() == ["running"]
        assert [life.zone for life in day.rig.fake.live()] == ["us-east-1b"]
        assert day.launched() <= 3
        assert any("took it back" in note for note in day.notes()), day.notes()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_node_that_a_person_made_another_type_costs_what_that_type_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    """It was stopped, changed and started between two looks; its tag says the price of the other type."""
    with_credentials(monkeypatch)
    with a_day(tmp_path) as day:
        (life,) = day.rig.fake.live()
        day.ticks(10.0)
        day.rig.fake.restart(life.id)
        day.rig.fake.backend(life.region).get_instance(life.id).instance_type = "g5.12xlarge"
        day.ticks(TOLD_MINUTES)
        assert any(f"{life.id} was a {TYPE}" in said and "g5.12xlarge" in said for said in day.alerts())
        cloud = day.rig.cloud
        if is_restarted:
            records = day.play.storage.queue.instances.values()
            cloud = day.rig.another(queue_url=cloud.settings.queue_url)
            cloud.remember([record.node for record in records])
        found = [node for node in cloud.nodes() if node.ended_at is None and instance_of(node.id) == life.id]
        dear = cloud.market.list_price("g5.12xlarge")
        assert dear is not None
        assert dear > 5.0
        assert [node.prices[-1][1] for node in found] == [pytest.approx(dear)]
        ((begin, end),) = life.runs
        assert day.charged() == pytest.approx((end - begin) / 3600.0 * (PRICE + EXTRAS), rel=0.01)


def test_an_instance_on_hardware_of_its_own_is_told_as_dearer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default tenancy of a VPC makes every launch so; the price list is that of shared hardware."""
    with_credentials(monkeypatch)
    with a_day(tmp_path) as day:

        def hook(operation: str, arguments: dict[str, Any], plain: Callable[[], Any]) -> Any:
            answer = plain()
            if operation == "ec2:DescribeInstances":
                for row in answer["Reservations"]:
                    for each in row["Instances"]:
                        each["Placement"]["Tenancy"] = "dedicated"
            return answer

        day.hook = hook
        day.ticks(TOLD_MINUTES)
        told = [said for said in day.alerts() if "tenancy dedicated" in said]
        assert len(told) == 1
        assert "modify-vpc-tenancy" in told[0]
