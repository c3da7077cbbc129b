"""Least-privilege IAM policies, made from the table of calls: they allow those calls and no others.

Every statement that creates or ends a resource requires the cluster's tag, on the request or on the resource.
The inputs of a launch (subnet, image, ...) do not have our tag; permission to use them creates nothing
without the statement on instances. The owner tag can never be changed: of a node's tags only the lease, the
job and the name can, and with a warm pool those of the next life. Commands reach tagged nodes only. Nodes
have a policy of their own: SSM, their part of the bucket, and the queue that they report to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from boa_daemon.backends.aws.client.calls import NODE_OPERATIONS
from boa_daemon.backends.aws.client.resource_names import (
    bucket_and_prefix,
    control_role_name,
    ec2_service,
    partition,
    queue_arn,
    role_of,
    slug_of,
)
from boa_daemon.backends.aws.rights.policy_statements import (
    NO_OTHER_RESOURCES,
    Statement,
    UsedResources,
    actions_of,
    bucket_statements,
    command_statements,
    deny_statement,
    launch_statements,
    pass_role_statement,
    queue_statements,
    read_statements,
    rule_statements,
    schedule_statements,
    terminate_statements,
)
from boa_daemon.backends.settings import AwsSettings

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
"""Actions that SSM's agent needs for Run Command. AWS's own policy also reads the account's parameters."""
MOST_CHARACTERS = 6144
_REGION_KEY = "aws:RequestedRegion"


def policy(
    settings: AwsSettings,
    *,
    uses: UsedResources = NO_OTHER_RESOURCES,
    account: str = "*",
    node_role: str = "",
    control_role: str = "",
) -> dict[str, Any]:
    """Return the policy of the daemon as an IAM document; one of several regions covers all of them.

    `node_role` is the ARN of the nodes' role; if empty, the role of the settings' instance profile.
    `control_role` is the ARN of the daemon's role, which may simulate the rights of all these roles; if
    empty, the role that `boa up` makes.
    """
    if len(settings.regions) > 1:
        return _merged(
            policy(
                settings.in_region(region),
                # Bucket, reports and roles are those of the home region.
                uses=uses, account=account, node_role=node_role, control_role=control_role,
            )
            for region in settings.regions
        )  # fmt: skip
    statements = [
        *read_statements(settings),
        *launch_statements(settings, account),
        *terminate_statements(settings, account),
    ]
    role = node_role or role_of(settings, account)
    if role:
        statements.append(pass_role_statement("PassNodeRole", role, ec2_service(settings)))
    end_role = settings.pool_end_role
    if end_role and settings.warm_pool_nodes:
        statements += schedule_statements(settings, account)
    if uses.uri or uses.reports_queue_url:
        statements += command_statements(settings, account)
    statements += [*queue_statements(settings, uses, account), *rule_statements(settings)]
    statements += bucket_statements(settings, uses)
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
    itself = control_role or f"arn:{partition(settings)}:iam::{account}:role/{control_role_name(settings)}"
    own = f"arn:{partition(settings)}:iam::{account}:role/boa-{slug_of(settings)}-"
    asked = {f"{own}*" if each.startswith(own) else each for each in (itself, role, end_role) if each}
    statements.append(
        {"Sid": "AskOwnRights", "Effect": "Allow", "Action": actions_of("self"), "Resource": sorted(asked)}
    )
    statements.append(deny_statement(settings))
    return {"Version": "2012-10-17", "Statement": statements}


def _merged(documents: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return one policy that allows what each of some policies of one cluster allows, by statement."""
    found: dict[str, Statement] = {}
    for document in documents:
        for statement in document["Statement"]:
            known = found.setdefault(statement["Sid"], statement)
            if known is statement:
                continue
            known["Resource"] = list(dict.fromkeys([*known["Resource"], *statement["Resource"]]))
            equal = known.get("Condition", {}).get("StringEquals", {})
            there = statement.get("Condition", {}).get("StringEquals", {}).get(_REGION_KEY)
            if there is not None:
                regions = equal[_REGION_KEY]
                before = [regions] if isinstance(regions, str) else regions
                equal[_REGION_KEY] = list(dict.fromkeys([*before, there]))
    return {"Version": "2012-10-17", "Statement": list(found.values())}


def parts_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Split a policy into managed policies that IAM accepts: each has at most 6,144 characters."""
    parts: list[list[Statement]] = [[]]
    for statement in document["Statement"]:
        if _size([*parts[-1], statement]) > MOST_CHARACTERS:
            parts.append([])
        parts[-1].append(statement)
    return [{**document, "Statement": statements} for statements in parts]


def _size(statements: list[Statement]) -> int:
    """Return the number of characters of a policy with these statements, without white space."""
    return len(json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":")))


def node_policy(settings: AwsSettings, uses: UsedResources, *, account: str = "*") -> dict[str, Any]:
    """Return the policy of the nodes as an IAM document: SSM's agent, bucket prefix, reports and data."""
    statements: list[Statement] = [
        {"Sid": "SsmAgent", "Effect": "Allow", "Action": list(_SSM_AGENT), "Resource": ["*"]}
    ]
    if uses.uri:
        bucket, prefix = bucket_and_prefix(uses.uri)
        name = f"arn:{partition(settings)}:s3:::{bucket}"
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


def _data(
    settings: AwsSettings, uses: UsedResources, sid: str, actions: list[str], *, whole: bool
) -> list[Statement]:
    """Return statements on the data that jobs may name: to read objects (`whole`), or to list their names."""
    found: dict[str, list[str]] = {}
    for pattern in uses.data:
        bucket, _, prefix = pattern.removeprefix("s3://").partition("/")
        found.setdefault(f"arn:{partition(settings)}:s3:::{bucket}", []).append(prefix or "*")
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


def _secrets(settings: AwsSettings, uses: UsedResources, account: str) -> list[Statement]:
    """Return statements on the secrets that jobs may name, and no others."""
    here = f"arn:{partition(settings)}:ssm:{settings.region}:{account}:parameter"
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
    """Return the statements of a policy that allow an action on a resource, regardless of conditions.

    If no statement names the resource, return those that allow the action on any resource.
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
