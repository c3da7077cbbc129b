"""`backends/aws_rights.py`: whatever statement is missing, the doctor names it, and names no other."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import pytest
from aws_rigs import CATALOG, OneSession

from boa_daemon.backends.aws import AwsCloud
from boa_daemon.backends.aws_calls import AwsCalls
from boa_daemon.backends.aws_doctor import Check, Doctor
from boa_daemon.backends.aws_policy import Uses, policy
from boa_daemon.backends.aws_rights import principal_of
from boa_daemon.backends.aws_stack import site_of
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.clock import SystemClock
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_iam import ACCOUNT, Principal
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import mocked

KEY = "AKIADAEMON"
SESSION, ADMIN = OneSession(KEY), boto3.session.Session("testing", "testing", region_name="us-east-1")
TICKS = itertools.count(0.0, 10.0).__next__
"""Nobody waits for the door's own pace."""
SITE = site_of(
    AwsSettings(cluster="lab", instance_types=("g5.xlarge",), zones=("us-east-1a",), market="spot"),
    account=ACCOUNT,
)
USES = Uses(
    reports_queue_url=SITE.uses.reports_queue_url,
    uri=SITE.uses.uri,
    sns_topic=f"arn:aws:sns:us-east-1:{ACCOUNT}:alerts",
)
WHOLE = policy(SITE.settings, uses=USES, account=ACCOUNT)
SIDS = [each["Sid"] for each in WHOLE["Statement"]]


@contextmanager
def an_account(without: str = "", *, role: str = "boa-lab-control") -> Iterator[FakeCloud]:
    """AWS with the things of the stack, and a caller whose policy lacks a statement."""
    terms = Terms(vcpu_quotas={"L-DB2E81BA": 16, "L-3819A6DF": 16}, spot_fraction=0.4)
    with mocked(FakeCloud(time.time, terms)) as fake:
        for name in (SITE.names.warnings, SITE.names.reports):
            days = {"MessageRetentionPeriod": str(14 * 86_400)}
            ADMIN.client("sqs").create_queue(QueueName=name, Attributes=days)
        ADMIN.client("s3").create_bucket(Bucket=USES.uri.split("/")[2])
        ADMIN.client("iam").create_instance_profile(InstanceProfileName=SITE.names.node)
        statements = [each for each in WHOLE["Statement"] if each["Sid"] != without]
        document = {**WHOLE, "Statement": statements}
        fake.iam.principals[KEY] = Principal(f"arn:aws:iam::{ACCOUNT}:role/{role}", [document])
        yield fake


def checks() -> list[Check]:
    """Return what the doctor says to the caller."""
    calls = AwsCalls(SITE.settings, session=SESSION, tries=1, sleep=lambda seconds: None, monotonic=TICKS)
    cloud = AwsCloud(SITE.settings, catalog=CATALOG, clock=SystemClock(), calls=calls, touches=False)
    return list(Doctor(cloud, CATALOG, SystemClock(), uses=USES).checks())


def test_with_the_whole_policy_nothing_is_missing() -> None:
    """Every statement is there as IAM simulates it, and every call of the doctor is allowed."""
    with an_account() as fake:
        said = checks()

    assert [check for check in said if check.status in ("failed", "warning")] == []
    assert f"all {len(SIDS)} statements" in next(each.said for each in said if each.name == "rights")
    # It tries what must be denied: a launch with a tag that is not ours.
    assert {action for _, action, _ in fake.iam.denied} <= {"ec2:RunInstances", "ec2:CreateTags"}


@pytest.mark.parametrize("sid", SIDS)
def test_the_statement_that_is_missing_is_named(sid: str) -> None:
    """With each statement removed in turn: that one is named, and no other."""
    with an_account(without=sid):
        wrong = [check for check in checks() if check.status in ("failed", "warning")]

    named = {name for name in SIDS for check in wrong if f"statement {name} " in check.fix}
    assert named == {sid}, wrong


def test_who_may_not_ask_iam_still_learns_what_a_launch_lacks() -> None:
    """Without AskOwnRights the tried launch is refused, and its refusal names action and resource."""
    with an_account(without="LaunchParts") as fake:
        [principal] = fake.iam.principals.values()
        principal.documents[0]["Statement"][:] = [
            each for each in principal.documents[0]["Statement"] if each["Sid"] != "AskOwnRights"
        ]
        said = {check.name: check for check in checks()}

    assert said["rights"].status == "warning"
    assert said["launch with our tag"].status == "failed"
    assert "statement LaunchParts of" in said["launch with our tag"].fix


def test_a_session_has_the_policies_of_its_role() -> None:
    """A user is itself, and the root has none to look at."""
    role = "arn:aws:sts::123456789012:assumed-role/boa-lab-control/i-1"

    assert principal_of(role) == "arn:aws:iam::123456789012:role/boa-lab-control"
    assert principal_of("arn:aws:iam::123456789012:user/me") == "arn:aws:iam::123456789012:user/me"
    assert principal_of("arn:aws:iam::123456789012:root") == ""
