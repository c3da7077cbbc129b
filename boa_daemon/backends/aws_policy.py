"""The least that AWS must allow: a policy made from the table of calls, so that it allows those and no other.

Every statement that makes or ends something is bound to the cluster's tag: made with it, or made before with
it. The inputs of a launch (subnet, image, ...) bear no tag of ours; being allowed to use them makes nothing
without the statement on instances. The owner tag can never be changed: of the tags of a node only the lease
and its names can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from boa_daemon.backends.aws_calls import OPERATIONS
from boa_daemon.backends.aws_request import CLUSTER_TAG, JOB_TAG, LEASE_TAG
from boa_daemon.backends.settings import AwsSettings

Statement = dict[str, Any]
_MADE = ("instance", "volume", "network-interface", "spot-instances-request")
_INPUTS = (
    "subnet",
    "security-group",
    "key-pair",
    "placement-group",
    "capacity-reservation",
    "launch-template",
)
_IAM_ACTION = {"sqs:DeleteMessageBatch": "sqs:DeleteMessage"}
"""Operations that IAM knows under another name."""


def actions_of(group: str) -> list[str]:
    """Return the IAM actions of a group of calls."""
    return sorted({_IAM_ACTION.get(name, name) for name, its in OPERATIONS.items() if its == group})


def policy(settings: AwsSettings, *, account: str = "*", node_role: str = "") -> dict[str, Any]:
    """Return the policy of the daemon as an IAM document.

    `node_role` is the ARN of the role of the nodes, made from the settings' instance profile where left out.
    """
    statements = [*_reading(settings), *_launching(settings, account), *_ending(settings, account)]
    role = node_role or _role_of(settings.instance_profile, account)
    if role:
        statements.append(
            {
                "Sid": "PassNodeRole",
                "Effect": "Allow",
                "Action": ["iam:PassRole"],
                "Resource": [role],
                "Condition": {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
            }
        )
    statements += [_queue(settings, account), _never(settings)]
    return {"Version": "2012-10-17", "Statement": [each for each in statements if each]}


def cloud_formation(settings: AwsSettings) -> dict[str, Any]:
    """Return a CloudFormation template: the policy, and the queue that EventBridge fills with warnings."""
    account = "${AWS::AccountId}"
    document = _with_substitution(policy(settings.model_copy(update={"queue_url": ""}), account=account))
    document["Statement"].append(
        {
            "Sid": "Warnings",
            "Effect": "Allow",
            "Action": actions_of("queue"),
            "Resource": [{"Fn::GetAtt": ["Warnings", "Arn"]}],
        }
    )
    details = [
        "EC2 Spot Instance Interruption Warning",
        "EC2 Instance Rebalance Recommendation",
        "EC2 Instance State-change Notification",
    ]
    queue = {"Fn::GetAtt": ["Warnings", "Arn"]}
    send = {
        "Effect": "Allow",
        "Principal": {"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]},
        "Action": "sqs:SendMessage",
        "Resource": queue,
    }
    tls = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sqs:*",
        "Resource": queue,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"What the BOA daemon of cluster {settings.cluster} needs",
        "Resources": {
            "DaemonPolicy": {
                "Type": "AWS::IAM::ManagedPolicy",
                "Properties": {"ManagedPolicyName": f"boa-{settings.cluster}", "PolicyDocument": document},
            },
            "Warnings": {
                "Type": "AWS::SQS::Queue",
                "Properties": {"MessageRetentionPeriod": 300, "SqsManagedSseEnabled": True},
            },
            "WarningsPolicy": {
                "Type": "AWS::SQS::QueuePolicy",
                "Properties": {
                    "Queues": [{"Ref": "Warnings"}],
                    "PolicyDocument": {"Version": "2012-10-17", "Statement": [send, tls]},
                },
            },
            "WarningsRule": {
                "Type": "AWS::Events::Rule",
                "Properties": {
                    "EventPattern": {"source": ["aws.ec2"], "detail-type": details},
                    "Targets": [{"Id": "queue", "Arn": queue}],
                },
            },
        },
        "Outputs": {
            "QueueUrl": {"Value": {"Ref": "Warnings"}},
            "PolicyArn": {"Value": {"Ref": "DaemonPolicy"}},
        },
    }


def _arn(settings: AwsSettings, account: str, kind: str) -> str:
    """Return the ARN of everything of a kind in the region."""
    return f"arn:aws:ec2:{settings.region}:{account}:{kind}/*"


def _reading(settings: AwsSettings) -> list[Statement]:
    """Return what may be looked at: EC2 knows no finer resource for describing."""
    here = {"StringEquals": {"aws:RequestedRegion": settings.region}}
    images = "arn:aws:ssm:*:*:parameter/aws/service/*"
    return [
        {
            "Sid": "Read",
            "Effect": "Allow",
            "Action": actions_of("read"),
            "Resource": ["*"],
            "Condition": here,
        },
        {"Sid": "Images", "Effect": "Allow", "Action": actions_of("image"), "Resource": [images]},
        {
            "Sid": "Account",
            "Effect": "Allow",
            "Action": actions_of("account"),
            "Resource": ["*"],
        },
    ]


def _launching(settings: AwsSettings, account: str) -> list[Statement]:
    """Return what a launch needs: its inputs, the instance, what comes with it, and their tags."""
    mine = {f"aws:RequestTag/{CLUSTER_TAG}": settings.cluster}
    instance: dict[str, Any] = {"StringEquals": {**mine, "ec2:MetadataHttpTokens": "required"}}
    if settings.instance_types:
        instance["StringEquals"]["ec2:InstanceType"] = list(settings.instance_types)
    inputs = [_arn(settings, account, kind) for kind in _INPUTS]
    inputs += [f"arn:aws:ec2:{settings.region}::image/*", f"arn:aws:ec2:{settings.region}::snapshot/*"]
    return [
        {"Sid": "LaunchInputs", "Effect": "Allow", "Action": actions_of("launch"), "Resource": inputs},
        {
            "Sid": "LaunchInstances",
            "Effect": "Allow",
            "Action": actions_of("launch"),
            "Resource": [_arn(settings, account, "instance")],
            "Condition": instance,
        },
        {
            "Sid": "LaunchParts",
            "Effect": "Allow",
            "Action": actions_of("launch"),
            "Resource": [_arn(settings, account, kind) for kind in _MADE[1:]],
            "Condition": {"StringEquals": mine},
        },
        {
            "Sid": "TagAtLaunch",
            "Effect": "Allow",
            "Action": actions_of("tag"),
            "Resource": [_arn(settings, account, kind) for kind in _MADE],
            "Condition": {"StringEquals": {**mine, "ec2:CreateAction": "RunInstances"}},
        },
    ]


def _ending(settings: AwsSettings, account: str) -> list[Statement]:
    """Return what may be done to what is ours already: renew its lease, end it."""
    mine = {f"aws:ResourceTag/{CLUSTER_TAG}": settings.cluster}
    return [
        {
            "Sid": "RenewLeases",
            "Effect": "Allow",
            "Action": actions_of("tag"),
            "Resource": [_arn(settings, account, "instance")],
            "Condition": {
                "StringEquals": mine,
                "ForAllValues:StringEquals": {"aws:TagKeys": [LEASE_TAG, JOB_TAG, "Name"]},
            },
        },
        {
            "Sid": "Release",
            "Effect": "Allow",
            "Action": actions_of("release"),
            "Resource": [_arn(settings, account, kind) for kind in _MADE],
            "Condition": {"StringEquals": mine},
        },
    ]


def _queue(settings: AwsSettings, account: str) -> Statement:
    """Return the statement on the queue of the settings; nothing where there is none."""
    if not settings.queue_url:
        return {}
    owner, name = settings.queue_url.rstrip("/").split("/")[-2:]
    arn = f"arn:aws:sqs:{settings.region}:{owner if owner.isdigit() else account}:{name}"
    return {"Sid": "Warnings", "Effect": "Allow", "Action": actions_of("queue"), "Resource": [arn]}


def _never(settings: AwsSettings) -> Statement:
    """Return what is denied whatever else allows it: ending what is not ours."""
    return {
        "Sid": "NeverForeign",
        "Effect": "Deny",
        "Action": ["ec2:TerminateInstances", "ec2:StopInstances", "ec2:ModifyInstanceAttribute"],
        "Resource": ["*"],
        "Condition": {"StringNotEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": settings.cluster}},
    }


def _role_of(profile: str, account: str) -> str:
    """Return the ARN of the role behind an instance profile, which bears its name."""
    return f"arn:aws:iam::{account}:role/{profile.rpartition('/')[2]}" if profile else ""


def _with_substitution(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy whose ARNs CloudFormation completes."""

    def resources(names: Sequence[str]) -> list[Any]:
        return [{"Fn::Sub": name} if "${" in name else name for name in names]

    statements = [{**each, "Resource": resources(each["Resource"])} for each in document["Statement"]]
    return {**document, "Statement": statements}
