"""`aws/cluster_claim.py`: an object in S3 says which of several databases owns the cluster."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import boto3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws
from sampling import sampled

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.cluster_claim import RENEW_SECONDS, STALE_SECONDS, ClusterClaim
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.testing import ManualClock

START = 1_800_000_000.0


class Bucket:
    """A fake S3 object with conditional writes and a clock; `fails` lists the errors of the next calls."""

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
    """Return the claim of one database on cluster "lab"."""
    say = (lambda _sentence: None) if said is None else said.append
    return ClusterClaim(
        bucket, bucket="boa-claims", key="k", cluster="lab", ledger_id=ledger_id, clock=clock, say=say
    )


@settings(max_examples=sampled(100), deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32), count=st.integers(min_value=2, max_value=4))
def test_at_most_one_of_several_daemons_acts(seed: int, count: int) -> None:
    """It holds in any order of calls, while daemons restart and while some cannot reach S3."""
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
            # A daemon that starts while S3 is unreachable has no epoch and relies on the instance listing.
            if not claims[name].hold() and claims[name].epoch:
                acting[name] = bucket.now
            if chance.random() < 0.03:
                down[name] = bucket.now + chance.uniform(30.0, 3000.0)
        assert len(acting) <= 1, acting
        step = chance.uniform(20.0, 90.0)
        bucket.now, clock.instant = bucket.now + step, clock.instant + step


def test_a_second_database_takes_the_claim_over_only_after_the_first_is_silent() -> None:
    """Until the claim is stale the second daemon is told the owner; the takeover raises the epoch by one."""
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


def test_a_restarted_daemon_keeps_its_claim_and_writes_it_once() -> None:
    """Ten calls within a minute write the claim once, with the same epoch."""
    bucket, clock = Bucket(), ManualClock(START)
    assert a_claim(bucket, "one", clock).hold() == ""
    again = a_claim(bucket, "one", clock)
    assert [again.hold() for _ in range(10)] == [""] * 10
    assert (bucket.writes, again.epoch) == (["one", "one"], 1)


@pytest.mark.parametrize("code", ["SlowDown", "AccessDenied", "Timeout"])
def test_an_unreadable_claim_changes_nothing_and_is_reported_once(code: str) -> None:
    """An owner that cannot reach S3 stays the owner, and an observer stays an observer."""
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


def test_a_daemon_that_cannot_renew_its_claim_stops_acting_before_it_is_stale() -> None:
    """The daemon acts for five minutes without S3; another daemon may take the claim after ten."""
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


NO_CLAIMS = [
    b"",
    b"[]",
    b"{",
    b'{"epoch": "x"}',
    b"\xff",
    b"<html>Sign in</html>",
    b'{"books": null}',
    b"null",
]


@pytest.mark.parametrize("body", NO_CLAIMS)
def test_a_malformed_claim_is_taken_over_only_when_it_is_old(body: bytes) -> None:
    """Whose it is, is not known; its age is."""
    bucket, clock = Bucket(), ManualClock(START)
    bucket.body, bucket.tag, bucket.written_at = body, 1, START
    claim = a_claim(bucket, "one", clock)
    assert "cannot be read from S3" in claim.hold()
    bucket.now = clock.instant = START + STALE_SECONDS - 1.0
    assert "cannot be read from S3" in claim.hold()
    bucket.now = clock.instant = START + STALE_SECONDS + 1.0
    assert claim.hold() == ""


@pytest.mark.parametrize("body", NO_CLAIMS)
@pytest.mark.parametrize("is_known", [True, False])
def test_an_answer_that_is_no_claim_passes_by_the_next_tick(body: bytes, is_known: bool) -> None:
    """A proxy may answer in the place of S3 once; the owner goes on a second later, not after a minute."""
    bucket, clock = Bucket(), ManualClock(START)
    first = a_claim(bucket, "one", clock)
    assert first.hold() == ""
    claim = first if is_known else a_claim(bucket, "one", clock)
    clock.instant += RENEW_SECONDS + 1.0
    true, bucket.body, bucket.tag = bucket.body, body, bucket.tag + 1
    assert "cannot be read from S3" in claim.hold()
    bucket.body = true
    clock.instant += 1.0
    assert claim.hold() == ""


@mock_aws
def test_the_claim_works_with_the_conditional_writes_of_moto(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two databases one gets the claim, and the other reads the owner's name."""
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


@mock_aws
def test_a_claim_that_somebody_deleted_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone or with its bucket: the daemon goes on without a restart once the bucket is there again."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    s3 = boto3.client("s3", region_name="us-east-1")
    s3.create_bucket(Bucket="boa-claims")
    clock = ManualClock(START)
    claim = a_claim(AwsCalls(AwsSettings(), tries=1), "one", clock)
    assert claim.hold() == ""
    for with_bucket in (False, True):
        s3.delete_object(Bucket="boa-claims", Key="k")
        if with_bucket:
            s3.delete_bucket(Bucket="boa-claims")
            clock.instant += RENEW_SECONDS + 1.0
            claim.hold()
            assert "NoSuchBucket" in claim.fault
            assert "aws s3 mb" in claim.fault
            s3.create_bucket(Bucket="boa-claims")
        clock.instant += RENEW_SECONDS + 1.0
        assert claim.hold() == ""
        assert claim.fault == ""
    assert claim.epoch == 1
