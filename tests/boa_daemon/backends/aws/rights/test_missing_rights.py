"""`aws/rights/missing_rights.py`: the doctor names exactly the statement that a policy lacks."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from aws_rigs import CATALOG, OneSession

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.resource_names import queue_arn
from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.doctor.account import Doctor
from boa_daemon.backends.aws.doctor.check import DoctorCheck
from boa_daemon.backends.aws.doctor.stack import CLOSED, ENCRYPTION, UNFINISHED
from boa_daemon.backends.aws.image_builder.policy import image_policy
from boa_daemon.backends.aws.instances.event_rules import PATTERNS
from boa_daemon.backends.aws.instances.termination_schedule import termination_policy
from boa_daemon.backends.aws.rights.missing_rights import missing_statements, principal_of, to_give
from boa_daemon.backends.aws.rights.policy import node_policy, policy
from boa_daemon.backends.aws.rights.policy_statements import UsedResources
from boa_daemon.backends.aws.rights.resource_policies import bucket_policy, queue_policy
from boa_daemon.backends.aws.stack.settings import stack_settings_of
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.clock import SystemClock
from boa_daemon.testing.fake_checks import ACCOUNT
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_iam import Principal
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import mocked

KEY = "AKIADAEMON"
SESSION, ADMIN = OneSession(KEY), boto3.session.Session("testing", "testing", region_name="us-east-1")
TICKS = itertools.count(0.0, 10.0).__next__
"""Nobody waits for the door's own pace."""
SITE = stack_settings_of(
    AwsSettings(
        cluster="lab",
        instance_types=("g5.xlarge", "g4dn.xlarge"),
        zones=("us-east-1a",),
        market="spot",
        warm_pool_nodes=2,
    ),
    account=ACCOUNT,
)
USES = UsedResources(
    reports_queue_url=SITE.uses.reports_queue_url,
    uri=SITE.uses.uri,
    sns_topic=f"arn:aws:sns:us-east-1:{ACCOUNT}:alerts",
    secrets=("ssm:/team/token", f"secretsmanager:arn:aws:secretsmanager:us-east-1:{ACCOUNT}:secret:key-1"),
    data=("s3://inputs/images/*", "s3://more/*"),
)
"""All that the settings can name, so that every statement there is is made."""
BUCKET = f"arn:aws:s3:::{USES.uri.split('/')[2]}"
WARNINGS = queue_arn(SITE.settings, SITE.settings.queue_url, ACCOUNT)
REPORTS = queue_arn(SITE.settings, USES.reports_queue_url, ACCOUNT)
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "": policy(SITE.settings, uses=USES, account=ACCOUNT),
    " --node": node_policy(SITE.settings, USES, account=ACCOUNT),
    " --pool-end": termination_policy(SITE.settings, account=ACCOUNT),
    " --queue warnings": queue_policy("warnings", WARNINGS, ACCOUNT),
    " --queue reports": queue_policy("reports", REPORTS, ACCOUNT),
    " --bucket": bucket_policy(BUCKET, f"{BUCKET}/*"),
}
"""By the flag of `boa iam` that prints it. That of who builds images is told of where one is built."""
EVERY = 5
EACH = [
    pytest.param(flag, each["Sid"], marks=[pytest.mark.exhaustive] * (number % EVERY > 0))
    for flag, document in POLICIES.items()
    for number, each in enumerate(document["Statement"])
]
"""A doctor's whole round each: some of each policy in every run, all of them in the exhaustive ones."""
IMAGE = image_policy(SITE.settings, uses=USES, account=ACCOUNT)
NAMED = re.compile(
    r"Attach statement (.+?) of the policy that `boa iam(.*?)` prints: `boa iam(.*?) > policy.json && aws "
)


def cut(document: Mapping[str, Any], sid: str) -> dict[str, Any]:
    """Return a policy without a statement."""
    return {**document, "Statement": [each for each in document["Statement"] if each["Sid"] != sid]}


@contextmanager
def an_account(flag: str = "", without: str = "", *, role: str = "boa-lab-control") -> Iterator[FakeCloud]:
    """Give a fake account with the stack's resources, one of whose policies lacks a statement."""
    terms = Terms(vcpu_quotas={"L-DB2E81BA": 16, "L-3819A6DF": 16}, spot_fraction=0.4)
    there = {name: cut(document, without if name == flag else "") for name, document in POLICIES.items()}
    with mocked(FakeCloud(time.time, terms)) as fake:
        for name, queue in ((SITE.names.warnings, "warnings"), (SITE.names.reports, "reports")):
            attributes = {
                "MessageRetentionPeriod": str(14 * 86_400),
                "Policy": json.dumps(there[f" --queue {queue}"]),
            }
            ADMIN.client("sqs").create_queue(QueueName=name, Attributes=attributes)
        bucket, s3 = USES.uri.split("/")[2], ADMIN.client("s3")
        s3.create_bucket(Bucket=bucket)
        s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=dict.fromkeys(CLOSED, True))
        encryption = {"Rules": [{"ApplyServerSideEncryptionByDefault": ENCRYPTION}]}
        s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=encryption)
        s3.put_bucket_lifecycle_configuration(
            Bucket=bucket, LifecycleConfiguration={"Rules": [dict(UNFINISHED)]}
        )
        events = ADMIN.client("events")
        for about, pattern in PATTERNS.items():
            events.put_rule(Name=about, EventPattern=json.dumps(pattern))
            events.put_targets(Rule=about, Targets=[{"Id": "queue", "Arn": WARNINGS}])
        if there[" --bucket"]["Statement"]:
            s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(there[" --bucket"]))
        ADMIN.client("iam").create_instance_profile(InstanceProfileName=SITE.names.node)
        roles = f"arn:aws:iam::{ACCOUNT}:role"
        fake.iam.principals |= {
            KEY: Principal(f"{roles}/{role}", [there[""]]),
            "node": Principal(f"{roles}/{SITE.names.node}", [there[" --node"]]),
            "end": Principal(SITE.settings.pool_end_role, [there[" --pool-end"]]),
        }
        yield fake


def the_calls() -> AwsCalls:
    """Return the AWS calls of the daemon's role."""
    return AwsCalls(SITE.settings, session=SESSION, tries=1, sleep=lambda seconds: None, monotonic=TICKS)


def checks() -> list[DoctorCheck]:
    """Return the doctor's checks with the daemon's rights."""
    cloud = AwsCloud(SITE.settings, catalog=CATALOG, clock=SystemClock(), calls=the_calls(), touches=False)
    return list(Doctor(cloud, CATALOG, SystemClock(), uses=USES).checks())


def test_complete_policies_pass_every_check() -> None:
    """IAM's simulation finds every statement, and IAM denies no call except the tried launches."""
    with an_account() as fake:
        said = checks()

    assert [check for check in said if check.status in ("failed", "warning")] == []
    found = {check.name: check.said for check in said}
    for name, flag in (
        ("rights", ""),
        ("rights of nodes", " --node"),
        ("rights of the pool's end", " --pool-end"),
    ):
        assert f"all {len(POLICIES[flag]['Statement'])} statements" in found[name]
    # The doctor tries a launch with a foreign tag, which must be denied.
    assert {action for _, action, _ in fake.iam.denied} <= {"ec2:RunInstances", "ec2:CreateTags"}


@pytest.mark.first_set(8)
@pytest.mark.parametrize(("flag", "sid"), EACH)
def test_the_doctor_names_exactly_the_missing_statement(flag: str, sid: str) -> None:
    """The check names one of its actions and the command that attaches it."""
    with an_account(flag, without=sid):
        wrong = [check for check in checks() if check.status in ("failed", "warning")]

    named = {found.groups() for check in wrong if (found := NAMED.search(check.fix))}
    assert {(found, sids) for sids, found, _ in named} == {(flag, sid)}, wrong
    [statement] = [each for each in POLICIES[flag]["Statement"] if each["Sid"] == sid]
    actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
    assert any(action in check.said for check in wrong for action in actions)
    # A price or a quota that is not live may have other reasons; its check names the call that it needs.
    others = [check.fix for check in wrong if not NAMED.search(check.fix)]
    assert all(any(action in fix for action in actions) for fix in others)
    assert all(typed.startswith(flag) for _, _, typed in named)


@pytest.mark.parametrize("sid", [each["Sid"] for each in IMAGE["Statement"]])
def test_the_statement_missing_from_an_image_policy_is_named(sid: str) -> None:
    """`boa image build` checks its own policy in the same way."""
    who = f"arn:aws:iam::{ACCOUNT}:user/builder"
    with mocked(FakeCloud(time.time)) as fake:
        fake.iam.principals["builder"] = Principal(who, [cut(IMAGE, sid)])
        assert [found for found, _ in missing_statements(the_calls(), who, IMAGE)] == [sid]


def test_a_launch_statement_that_lacks_an_instance_type_is_found() -> None:
    """An older policy lists fewer types, so a launch of the new type would be denied."""
    with an_account() as fake:
        [statement] = [
            each
            for each in fake.iam.principals[KEY].documents[0]["Statement"]
            if each["Sid"] == "LaunchInstances"
        ]
        narrow = json.loads(json.dumps(statement))
        narrow["Condition"]["StringEquals"]["ec2:InstanceType"] = ["g5.xlarge"]
        fake.iam.principals[KEY].documents[0] = {
            "Statement": [*cut(POLICIES[""], "LaunchInstances")["Statement"], narrow]
        }
        wrong = [check.name for check in checks() if check.status == "failed"]

    assert "right LaunchInstances" in wrong


def test_the_suggested_command_fits_a_role_or_a_user() -> None:
    """A role gets an inline policy and a user a managed one."""
    role = to_give("Read", f"arn:aws:iam::{ACCOUNT}:role/ops/mine", "", name="boa-lab")
    user = to_give("Read", f"arn:aws:iam::{ACCOUNT}:user/me", "", name="boa-lab")

    assert f"`boa iam --control-role arn:aws:iam::{ACCOUNT}:role/ops/mine > policy.json && aws iam" in role
    assert "put-role-policy --role-name mine --policy-name boa-lab" in role
    assert f"attach-user-policy --user-name me --policy-arn arn:aws:iam::{ACCOUNT}:policy/boa-lab`" in user


def test_a_tried_launch_names_the_missing_statement_without_access_to_iam() -> None:
    """Without the statement AskOwnRights, the refusal of the tried launch gives action and resource."""
    with an_account(without="LaunchParts") as fake:
        principal = fake.iam.principals[KEY]
        principal.documents[0] = cut(principal.documents[0], "AskOwnRights")
        said = {check.name: check for check in checks()}

    assert said["rights"].status == "warning"
    assert said["launch with our tag"].status == "failed"
    assert "statement LaunchParts of" in said["launch with our tag"].fix


def test_the_principal_of_a_session_is_its_role() -> None:
    """A user is its own principal; the root user has none."""
    role = "arn:aws:sts::123456789012:assumed-role/boa-lab-control/i-1"

    assert principal_of(role) == "arn:aws:iam::123456789012:role/boa-lab-control"
    assert principal_of("arn:aws:iam::123456789012:user/me") == "arn:aws:iam::123456789012:user/me"
    assert principal_of("arn:aws:iam::123456789012:root") == ""
