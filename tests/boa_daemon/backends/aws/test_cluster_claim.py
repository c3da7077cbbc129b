"""Whose a cluster is, by an object that two daemons with different databases both see."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws
from sampling import sampled

from boa_daemon.backends.aws.calls import AwsCalls
from boa_daemon.backends.aws.cluster_claim import RENEW_SECONDS, STALE_SECONDS, ClusterClaim
from boa_daemon.backends.aws.errors import CallFailed
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.testing import ManualClock

START = 1_800_000_000.0


class Bucket:
    """One object with S3's conditional writes, and S3's own clock; `fails` is how the next calls end."""

    def __init__(self) -> None:
        self.now, self.body, self.tag, self.written_at = START, b"", 0, 0.0
        self.fails: list[str] = []
        self.writes: list[str] = []

    def call(self, operation: str, **words: Any) -> dict[str, Any]:
        if self.fails and (code := self.fails.pop(0)):
            raise CallFailed(operation, code, "no", http_status=503)
        date = {"HTTPHeaders": {"date": format_datetime(datetime.fromtimestamp(self.now, UTC), usegmt=True)}}
        if operation == "s3:GetObject":
            return {
                "Body": io.BytesIO(self.body), "ETag": f'"{self.tag}"', "ResponseMetadata": date,
                "LastModified": datetime.fromtimestamp(self.written_at, UTC),
            }  # fmt: skip
        is_there, wanted = self.tag > 0, words.get("IfMatch")
        if (words.get("IfNoneMatch") == "*" and is_there) or (wanted and wanted != f'"{self.tag}"'):
            raise CallFailed(operation, "PreconditionFailed", "no", http_status=412)
        self.body, self.tag, self.written_at = words["Body"], self.tag + 1, self.now
        self.writes.append(json.loads(self.body)["books"])
        return {"ETag": f'"{self.tag}"', "ResponseMetadata": date}


def a_claim(bucket: Any, ledger_id: str, clock: ManualClock, said: list[str] | None = None) -> ClusterClaim:
    """Return the claim of a database on cluster "lab"."""
    say = (lambda _sentence: None) if said is None else said.append
    return ClusterClaim(
        bucket, bucket="boa-claims", key="k", cluster="lab", ledger_id=ledger_id, clock=clock, say=say
    )


@settings(max_examples=sampled(100), deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32), count=st.integers(min_value=2, max_value=4))
def test_of_daemons_with_different_databases_one_acts(seed: int, count: int) -> None:
    """From the first minute, in any order, while some are down for a while, or cut off from S3 alone."""
    chance, bucket, clock = random.Random(seed), Bucket(), ManualClock(START)
    claims = {name: a_claim(bucket, name, clock) for name in "abcd"[:count]}
    acting: dict[str, float] = {}
    down: dict[str, float] = {}
    cut: dict[str, float] = {}
    for _ in range(60):
        for name in chance.sample(sorted(claims), count):
            if down.get(name, 0.0) > bucket.now:
                acting.pop(name, None)
                continue
            if name in down:
                del down[name]
                claims[name] = a_claim(bucket, name, clock)
            if chance.random() < 0.05 and name in acting:
                cut[name] = bucket.now + chance.uniform(0.0, 3000.0)
            bucket.fails = ["SlowDown"] * 3 if cut.get(name, 0.0) > bucket.now else []
            acting.pop(name, None)
            # One that starts while it is cut off from S3 has only the listing to go by, as without a bucket.
            if not claims[name].hold() and claims[name].epoch:
                acting[name] = bucket.now
            if chance.random() < 0.03:
                down[name] = bucket.now + chance.uniform(30.0, 3000.0)
        assert len(acting) <= 1, acting
        step = chance.uniform(20.0, 90.0)
        bucket.now, clock.instant = bucket.now + step, clock.instant + step


def test_the_second_observes_and_says_whose_the_cluster_is() -> None:
    """Until the first was silent for ten minutes; then it takes over with an epoch more."""
    bucket, clock, said = Bucket(), ManualClock(START), list[str]()
    first, second = a_claim(bucket, "one", clock), a_claim(bucket, "two", clock, said)
    assert (first.hold(), first.epoch) == ("", 1)
    assert "belongs to another database (one" in second.hold()

    def pass_time(seconds: float) -> None:
        bucket.now, clock.instant = bucket.now + seconds, clock.instant + seconds

    pass_time(RENEW_SECONDS + 1.0)
    assert first.hold() == ""
    pass_time(STALE_SECONDS - 5.0)
    assert second.hold() != ""
    pass_time(RENEW_SECONDS + 5.0)
    assert (second.hold(), second.epoch) == ("", 2)
    assert "taken over from database one" in said[0]
    assert "belongs to another database (two" in first.hold()


def test_a_restart_goes_on_at_once_and_asks_once_a_minute() -> None:
    """The same database is the same claim; a tick of a second asks S3 no more often."""
    bucket, clock = Bucket(), ManualClock(START)
    assert a_claim(bucket, "one", clock).hold() == ""
    again = a_claim(bucket, "one", clock)
    assert [again.hold() for _ in range(10)] == [""] * 10
    assert (bucket.writes, again.epoch) == (["one", "one"], 1)


@pytest.mark.parametrize("code", ["SlowDown", "AccessDenied", "Timeout"])
def test_what_cannot_be_asked_changes_nothing_and_is_said_once(code: str) -> None:
    """A site whose role may not write it runs as before; one that observes goes on observing."""
    bucket, clock, said = Bucket(), ManualClock(START), list[str]()
    claim = a_claim(bucket, "one", clock, said)
    for _ in range(5):
        bucket.fails = [code]
        assert claim.hold() == ""
        clock.instant += RENEW_SECONDS + 1.0
    assert len(said) == 1
    bucket.fails = []
    a_claim(bucket, "two", clock).hold()
    assert claim.hold() != ""
    clock.instant += RENEW_SECONDS + 1.0
    bucket.fails = [code]
    assert claim.hold() != ""


def test_who_cannot_renew_its_claim_acts_no_more_before_anybody_takes_it() -> None:
    """Five minutes without S3, of the ten after which another may."""
    bucket, clock = Bucket(), ManualClock(START)
    claim = a_claim(bucket, "one", clock)
    assert claim.hold() == ""
    held = []
    while clock.instant < START + STALE_SECONDS:
        clock.instant += RENEW_SECONDS
        bucket.fails = ["SlowDown"]
        held.append(claim.hold() == "")
    assert held == [True] * 5 + [False] * 5
    clock.instant += RENEW_SECONDS
    assert claim.hold() == ""


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"epoch": "x"}', b"\xff"])
def test_a_claim_that_cannot_be_read_belongs_to_somebody(body: bytes) -> None:
    """Nothing is taken for ours because it makes no sense."""
    bucket, clock = Bucket(), ManualClock(START)
    bucket.body, bucket.tag, bucket.written_at = body, 1, START
    assert "belongs to another database" in a_claim(bucket, "one", clock).hold()


@mock_aws
def test_the_conditions_are_those_of_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the one door, against another imitation of S3: one wins, the other reads whose it is."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    import boto3

    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="boa-claims")
    clock, calls = ManualClock(START), AwsCalls(AwsSettings(cluster="lab"))
    first, second = a_claim(calls, "one", clock), a_claim(calls, "two", clock)
    assert first.hold() == ""
    assert "belongs to another database (one" in second.hold()
    clock.instant += RENEW_SECONDS + 1.0
    assert first.hold() == ""
    assert second.hold() != ""
