"""`aws/rights/policy_statements.py`: each right is bound to our tag, our names or one service."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.backends.aws.client.calls import OPERATIONS
from boa_daemon.backends.aws.rights import policy_statements as statements
from boa_daemon.backends.aws.rights.policy_statements import UsedResources, actions_of, iam_action
from boa_daemon.backends.settings import AwsSettings

SITE = AwsSettings(cluster="lab", queue_url="https://sqs/1/w", pool_end_role="arn:aws:iam::1:role/end")
MINE = {"aws:RequestTag/boa:cluster": "lab"}


def by_sid(*groups: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return statements by their names."""
    return {each["Sid"]: each for group in groups for each in group}


def test_an_action_has_iams_own_name() -> None:
    """Some differ from the call's; each action is named once."""
    assert [iam_action(name) for name in ("s3:ListObjectsV2", "ec2:RunInstances")] == [
        "s3:ListBucket",
        "ec2:RunInstances",
    ]
    for group in set(OPERATIONS.values()):
        actions = actions_of(group)
        assert actions == sorted(set(actions))
        assert actions
    assert actions_of("x", {"s3:B": "x", "s3:A": "x", "s3:C": "y"}) == ["s3:A", "s3:B"]


def test_what_a_launch_makes_carries_our_tag_and_nothing_else_is_tagged() -> None:
    """Instances need a metadata session and a type of the settings; parts need no such thing."""
    found = by_sid(statements.launch_statements(SITE, "1"))
    assert found["LaunchInstances"]["Condition"] == {
        "StringEquals": {**MINE, "ec2:MetadataHttpTokens": "required"}
    }
    assert found["LaunchInstances"]["Resource"] == ["arn:aws:ec2:us-east-1:1:instance/*"]
    assert found["LaunchParts"]["Condition"] == {"StringEquals": MINE}
    assert not any("instance/*" in arn for arn in found["LaunchParts"]["Resource"])
    tag = found["TagAtLaunch"]
    assert tag["Condition"] == {"StringEquals": {**MINE, "ec2:CreateAction": "RunInstances"}}
    assert len(tag["Resource"]) == len(statements.MADE)
    limited = by_sid(
        statements.launch_statements(SITE.model_copy(update={"instance_types": ("a", "b")}), "1")
    )
    assert limited["LaunchInstances"]["Condition"]["StringEquals"]["ec2:InstanceType"] == ["a", "b"]
    assert "ec2:InstanceType" not in str(limited["LaunchParts"])


def test_only_instances_with_our_tag_are_ended_stopped_or_retagged() -> None:
    """Of their tags only those may change that say nothing of whose they are."""
    ours = {"StringEquals": {"aws:ResourceTag/boa:cluster": "lab"}}
    plain = by_sid(statements.terminate_statements(SITE, "1"))
    assert plain["Release"]["Condition"] == ours
    assert "WarmPool" not in plain
    renew = plain["RenewLeases"]["Condition"]
    assert renew["StringEquals"] == ours["StringEquals"]
    assert set(renew["ForAllValues:StringEquals"]["aws:TagKeys"]) == {"boa:lease", "boa:job", "Name"}
    pool = by_sid(statements.terminate_statements(SITE.model_copy(update={"warm_pool_nodes": 1}), "1"))
    assert pool["WarmPool"]["Condition"] == ours
    keys = set(pool["RenewLeases"]["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"])
    assert {"boa:life", "boa:stopped-at", "boa:intent"} < keys
    assert "boa:cluster" not in keys


def test_foreign_instances_are_denied_every_change_of_their_life() -> None:
    """A wider right of another policy does not help; neither does switching their protection off."""
    deny = statements.deny_statement(SITE)
    assert (deny["Effect"], deny["Resource"]) == ("Deny", ["*"])
    assert deny["Condition"] == {"StringNotEquals": {"aws:ResourceTag/boa:cluster": "lab"}}
    assert {action.partition(":")[2] for action in deny["Action"]} == {
        "TerminateInstances",
        "StopInstances",
        "StartInstances",
        "ModifyInstanceAttribute",
    }


def test_a_role_is_passed_to_one_service_and_schedules_have_our_names() -> None:
    """Another cluster's schedules cannot be made."""
    found = by_sid(statements.schedule_statements(SITE, "1"))
    role = found["PassPoolEndRole"]
    assert (role["Resource"], role["Condition"]) == (
        ["arn:aws:iam::1:role/end"],
        {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
    )
    assert found["ScheduleEnds"]["Resource"] == ["arn:aws:scheduler:us-east-1:1:schedule/default/boa-lab-*"]


def test_commands_run_one_document_on_our_nodes() -> None:
    """Both statements are needed for one command; the answers name no resource."""
    found = by_sid(statements.command_statements(SITE, "1"))
    assert found["CommandDocument"]["Resource"] == ["arn:aws:ssm:us-east-1::document/AWS-RunShellScript"]
    assert found["CommandNodes"]["Condition"] == {"StringEquals": {"ssm:resourceTag/boa:cluster": "lab"}}
    assert found["CommandAnswers"]["Condition"] == {"StringEquals": {"aws:RequestedRegion": "us-east-1"}}


def test_queues_and_rules_are_named_where_there_are_such() -> None:
    """One statement for each queue."""
    uses = UsedResources(reports_queue_url="https://sqs/1/r")
    found = by_sid(statements.queue_statements(SITE, uses, "1"))
    assert {sid: each["Resource"] for sid, each in found.items()} == {
        "Warnings": ["arn:aws:sqs:us-east-1:1:w"],
        "Reports": ["arn:aws:sqs:us-east-1:1:r"],
    }
    bare = AwsSettings(cluster="lab")
    assert statements.queue_statements(bare, statements.NO_OTHER_RESOURCES, "1") == []
    assert (statements.rule_statements(bare), len(statements.rule_statements(SITE))) == ([], 1)


def test_the_bucket_is_read_below_our_prefix_and_written_for_claim_and_code_alone() -> None:
    """Logs of another prefix are not ours."""
    found = by_sid(statements.bucket_statements(SITE, UsedResources(uri="s3://b/jobs")))
    name = "arn:aws:s3:::b"
    assert {sid: each["Resource"] for sid, each in found.items()} == {
        "ListLogs": [name],
        "ReadLogs": [f"{name}/jobs/*", f"{name}/boa-leader/lab.json"],
        "ClaimCluster": [f"{name}/boa-leader/lab.json"],
        "Code": [f"{name}/jobs/=code/*"],
        "ReadBucketSettings": [name],
    }
    assert found["ListLogs"]["Condition"] == {"StringLike": {"s3:prefix": ["jobs/*"]}}
    assert statements.bucket_statements(SITE, statements.NO_OTHER_RESOURCES) == []


@pytest.mark.parametrize("region", ["us-east-1", "cn-north-1", "us-gov-west-1"])
def test_reading_is_bound_to_the_region_and_arns_to_its_partition(region: str) -> None:
    """Prices and quotas are asked for elsewhere."""
    settings = AwsSettings(cluster="lab", region=region)
    found = by_sid(statements.read_statements(settings))
    assert found["Read"]["Condition"] == {"StringEquals": {"aws:RequestedRegion": region}}
    assert "Condition" not in found["Account"]
    partition = {"cn-north-1": "aws-cn", "us-gov-west-1": "aws-us-gov"}.get(region, "aws")
    (images,) = found["Images"]["Resource"]
    assert images.startswith(f"arn:{partition}:ssm:")
