"""`aws/rights/role_probe.py`: roles that act for the daemon and have lost a right are told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aws_rigs import AwsRig, RigMaker

from boa_daemon.backends.aws.instances.termination_schedule import termination_policy
from boa_daemon.backends.aws.rights.policy import node_policy
from boa_daemon.backends.aws.rights.policy_statements import UsedResources
from boa_daemon.backends.aws.rights.role_probe import PROBE_SECONDS, RoleProbe
from boa_daemon.testing.fake_checks import ACCOUNT
from boa_daemon.testing.fake_iam import Principal

USES = UsedResources(
    reports_queue_url=f"https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/reports", uri="s3://bucket/jobs"
)
NODE, END = (f"arn:aws:iam::{ACCOUNT}:role/{name}" for name in ("nodes", "pool-end"))


def a_site(make_rig: RigMaker) -> tuple[AwsRig, RoleProbe]:
    """Return a site whose roles may do what they need, and its probe."""
    rig = make_rig(instance_profile="nodes", pool_end_role=END, warm_pool_nodes=2)
    documents = {
        NODE: node_policy(rig.settings, USES, account=ACCOUNT),
        END: termination_policy(rig.settings, account=ACCOUNT),
    }
    for arn, document in documents.items():
        rig.fake.iam.principals[arn] = Principal(arn, [document])
    return rig, RoleProbe(rig.cloud.calls, USES, rig.clock)


def without(sid: str, arn: str) -> Callable[[AwsRig], None]:
    """Return what takes a statement from a role."""

    def do(rig: AwsRig) -> None:
        (document,) = rig.fake.iam.principals[arn].documents
        rows = [each for each in document["Statement"] if each["Sid"] != sid]
        rig.fake.iam.principals[arn] = Principal(arn, [{**document, "Statement": rows}])

    return do


LOST = {
    "no right to save": (without("Checkpoints", NODE), "no checkpoint"),
    "no right to report": (without("Reports", NODE), "cannot report"),
    "no right to end stopped nodes": (without("EndStopped", END), "billed for ever"),
    "no role of the pool's end": (
        lambda rig: rig.fake.faults.plan("SimulatePrincipalPolicy", "error:NoSuchEntity", times=99),
        "does not exist",
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_a_role_that_has_lost_a_right_is_told(make_rig: RigMaker, name: str) -> None:
    """Within three minutes, and with what fails."""
    rig, probe = a_site(make_rig)
    probe.refresh()
    assert probe.fault == ""
    do, said = LOST[name]
    do(rig)
    rig.pass_time(PROBE_SECONDS)
    probe.refresh()

    assert said in probe.fault


@pytest.mark.parametrize("code", ["AccessDenied", "NotImplemented", "ServiceFailure"])
def test_who_may_not_ask_knows_nothing(make_rig: RigMaker, code: str) -> None:
    """The doctor says that; it is no loss."""
    rig, probe = a_site(make_rig)
    rig.fake.faults.plan("SimulatePrincipalPolicy", f"error:{code}", times=99)
    probe.refresh()

    assert probe.fault == ""


@pytest.mark.parametrize("sid", ["Checkpoints", "Reports"])
def test_a_right_that_the_policy_of_the_resource_gives_is_no_loss(make_rig: RigMaker, sid: str) -> None:
    """IAM's simulator does not know the policies of buckets and queues; a denial holds whatever they say."""
    rig, probe = a_site(make_rig)
    without(sid, NODE)(rig)
    probe.refresh()
    assert probe.fault == ""
    denial = {"Sid": "No", "Effect": "Deny", "Action": ["s3:PutObject", "sqs:SendMessage"], "Resource": ["*"]}
    (document,) = rig.fake.iam.principals[NODE].documents
    rows = [*document["Statement"], denial]
    rig.fake.iam.principals[NODE] = Principal(NODE, [{**document, "Statement": rows}])
    rig.pass_time(PROBE_SECONDS)
    probe.refresh()

    assert "no checkpoint" in probe.fault
    assert "cannot report" in probe.fault


@pytest.mark.parametrize("operation", ["SimulatePrincipalPolicy", "GetCallerIdentity"])
def test_where_iam_does_not_answer_it_is_asked_seldom(make_rig: RigMaker, operation: str) -> None:
    """A network without a way to IAM lets each call wait for its end, within the tick."""
    rig, probe = a_site(make_rig)
    rig.fake.faults.plan(operation, "drop", times=999)
    counts = rig.cloud.calls.counts
    before = counts.total()
    probe.refresh()
    first = counts.total()
    assert counts["iam:SimulatePrincipalPolicy"] <= 1
    for _ in range(5):
        rig.pass_time(PROBE_SECONDS)
        probe.refresh()
    assert counts.total() == first > before

    probe.forget()
    probe.refresh()
    assert counts.total() > first


def test_a_site_without_roles_asks_nothing(make_rig: RigMaker) -> None:
    """No call is made for nothing."""
    rig = make_rig()
    rig.cloud.refresh()

    assert rig.cloud.calls.counts["iam:SimulatePrincipalPolicy"] == 0
