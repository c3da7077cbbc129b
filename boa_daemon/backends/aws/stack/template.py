"""The CloudFormation template of a site: `boa up` creates its stack, `boa down --stack` deletes it.

It holds roles and policies of the daemon and of the nodes, a bucket, two queues with their dead-letter
queues, the rules that fill one of the queues, security groups and placement groups; on request a network of
its own and an alarm on the bill. Names derive from the cluster's name, so policies name exactly these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from boa_daemon.backends.aws.client.resource_names import ec2_service, partition_of
from boa_daemon.backends.aws.doctor.stack import CLOSED, ENCRYPTION, UNFINISHED
from boa_daemon.backends.aws.instances.event_rules import PATTERNS, SAID
from boa_daemon.backends.aws.instances.termination_schedule import termination_policy, termination_role_name
from boa_daemon.backends.aws.rights.policy import node_policy, parts_of, policy
from boa_daemon.backends.aws.rights.resource_policies import Queue, bucket_policy, queue_policy
from boa_daemon.backends.aws.stack.network import own_network, security_groups
from boa_daemon.backends.aws.stack.settings import (
    ACCOUNT,
    StackOptions,
    StackSettings,
    stack_settings_of,
    stack_tags,
)
from boa_daemon.backends.settings import AwsSettings, SidePrices

LETTER_DAYS, MOST_RECEIVES = 14, 5


def stack_template(settings: AwsSettings, wishes: StackOptions | None = None) -> dict[str, Any]:
    """Return the template. Its one parameter, without a network of its own, is the VPC of the nodes."""
    wishes, site = wishes or StackOptions(), stack_settings_of(settings)
    resources = {**_queues(site, is_further=wishes.is_further), **_rules(site)}
    if not wishes.is_further:
        # IAM is global: one region has the roles, and the bucket is with them.
        resources = {**_roles(site), **_pool_end(site), **_bucket(site, wishes), **resources}
    vpc: object = {"Ref": "Vpc"}
    parameters: dict[str, Any] = {}
    if wishes.private_zones:
        resources |= own_network(site, wishes.private_zones)
    else:
        vpc = {"Ref": "VpcId"}
        parameters["VpcId"] = {"Type": "AWS::EC2::VPC::Id", "Description": "Network of the nodes"}
    resources |= security_groups(site, vpc)
    for number, _ in enumerate(wishes.efa_zones):
        resources[f"PlacementGroup{number}"] = {
            "Type": "AWS::EC2::PlacementGroup",
            "Properties": {"Strategy": "cluster", "Tags": stack_tags(site)},
        }
    if wishes.email and wishes.usd_per_month:
        resources |= _budget(site, wishes.email, wishes.usd_per_month)
    document: dict[str, Any] = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"What BOA needs for cluster {settings.cluster}",
    }
    if parameters:
        document["Parameters"] = parameters
    document["Resources"] = resources
    document["Outputs"] = _outputs(wishes)
    completed = _completed(document)
    assert isinstance(completed, dict)
    return completed


def as_yaml(document: Mapping[str, Any]) -> str:
    """Return a template as YAML without anchors and aliases, which CloudFormation rejects."""
    return yaml.dump(document, Dumper=_Plain, sort_keys=False, width=100)


class _Plain(yaml.SafeDumper):
    """Dumps a repeated object in full each time."""

    def ignore_aliases(self, data: object) -> bool:
        """Return True: never write an alias."""
        return True


def monthly_costs(wishes: StackOptions, prices: SidePrices) -> list[tuple[str, float, str]]:
    """Return (resource, dollars per month, terms) of the stack's own costs, without nodes."""
    rows = [
        ("roles, security group, rules, placement groups", 0.0, "free"),
        (
            "two queues", 0.0,
            "the first million requests of a month are free, then "
            f"${prices.sqs_usd_per_million:g} per million",
        ),
        (
            "bucket", 0.0,
            f"${prices.s3_usd_per_gb_month:g} per GB and month, "
            f"${prices.s3_usd_per_1000_writes:g} per 1,000 writes",
        ),
    ]  # fmt: skip
    if wishes.is_further:
        del rows[-1]
        rows[0] = ("security group, rules, placement groups", 0.0, "free")
    if wishes.private_zones:
        usd = (prices.nat_usd_per_hour + prices.address_usd_per_hour) * 730.0
        rows.append(
            ("NAT gateway with its address", usd, f"and ${prices.nat_usd_per_gb:g} per GB through it")
        )
        rows.append(("gateway endpoint of S3", 0.0, "free: checkpoints do not go through the NAT gateway"))
    if wishes.email and wishes.usd_per_month:
        rows.append(("alarm on the bill", 0.0, "the first two budgets of an account are free"))
    return rows


def _roles(site: StackSettings) -> dict[str, Any]:
    """Return the roles, policies and instance profiles of the daemon and of the nodes."""
    names, partition = site.names, partition_of(site.settings.region)
    ec2 = ec2_service(site.settings)
    root = f"arn:{partition}:iam::{ACCOUNT}:root"
    by_ec2 = {"Effect": "Allow", "Principal": {"Service": ec2}, "Action": "sts:AssumeRole"}
    by_us = {"Effect": "Allow", "Principal": {"AWS": root}, "Action": "sts:AssumeRole"}
    daemon = parts_of(policy(site.settings, uses=site.uses, account=ACCOUNT))
    managed = {
        f"DaemonPolicy{number or ''}": {
            "Type": "AWS::IAM::ManagedPolicy",
            "Properties": {
                "ManagedPolicyName": f"{names.control}{number or ''}",
                "PolicyDocument": document,
            },
        }
        for number, document in enumerate(daemon)
    }
    node = node_policy(site.settings, site.uses, account=ACCOUNT)
    return {
        **managed,
        "ControlRole": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "RoleName": names.control,
                "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [by_ec2, by_us]},
                "ManagedPolicyArns": [{"Ref": name} for name in managed],
                "Tags": stack_tags(site),
            },
        },
        "ControlProfile": {
            "Type": "AWS::IAM::InstanceProfile",
            "Properties": {"InstanceProfileName": names.control, "Roles": [{"Ref": "ControlRole"}]},
        },
        "NodePolicy": {
            "Type": "AWS::IAM::ManagedPolicy",
            "Properties": {
                "ManagedPolicyName": names.node,
                "PolicyDocument": node,
            },
        },
        "NodeRole": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "RoleName": names.node,
                "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [by_ec2]},
                "ManagedPolicyArns": [{"Ref": "NodePolicy"}],
                "Tags": stack_tags(site),
            },
        },
        "NodeProfile": {
            "Type": "AWS::IAM::InstanceProfile",
            "Properties": {"InstanceProfileName": names.node, "Roles": [{"Ref": "NodeRole"}]},
        },
    }


def _pool_end(site: StackSettings) -> dict[str, Any]:
    """Return the role with which EventBridge Scheduler ends nodes that stay stopped."""
    by_scheduler = {
        "Effect": "Allow",
        "Principal": {"Service": "scheduler.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": ACCOUNT}},
    }
    name = termination_role_name(site.settings)
    document = termination_policy(site.settings, account=ACCOUNT)
    return {
        "PoolEndRole": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "RoleName": name,
                "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [by_scheduler]},
                "Policies": [{"PolicyName": name, "PolicyDocument": document}],
                "Tags": stack_tags(site),
            },
        }
    }


def _bucket(site: StackSettings, wishes: StackOptions) -> dict[str, Any]:
    """Return the bucket: encrypted, closed to the public, TLS only, and kept when the stack is deleted."""
    # S3 and CloudFormation name a rule's id differently; without a filter the rule covers all objects.
    unfinished = {key: value for key, value in UNFINISHED.items() if key not in ("ID", "Filter")}
    rules: list[dict[str, Any]] = [{"Id": UNFINISHED["ID"], **unfinished}]
    if wishes.expire_days is not None:
        rules.append({"Id": "old", "Status": "Enabled", "ExpirationInDays": wishes.expire_days})
    arn = {"Fn::GetAtt": ["Bucket", "Arn"]}
    encryption = {"ServerSideEncryptionByDefault": ENCRYPTION}
    return {
        "Bucket": {
            "Type": "AWS::S3::Bucket",
            # Checkpoints and logs outlive the stack; `boa down --stack --data` deletes them too.
            "DeletionPolicy": "Retain",
            "UpdateReplacePolicy": "Retain",
            "Properties": {
                "BucketName": site.names.bucket,
                "BucketEncryption": {"ServerSideEncryptionConfiguration": [encryption]},
                "PublicAccessBlockConfiguration": dict.fromkeys(CLOSED, True),
                "LifecycleConfiguration": {"Rules": rules},
                "Tags": stack_tags(site),
            },
        },
        "BucketPolicy": {
            "Type": "AWS::S3::BucketPolicy",
            "Properties": {
                "Bucket": {"Ref": "Bucket"},
                "PolicyDocument": bucket_policy(arn, {"Fn::Join": ["", [arn, "/*"]]}),
            },
        },
    }


def _queues(site: StackSettings, *, is_further: bool) -> dict[str, Any]:
    """Return the queues with their dead-letter queues and policies; a further region has warnings alone."""
    keep = LETTER_DAYS * 86_400
    found: dict[str, Any] = {}
    queues: tuple[tuple[Queue, str, str], ...] = (
        ("warnings", "Warnings", site.names.warnings),
        ("reports", "Reports", site.names.reports),
    )
    for queue, name, queue_name in queues[: 1 if is_further else 2]:
        arn, dead = {"Fn::GetAtt": [name, "Arn"]}, {"Fn::GetAtt": [f"{name}Dead", "Arn"]}
        plain = {"MessageRetentionPeriod": keep, "SqsManagedSseEnabled": True, "Tags": stack_tags(site)}
        found[f"{name}Dead"] = {
            "Type": "AWS::SQS::Queue",
            "Properties": {"QueueName": f"{queue_name}-dead", **plain},
        }
        found[name] = {
            "Type": "AWS::SQS::Queue",
            "Properties": {
                "QueueName": queue_name,
                **plain,
                "RedrivePolicy": {"deadLetterTargetArn": dead, "maxReceiveCount": MOST_RECEIVES},
            },
        }
        found[f"{name}Policy"] = {
            "Type": "AWS::SQS::QueuePolicy",
            "Properties": {
                "Queues": [{"Ref": name}],
                "PolicyDocument": queue_policy(queue, arn, ACCOUNT),
            },
        }
    return found


def _rules(site: StackSettings) -> dict[str, Any]:
    target = [{"Id": "queue", "Arn": {"Fn::GetAtt": ["Warnings", "Arn"]}}]
    return {
        f"{about.capitalize()}Rule": {
            "Type": "AWS::Events::Rule",
            "Properties": {
                "Description": f"BOA {site.settings.cluster}: {SAID[about]}",
                "EventPattern": pattern,
                "Targets": target,
            },
        }
        for about, pattern in PATTERNS.items()
    }


def _budget(site: StackSettings, email: str, usd: float) -> dict[str, Any]:
    """Return an alarm on the whole account's bill: a last resort, hours late; caps come first."""
    to = [{"SubscriptionType": "EMAIL", "Address": email}]
    return {
        "BillAlarm": {
            "Type": "AWS::Budgets::Budget",
            "Properties": {
                "Budget": {
                    "BudgetName": site.names.stack,
                    "BudgetType": "COST",
                    "TimeUnit": "MONTHLY",
                    "BudgetLimit": {"Amount": round(usd, 2), "Unit": "USD"},
                },
                "NotificationsWithSubscribers": [
                    {
                        "Notification": {
                            "NotificationType": kind,
                            "ComparisonOperator": "GREATER_THAN",
                            "Threshold": 100,
                        },
                        "Subscribers": to,
                    }
                    for kind in ("ACTUAL", "FORECASTED")
                ],
            },
        }
    }


def _outputs(wishes: StackOptions) -> dict[str, Any]:
    """Return the outputs of the stack that `boa.toml` needs."""
    values: dict[str, Any] = {
        "WarningsQueueUrl": {"Ref": "Warnings"},
        "SecurityGroupId": {"Fn::GetAtt": ["Nodes", "GroupId"]},
        "ControlSecurityGroupId": {"Fn::GetAtt": ["Control", "GroupId"]},
    }
    if not wishes.is_further:
        values |= {
            "ReportsQueueUrl": {"Ref": "Reports"},
            "BucketName": {"Ref": "Bucket"},
            "NodeProfileName": {"Ref": "NodeProfile"},
            "ControlRoleArn": {"Fn::GetAtt": ["ControlRole", "Arn"]},
            "PolicyArn": {"Ref": "DaemonPolicy"},
            "PoolEndRoleArn": {"Fn::GetAtt": ["PoolEndRole", "Arn"]},
        }
    if wishes.private_zones:
        subnets = [{"Ref": f"Subnet{number}"} for number in range(len(wishes.private_zones))]
        values["SubnetIds"] = {"Fn::Join": [",", subnets]}
    for number, zone in enumerate(wishes.efa_zones):
        values[f"PlacementGroup{number}"] = {"Fn::Join": ["=", [zone, {"Ref": f"PlacementGroup{number}"}]]}
    return {name: {"Value": value} for name, value in values.items()}


def _completed(document: object) -> object:
    """Return a document with `Fn::Sub` around each string that has a pseudo parameter of AWS."""
    if isinstance(document, Mapping):
        return {key: _completed(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_completed(each) for each in document]
    if isinstance(document, str) and "${AWS::" in document:
        return {"Fn::Sub": document}
    return document
