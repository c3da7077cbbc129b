"""Faults of ten minutes in mid-run: no job is lost, nothing leaks, ledger and reasons are true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import boto3
import pytest
from aws_days import PRICE, TICK, TYPE, Day, fails
from aws_rigs import a_rig

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.cluster_claim import ClusterClaim
from boa_daemon.testing.fake_terms import Capacity, Terms

Begin: TypeAlias = Callable[..., Day]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Return a function that begins a day."""
    with ExitStack() as stack:

        def make(terms: Terms | None = None, **settings: Any) -> Day:
            values = {"instance_types": (TYPE,), "zones": ("us-east-1a", "us-east-1b")} | settings
            terms = terms or Terms(boot_seconds=60.0, shutdown_seconds=30.0)
            day = Day(tmp_path, stack.enter_context(a_rig("process", terms, **values)))
            stack.callback(day.play.close)
            return day

        yield make


@pytest.mark.first_set(2)
@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("RequestLimitExceeded", 503, "BOA tries again later by itself"),
        pytest.param("SlowDown", 503, "BOA tries again later by itself", marks=pytest.mark.exhaustive),
        ("Unavailable", 503, "Unavailable"),
        ("ExpiredToken", 400, "Renew the credentials"),
        ("SignatureDoesNotMatch", 403, "check the clock"),
        ("OptInRequired", 401, "Enable the region for this account"),
        ("NoAnswer", 200, "such as a proxy or a login page"),
        ("TlsFailed", 0, "AWS_CA_BUNDLE"),
    ],
)
def test_ten_minutes_in_which_every_call_fails(begin: Begin, code: str, status: int, said: str) -> None:
    """Running jobs go on, nothing is rented or ended, and status and explanation say why, with the cure."""
    day = begin()
    day.submit()
    day.ticks(5.0)

    day.hook = fails(code=code, status=status)
    day.submit()
    day.ticks(10.0)
    during, fault = day.statuses(), day.play.service.status()["fault"]
    explained = day.play.service.explain(day.jobs[1])["text"]
    day.hook = None

    assert during == ["running", "queued"]
    assert day.launched() == 1
    assert said in fault
    assert said in explained
    day.ends_well(launched=2)


def test_an_instance_that_listings_leave_out_for_minutes_keeps_its_job(begin: Begin) -> None:
    """EC2 forgets it by tag and by id for four minutes: its job runs on, and nothing takes its place."""
    day = begin()
    day.submit(hours=0.5)
    day.ticks(6.0)
    (life,) = day.rig.fake.live()

    def forgets(operation: str, arguments: dict[str, Any], plain: Callable[[], Any]) -> Any:
        answer = plain()
        if operation == "ec2:DescribeInstances":
            if life.id in (arguments.get("InstanceIds") or ()):
                raise CallFailed(operation, "InvalidInstanceID.NotFound", f"no {life.id}", http_status=400)
            for row in answer["Reservations"]:
                row["Instances"] = [each for each in row["Instances"] if each["InstanceId"] != life.id]
        return answer

    day.hook = forgets
    for _ in range(8):
        day.ticks(0.5)
        assert day.statuses() == ["running"]
    day.hook = None
    day.ends_well(launched=1)


def test_a_quota_that_was_raised_is_used_within_ten_minutes(begin: Begin) -> None:
    """It is asked for more often while it is used up; no restart, no signal."""
    terms = Terms(boot_seconds=60.0, shutdown_seconds=30.0, vcpu_quotas={"L-DB2E81BA": 4})
    day = begin(terms)
    day.submit(2, hours=1.0)
    day.ticks(15.0)
    before = day.launched()
    terms.vcpu_quotas["L-DB2E81BA"] = 8
    day.ticks(10.5)

    assert (before, day.launched()) == (1, 2)


def test_a_reservation_that_fills_between_two_ticks_stops_nobody(begin: Begin) -> None:
    """The next offer is rented in the next tick, and the advice is about a full reservation."""
    capacity = Capacity(TYPE, "us-east-1a", 2, {"team": "ml"})
    day = begin(
        Terms(boot_seconds=60.0, shutdown_seconds=30.0, capacity={"cr-1": capacity}),
        reservations={TYPE: "tag:team=ml"},
    )
    day.submit(hours=1.0)
    day.ticks(3.0)

    def fills(operation: str, arguments: dict[str, Any], plain: Callable[[], Any]) -> Any:
        if operation == "ec2:RunInstances":
            capacity.used_by_others = 1
        return plain()

    day.hook = fills
    day.submit(hours=1.0)
    day.ticks(0.5)
    notes = " ".join(day.play.service.status()["notes"])
    day.ticks(2.0)

    assert [life.market for life in day.rig.fake.history()] == ["reserved", "on-demand"]
    assert "Others use the reservation whole" in notes
    assert day.statuses() == ["running", "running"]


@pytest.mark.parametrize(
    "how",
    [
        "stopped by AWS",
        pytest.param("stopped by a person", marks=pytest.mark.exhaustive),
        "ended by a person",
    ],
)
def test_an_instance_that_others_stop_or_end_in_mid_boot(begin: Begin, how: str) -> None:
    """The job gets another node at once, and what is left of the first one ends."""
    day = begin(Terms(boot_seconds=120.0, shutdown_seconds=30.0))
    day.submit()
    day.ticks(0.5)
    (life,) = day.rig.fake.live()
    if how == "ended by a person":
        day.rig.fake.end(life.id, "Client.UserInitiatedShutdown: User initiated shutdown")
    elif how == "stopped by AWS":
        day.rig.fake.stop(life.id)
    else:
        day.rig.fake.stop(life.id, "User initiated (2027-01-15 08:00:30 GMT)")
    day.ticks(5.0)

    assert day.statuses() == ["running"]
    assert day.launched() == 2
    day.until(lambda: day.statuses() == ["finished"] and not day.rig.fake.live(), minutes=60.0)
    day.ticks(2.0)
    assert day.statuses() == ["finished"]
    assert day.rig.fake.live() == []
    assert day.launched() == 2
    # The end is seen a tick later, where EC2 gives no time for it.
    assert day.charged() <= day.billed() + PRICE * TICK / 3600.0 + 0.001


def test_a_bucket_that_denies_for_long_costs_no_job_its_node(begin: Begin) -> None:
    """Nobody can confirm whose the cluster is, so nothing is rented; the lease of the job is renewed."""
    day = begin()
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="boa-lab")
    cloud = day.rig.cloud
    cloud._claim = ClusterClaim(
        cloud.calls, bucket="boa-lab", key="claim", cluster="boa", ledger_id="test", clock=day.rig.clock
    )
    day.is_whole = True
    day.submit(hours=20.0)
    day.ticks(15.0)
    day.hook = fails("s3:PutObject", "s3:GetObject", code="AccessDenied", status=403, said="Access Denied")
    day.ticks(10.0)
    day.submit()
    day.ticks(35.0)
    during, said = day.statuses(), day.play.service.status()
    (life,) = day.rig.fake.live()
    lease = float(day.rig.fake.backend("us-east-1").tags[life.id]["boa:lease"])

    assert during == ["running", "queued"]
    assert lease - day.rig.clock.now() >= 60.0 * cloud.settings.lease_minutes * 0.7
    assert any("bucket: " in note and "the policy of the bucket itself" in note for note in said["notes"])
    assert "was not confirmed as ours" in said["fault"]
    day.hook = None
    day.ticks(10.0)
    assert day.play.service.status()["fault"] == ""
    assert day.launched() == 2
