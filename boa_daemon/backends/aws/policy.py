"""The least that AWS must allow: policies made from the table of calls, which allow those and no other.

Every statement that makes or ends something is bound to the cluster's tag: made with it, or made before with
it. The inputs of a launch (subnet, image, ...) bear no tag of ours; being allowed to use them makes nothing
without the statement on instances. The owner tag can never be changed: of the tags of a node only the lease
and its names can. Commands reach tagged nodes alone. Nodes have a policy of their own: to be reached by SSM,
their part of the bucket, and the queue that they report to.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from boa_daemon.backends.aws.calls import NODE_OPERATIONS, OPERATIONS
from boa_daemon.backends.aws.lives import LIFE_TAG, STOPPED_TAG
from boa_daemon.backends.aws.request import CLUSTER_TAG, GENERATION_TAG, INTENT_TAG, JOB_TAG, LEASE_TAG
from boa_daemon.backends.settings import AwsSettings

Statement = dict[str, Any]
MADE = ("instance", "volume", "network-interface", "spot-instances-request")
"""What a launch makes."""
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
"""Operations that IAM knows under another name."""
_SSM_AGENT = (
    "ec2messages:AcknowledgeMessage",
    "ec2messages:DeleteMessage",
    "ec2messages:FailMessage",
    "ec2messages:GetEndpoint",
    "ec2messages:GetMessages",
    "ec2messages:SendReply",
    "ssm:DescribeDocument",
    "ssm:GetDocument",
    "ssm:ListAssociations",
    "ssm:ListInstanceAssociations",
    "ssm:UpdateInstanceAssociationStatus",
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""What SSM's agent needs for Run Command. AWS's own policy for it also reads the account's parameters."""
DOCUMENT = "AWS-RunShellScript"
MOST_CHARACTERS = 6144
LONGEST_SLUG = 24
"""A bucket's name has at most 63 characters, 39 of them for `boa`, the account and the region."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """What the daemon uses beside `[cloud]`: of `[engine]` and `[alerts]`. Empty: not used."""

    reports_queue_url: str = ""
    uri: str = ""
    sns_topic: str = ""
    secrets: tuple[str, ...] = ()
    data: tuple[str, ...] = ()


NOTHING_ELSE = Uses()


def iam_action(operation: str) -> str:
    """Return IAM's name of a call."""
    return _IAM_ACTION.get(operation, operation)


def actions_of(group: str, table: Mapping[str, str] = OPERATIONS) -> list[str]:
    """Return the IAM actions of a group of calls."""
    return sorted({iam_action(name) for name, its in table.items() if its == group})


def partition_of(region: str) -> str:
    """Return the partition of a region, the second part of its ARNs."""
    return "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws"


def slug_of(settings: AwsSettings) -> str:
    """Return the cluster's name for what takes fewer characters than a tag does: buckets, queues, roles."""
    slug = re.sub(r"[^a-z0-9-]", "-", settings.cluster.lower()).strip("-")
    if len(slug) <= LONGEST_SLUG and slug == settings.cluster:
        return slug
    digest = hashlib.sha256(settings.cluster.encode()).hexdigest()[:6]
    return f"{slug[: LONGEST_SLUG - 7].strip('-')}-{digest}"


def control_role_name(settings: AwsSettings) -> str:
    """Return the name of the role of the daemon."""
    return f"boa-{slug_of(settings)}-control"


def policy(
    settings: AwsSettings,
    *,
    uses: Uses = NOTHING_ELSE,
    account: str = "*",
    node_role: str = "",
    control_role: str = "",
) -> dict[str, Any]:
    """Return the policy of the daemon as an IAM document.

    `node_role` is the ARN of the role of the nodes, made from the settings' instance profile where left out.
    `control_role` is the ARN of the daemon's own, which may ask what it and they may do; `boa up` makes it.
    """
    statements = [*_reading(settings), *_launching(settings, account), *_ending(settings, account)]
    role = node_role or role_of(settings, account)
    if role:
        statements.append(_passing("PassNodeRole", role, _ec2_service(settings)))
    end_role = settings.pool_end_role
    if end_role and settings.warm_pool_nodes:
        statements += _scheduling(settings, account)
    if uses.uri or uses.reports_queue_url:
        statements += _commanding(settings, account)
    statements += [*_queues(settings, uses, account), *_rules(settings)]
    statements += _bucket(settings, uses)
    statements += _data(settings, uses, "DataList", actions_of("list"), whole=False)
    if uses.sns_topic:
        statements.append(
            {
                "Sid": "Alerts",
                "Effect": "Allow",
                "Action": actions_of("alert"),
                "Resource": [uses.sns_topic],
            }
        )
    itself = control_role or f"arn:{_p(settings)}:iam::{account}:role/{control_role_name(settings)}"
    own = f"arn:{_p(settings)}:iam::{account}:role/boa-{slug_of(settings)}-"
    asked = {f"{own}*" if each.startswith(own) else each for each in (itself, role, end_role) if each}
    statements.append(
        {"Sid": "AskOwnRights", "Effect": "Allow", "Action": actions_of("self"), "Resource": sorted(asked)}
    )
    statements.append(_never(settings))
    return {"Version": "2012-10-17", "Statement": statements}


def parts_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a policy as policies that IAM takes: a managed one has 6,144 characters at the most."""
    parts: list[list[Statement]] = [[]]
    for statement in document["Statement"]:
        if _size([*parts[-1], statement]) > MOST_CHARACTERS:
            parts.append([])
        parts[-1].append(statement)
    return [{**document, "Statement": statements} for statements in parts]


def _size(statements: list[Statement]) -> int:
    """Return how many characters a policy of statements has, white space not counted."""
    return len(json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":")))


def node_policy(settings: AwsSettings, uses: Uses, *, account: str = "*") -> dict[str, Any]:
    """Return the policy of the nodes as an IAM document: SSM's agent, the bucket's prefix, the reports."""
    statements: list[Statement] = [
        {"Sid": "SsmAgent", "Effect": "Allow", "Action": list(_SSM_AGENT), "Resource": ["*"]}
    ]
    if uses.uri:
        bucket, prefix = _bucket_of(uses.uri)
        name = f"arn:{_p(settings)}:s3:::{bucket}"
        statements += [
            {
                "Sid": "Checkpoints",
                "Effect": "Allow",
                "Action": actions_of("write", NODE_OPERATIONS),
                "Resource": [f"{name}/{prefix}*"],
            },
            {
                "Sid": "ListCheckpoints",
                "Effect": "Allow",
                "Action": actions_of("list", NODE_OPERATIONS),
                "Resource": [name],
                "Condition": {"StringLike": {"s3:prefix": [f"{prefix}*"]}},
            },
        ]
    if uses.reports_queue_url:
        statements.append(
            {
                "Sid": "Reports",
                "Effect": "Allow",
                "Action": actions_of("tell", NODE_OPERATIONS),
                "Resource": [queue_arn(settings, uses.reports_queue_url, account)],
            }
        )
    statements += _secrets(settings, uses, account)
    statements += _data(settings, uses, "DataList", actions_of("list", NODE_OPERATIONS), whole=False)
    statements += _data(settings, uses, "Data", ["s3:GetObject"], whole=True)
    return {"Version": "2012-10-17", "Statement": statements}


def _data(settings: AwsSettings, uses: Uses, sid: str, actions: list[str], *, whole: bool) -> list[Statement]:
    """Return the data that jobs may name: its `whole` objects to be read, or their names to be listed."""
    found: dict[str, list[str]] = {}
    for pattern in uses.data:
        bucket, _, prefix = pattern.removeprefix("s3://").partition("/")
        found.setdefault(f"arn:{_p(settings)}:s3:::{bucket}", []).append(prefix or "*")
    rows: list[Statement] = [
        {"Sid": f"{sid}{number or ''}", "Effect": "Allow", "Action": actions, "Resource": [name]}
        for number, name in enumerate(found)
    ]
    for row, (name, prefixes) in zip(rows, found.items(), strict=True):
        if whole:
            row["Resource"] = [f"{name}/{prefix}" for prefix in prefixes]
        else:
            row["Condition"] = {"StringLike": {"s3:prefix": prefixes}}
    return rows


def _secrets(settings: AwsSettings, uses: Uses, account: str) -> list[Statement]:
    """Return the secrets that jobs may name: those, and no other."""
    here = f"arn:{_p(settings)}:ssm:{settings.region}:{account}:parameter"
    named: dict[str, list[str]] = {"ssm": [], "secretsmanager": []}
    for reference in uses.secrets:
        kind, _, rest = reference.partition(":")
        named.setdefault(kind, []).append(f"{here}{rest}" if kind == "ssm" else rest)
    kinds = (("SecretParameters", "parameter", "ssm"), ("Secrets", "secret", "secretsmanager"))
    return [
        {
            "Sid": sid,
            "Effect": "Allow",
            "Action": actions_of(group, NODE_OPERATIONS),
            "Resource": named[kind],
        }
        for sid, group, kind in kinds
        if named[kind]
    ]


def sids_for(document: Mapping[str, Any], action: str, resource: str) -> list[str]:
    """Return the statements of a policy that allow an action on a resource, their conditions left aside.

    Where none names the resource, those that allow the action on something.
    """
    allows = [
        each
        for each in document["Statement"]
        if each["Effect"] == "Allow" and any(fnmatchcase(action, name) for name in each["Action"])
    ]
    named = [
        each["Sid"]
        for each in allows
        if any(fnmatchcase(resource, arn.replace("::*:", ":*:")) for arn in each["Resource"])
    ]
    return named or [each["Sid"] for each in allows]


def queue_arn(settings: AwsSettings, url: str, account: str) -> str:
    """Return the ARN of a queue by its address."""
    owner, name = url.rstrip("/").split("/")[-2:]
    # A fake's queue may have no account in its address; CloudFormation completes ${AWS::AccountId}.
    whose = owner if owner.isdigit() or owner.startswith("${") else account
    return f"arn:{_p(settings)}:sqs:{settings.region}:{whose}:{name}"


def _p(settings: AwsSettings) -> str:
    """Return the partition of the settings."""
    return partition_of(settings.region)


def _ec2_service(settings: AwsSettings) -> str:
    """Return EC2 as a principal."""
    return "ec2.amazonaws.com.cn" if _p(settings) == "aws-cn" else "ec2.amazonaws.com"


def _arn(settings: AwsSettings, account: str, kind: str) -> str:
    """Return the ARN of everything of a kind in the region."""
    return f"arn:{_p(settings)}:ec2:{settings.region}:{account}:{kind}/*"


def _reading(settings: AwsSettings) -> list[Statement]:
    """Return what may be looked at: EC2 knows no finer resource for describing."""
    here = {"StringEquals": {"aws:RequestedRegion": settings.region}}
    images = f"arn:{_p(settings)}:ssm:*:*:parameter/aws/service/*"
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
    public = f"arn:{_p(settings)}:ec2:{settings.region}:"
    inputs += [f"{public}:image/*", f"{public}:snapshot/*"]
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
            "Resource": [_arn(settings, account, kind) for kind in MADE[1:]],
            "Condition": {"StringEquals": mine},
        },
        {
            "Sid": "TagAtLaunch",
            "Effect": "Allow",
            "Action": actions_of("tag"),
            "Resource": [_arn(settings, account, kind) for kind in MADE],
            "Condition": {"StringEquals": {**mine, "ec2:CreateAction": "RunInstances"}},
        },
    ]


def _ending(settings: AwsSettings, account: str) -> list[Statement]:
    """Return what may be done to what is ours: renew its lease, end it; with a pool, stop and start it."""
    mine = {f"aws:ResourceTag/{CLUSTER_TAG}": settings.cluster}
    tags, pool = [LEASE_TAG, JOB_TAG, "Name"], []
    if settings.warm_pool_nodes:
        tags += [LIFE_TAG, STOPPED_TAG, INTENT_TAG, GENERATION_TAG]
        pool = [
            {
                "Sid": "WarmPool",
                "Effect": "Allow",
                "Action": actions_of("pool"),
                "Resource": [_arn(settings, account, "instance")],
                "Condition": {"StringEquals": mine},
            }
        ]
    return [
        {
            "Sid": "RenewLeases",
            "Effect": "Allow",
            "Action": actions_of("tag"),
            "Resource": [_arn(settings, account, "instance")],
            "Condition": {
                "StringEquals": mine,
                "ForAllValues:StringEquals": {"aws:TagKeys": tags},
            },
        },
        {
            "Sid": "Release",
            "Effect": "Allow",
            "Action": actions_of("release"),
            "Resource": [_arn(settings, account, kind) for kind in MADE],
            "Condition": {"StringEquals": mine},
        },
        *pool,
    ]


def _passing(sid: str, role: str, service: str) -> Statement:
    """Return that a role may be handed to one service alone."""
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Action": ["iam:PassRole"],
        "Resource": [role],
        "Condition": {"StringEquals": {"iam:PassedToService": service}},
    }


def schedule_name(settings: AwsSettings, instance: str, life: int) -> str:
    """Return what the schedule is called that ends an instance after its stop."""
    return f"boa-{slug_of(settings)}-{instance}-{life}"


def _scheduling(settings: AwsSettings, account: str) -> list[Statement]:
    """Return what the end of a stopped node needs that comes without us: its schedule, and its role."""
    schedules = (
        f"arn:{_p(settings)}:scheduler:{settings.region}:{account}:schedule/default/boa-{slug_of(settings)}-*"
    )
    return [
        {
            "Sid": "ScheduleEnds",
            "Effect": "Allow",
            "Action": actions_of("pool-end"),
            "Resource": [schedules],
        },
        _passing("PassPoolEndRole", settings.pool_end_role, "scheduler.amazonaws.com"),
    ]


def _commanding(settings: AwsSettings, account: str) -> list[Statement]:
    """Return what Run Command needs: one document, our nodes alone, and the answers."""
    document = f"arn:{_p(settings)}:ssm:{settings.region}::document/{DOCUMENT}"
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
            "Resource": [_arn(settings, account, "instance")],
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


def _queues(settings: AwsSettings, uses: Uses, account: str) -> list[Statement]:
    """Return the statement on each queue that the settings name."""
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


def _rules(settings: AwsSettings) -> list[Statement]:
    """Return what is read of EventBridge: the rules that fill the queue, under whatever names."""
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


def _bucket(settings: AwsSettings, uses: Uses) -> list[Statement]:
    """Return what is read of the bucket: the logs below our prefix, and how it is set."""
    if not uses.uri:
        return []
    bucket, prefix = _bucket_of(uses.uri)
    name = f"arn:{_p(settings)}:s3:::{bucket}"
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


def claim_key(settings: AwsSettings) -> str:
    """Return the key of the object that says whose the cluster is; nodes write below the prefix alone."""
    return f"boa-leader/{slug_of(settings)}.json"


def bucket_of(uri: str) -> str:
    """Return the bucket of s3://bucket/prefix."""
    return _bucket_of(uri)[0]


def _never(settings: AwsSettings) -> Statement:
    """Return what is denied whatever else allows it: ending what is not ours."""
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


def role_of(settings: AwsSettings, account: str) -> str:
    """Return the ARN of the role behind the instance profile, which bears its name."""
    name = settings.instance_profile.rpartition("/")[2]
    return f"arn:{_p(settings)}:iam::{account}:role/{name}" if name else ""


def _bucket_of(uri: str) -> tuple[str, str]:
    """Return (bucket, prefix with its slash) of s3://bucket/prefix."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    return bucket, f"{prefix.rstrip('/')}/" if prefix.rstrip("/") else ""
