"""The statements of the daemon's policy, each about one kind of call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from boa_daemon.backends.aws.client.calls import OPERATIONS
from boa_daemon.backends.aws.client.resource_names import (
    bucket_and_prefix,
    claim_key,
    everything_of,
    partition,
    queue_arn,
    slug_of,
)
from boa_daemon.backends.aws.instances.instance_lives import LIFE_TAG, STOPPED_TAG
from boa_daemon.backends.aws.instances.launch_request import (
    CLUSTER_TAG,
    GENERATION_TAG,
    INTENT_TAG,
    JOB_TAG,
    LEASE_TAG,
)
from boa_daemon.backends.settings import AwsSettings

Statement = dict[str, Any]
MADE = ("instance", "volume", "network-interface", "spot-instances-request")
"""Kinds of resources that a launch creates."""
_INPUTS = (
    "subnet",
    "security-group",
    "key-pair",
    "placement-group",
    "capacity-reservation",
    "launch-template",
)
_IAM_ACTION = {
    "sqs:DeleteMessageBatch": "sqs:DeleteMessage",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:AbortMultipartUpload": "s3:AbortMultipartUpload",
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "s3:GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
    "s3:GetPublicAccessBlock": "s3:GetBucketPublicAccessBlock",
}
"""Operations whose IAM action has another name."""
DOCUMENT = "AWS-RunShellScript"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedResources:
    """Resources of `[engine]` and `[alerts]` that the daemon or its nodes use; empty: not used."""

    reports_queue_url: str = ""
    uri: str = ""
    sns_topic: str = ""
    secrets: tuple[str, ...] = ()
    data: tuple[str, ...] = ()


NO_OTHER_RESOURCES = UsedResources()


def iam_action(operation: str) -> str:
    """Return the IAM action of a call."""
    return _IAM_ACTION.get(operation, operation)


def actions_of(group: str, table: Mapping[str, str] = OPERATIONS) -> list[str]:
    """Return the IAM actions of a group of calls."""
    return sorted({iam_action(name) for name, its in table.items() if its == group})


def read_statements(settings: AwsSettings) -> list[Statement]:
    """Return the read statements; EC2's Describe calls allow no narrower resource than `*`."""
    here = {"StringEquals": {"aws:RequestedRegion": settings.region}}
    images = f"arn:{partition(settings)}:ssm:*:*:parameter/aws/service/*"
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


def launch_statements(settings: AwsSettings, account: str) -> list[Statement]:
    """Return the statements of a launch: its inputs, the instance, its disks and interfaces, their tags."""
    mine = {f"aws:RequestTag/{CLUSTER_TAG}": settings.cluster}
    instance: dict[str, Any] = {"StringEquals": {**mine, "ec2:MetadataHttpTokens": "required"}}
    if settings.instance_types:
        instance["StringEquals"]["ec2:InstanceType"] = list(settings.instance_types)
    inputs = [everything_of(settings, account, kind) for kind in _INPUTS]
    public = f"arn:{partition(settings)}:ec2:{settings.region}:"
    inputs += [f"{public}:image/*", f"{public}:snapshot/*"]
    return [
        {"Sid": "LaunchInputs", "Effect": "Allow", "Action": actions_of("launch"), "Resource": inputs},
        {
            "Sid": "LaunchInstances",
            "Effect": "Allow",
            "Action": actions_of("launch"),
            "Resource": [everything_of(settings, account, "instance")],
            "Condition": instance,
        },
        {
            "Sid": "LaunchParts",
            "Effect": "Allow",
            "Action": actions_of("launch"),
            "Resource": [everything_of(settings, account, kind) for kind in MADE[1:]],
            "Condition": {"StringEquals": mine},
        },
        {
            "Sid": "TagAtLaunch",
            "Effect": "Allow",
            "Action": actions_of("tag"),
            "Resource": [everything_of(settings, account, kind) for kind in MADE],
            "Condition": {"StringEquals": {**mine, "ec2:CreateAction": "RunInstances"}},
        },
    ]


def terminate_statements(settings: AwsSettings, account: str) -> list[Statement]:
    """Return the statements on our resources: renew leases and end them; with a pool, stop and start."""
    mine = {f"aws:ResourceTag/{CLUSTER_TAG}": settings.cluster}
    tags, pool = [LEASE_TAG, JOB_TAG, "Name"], []
    if settings.warm_pool_nodes:
        tags += [LIFE_TAG, STOPPED_TAG, INTENT_TAG, GENERATION_TAG]
        pool = [
            {
                "Sid": "WarmPool",
                "Effect": "Allow",
                "Action": actions_of("pool"),
                "Resource": [everything_of(settings, account, "instance")],
                "Condition": {"StringEquals": mine},
            }
        ]
    return [
        {
            "Sid": "RenewLeases",
            "Effect": "Allow",
            "Action": actions_of("tag"),
            "Resource": [everything_of(settings, account, "instance")],
            "Condition": {
                "StringEquals": mine,
                "ForAllValues:StringEquals": {"aws:TagKeys": tags},
            },
        },
        {
            "Sid": "Release",
            "Effect": "Allow",
            "Action": actions_of("release"),
            "Resource": [everything_of(settings, account, kind) for kind in MADE],
            "Condition": {"StringEquals": mine},
        },
        *pool,
    ]


def pass_role_statement(sid: str, role: str, service: str) -> Statement:
    """Return the statement that lets a role be passed to one service only."""
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Action": ["iam:PassRole"],
        "Resource": [role],
        "Condition": {"StringEquals": {"iam:PassedToService": service}},
    }


def schedule_statements(settings: AwsSettings, account: str) -> list[Statement]:
    """Return the statements for schedules that end stopped nodes, and for passing their role."""
    scheduler = f"arn:{partition(settings)}:scheduler:{settings.region}:{account}"
    schedules = f"{scheduler}:schedule/default/boa-{slug_of(settings)}-*"
    return [
        {
            "Sid": "ScheduleEnds",
            "Effect": "Allow",
            "Action": actions_of("pool-end"),
            "Resource": [schedules],
        },
        pass_role_statement("PassPoolEndRole", settings.pool_end_role, "scheduler.amazonaws.com"),
    ]


def command_statements(settings: AwsSettings, account: str) -> list[Statement]:
    """Return the statements for Run Command: one document, our nodes only, and the answers."""
    document = f"arn:{partition(settings)}:ssm:{settings.region}::document/{DOCUMENT}"
    return [
        {
            "Sid": "CommandDocument",
            "Effect": "Allow",
            "Action": actions_of("command"),
            "Resource": [document],
        },
        {
            "Sid": "CommandNodes",
            "Effect": "Allow",
            "Action": actions_of("command"),
            "Resource": [everything_of(settings, account, "instance")],
            "Condition": {"StringEquals": {f"ssm:resourceTag/{CLUSTER_TAG}": settings.cluster}},
        },
        {
            "Sid": "CommandAnswers",
            "Effect": "Allow",
            "Action": actions_of("answer"),
            "Resource": ["*"],
            "Condition": {"StringEquals": {"aws:RequestedRegion": settings.region}},
        },
    ]


def queue_statements(settings: AwsSettings, uses: UsedResources, account: str) -> list[Statement]:
    """Return one statement for each queue that the settings name."""
    return [
        {
            "Sid": sid,
            "Effect": "Allow",
            "Action": actions_of("queue"),
            "Resource": [queue_arn(settings, url, account)],
        }
        for sid, url in (("Warnings", settings.queue_url), ("Reports", uses.reports_queue_url))
        if url
    ]


def rule_statements(settings: AwsSettings) -> list[Statement]:
    """Return the statement to read EventBridge's rules, whatever their names; none without a queue."""
    if not settings.queue_url:
        return []
    here = {"StringEquals": {"aws:RequestedRegion": settings.region}}
    return [
        {
            "Sid": "ReadRules",
            "Effect": "Allow",
            "Action": actions_of("rules"),
            "Resource": ["*"],
            "Condition": here,
        }
    ]


def bucket_statements(settings: AwsSettings, uses: UsedResources) -> list[Statement]:
    """Return the statements on the bucket: logs below our prefix, the claim, code, the bucket's settings."""
    if not uses.uri:
        return []
    bucket, prefix = bucket_and_prefix(uses.uri)
    name = f"arn:{partition(settings)}:s3:::{bucket}"
    return [
        {
            "Sid": "ListLogs",
            "Effect": "Allow",
            "Action": actions_of("list"),
            "Resource": [name],
            "Condition": {"StringLike": {"s3:prefix": [f"{prefix}*"]}},
        },
        {
            "Sid": "ReadLogs",
            "Effect": "Allow",
            "Action": actions_of("fetch"),
            "Resource": [f"{name}/{prefix}*", f"{name}/{claim_key(settings)}"],
        },
        {
            "Sid": "ClaimCluster",
            "Effect": "Allow",
            "Action": actions_of("claim"),
            "Resource": [f"{name}/{claim_key(settings)}"],
        },
        {
            "Sid": "Code",
            "Effect": "Allow",
            "Action": [*actions_of("claim"), *actions_of("tidy")],
            "Resource": [f"{name}/{prefix}=code/*"],
        },
        {"Sid": "ReadBucketSettings", "Effect": "Allow", "Action": actions_of("bucket"), "Resource": [name]},
    ]


def deny_statement(settings: AwsSettings) -> Statement:
    """Return the statement that denies ending, stopping and starting instances without our tag."""
    return {
        "Sid": "NeverForeign",
        "Effect": "Deny",
        "Action": [
            "ec2:TerminateInstances",
            "ec2:StopInstances",
            "ec2:StartInstances",
            "ec2:ModifyInstanceAttribute",
        ],
        "Resource": ["*"],
        "Condition": {"StringNotEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": settings.cluster}},
    }
