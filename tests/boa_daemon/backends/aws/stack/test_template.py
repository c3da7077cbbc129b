"""`aws/stack/template.py`: what a site's stack holds, what of it stays, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from boa_daemon.backends.aws.prices.side_prices import side_prices
from boa_daemon.backends.aws.stack.settings import StackOptions
from boa_daemon.backends.aws.stack.template import as_yaml, monthly_costs, stack_template
from boa_daemon.backends.settings import AwsSettings

LAB = AwsSettings(cluster="lab")
FULL = StackOptions(
    private_zones=("us-east-1a", "us-east-1b"),
    efa_zones=("us-east-1b",),
    expire_days=30,
    email="a@example.org",
    usd_per_month=500.0,
)
OPTIONS = [StackOptions(), FULL, StackOptions(is_further=True), replace(FULL, is_further=True)]


def made(options: StackOptions | None = None) -> dict[str, Any]:
    """Return the properties of the resources by name."""
    return {
        name: each.get("Properties", {}) for name, each in stack_template(LAB, options)["Resources"].items()
    }


def references(part: object) -> Iterator[str]:
    """Yield the names of the resources and parameters that a part of a template refers to."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "Ref":
                yield value
            elif key == "Fn::GetAtt":
                yield value[0]
            else:
                yield from references(value)
    elif isinstance(part, list):
        for each in part:
            yield from references(each)


@pytest.mark.parametrize("options", OPTIONS)
def test_every_reference_has_its_resource(options: StackOptions) -> None:
    """Also those of outputs; what is a pseudo parameter of AWS is substituted."""
    template = stack_template(LAB, options)
    names = {*template["Resources"], *template.get("Parameters", {})}
    assert set(references(template)) <= names
    assert ("VpcId" in template.get("Parameters", {})) == (not options.private_zones)
    text = as_yaml(template)
    assert yaml.safe_load(text) == template
    assert "&id" not in text
    assert text.count("${AWS::") == text.count("Fn::Sub") + sum(
        line.count("${AWS::") - 1 for line in text.splitlines() if "${AWS::" in line
    )


def test_checkpoints_outlive_the_stack_in_a_closed_bucket() -> None:
    """A person who deletes the stack keeps the work; nobody can open it to the public."""
    bucket = stack_template(LAB)["Resources"]["Bucket"]
    assert (bucket["DeletionPolicy"], bucket["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert set(bucket["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["Properties"]["BucketEncryption"]
    policy = made()["BucketPolicy"]
    assert policy["Bucket"] == {"Ref": "Bucket"}
    arn = {"Fn::GetAtt": ["Bucket", "Arn"]}
    (tls,) = policy["PolicyDocument"]["Statement"]
    assert tls["Resource"] == [arn, {"Fn::Join": ["", [arn, "/*"]]}]


@pytest.mark.parametrize("days", [None, 1, 30])
def test_objects_expire_only_where_days_are_named(days: int | None) -> None:
    """Unfinished uploads, which nobody sees and everybody pays, end anyway."""
    rules = made(StackOptions(expire_days=days))["Bucket"]["LifecycleConfiguration"]["Rules"]
    assert rules[0]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 3}
    assert [rule.get("ExpirationInDays") for rule in rules] == [None] + ([days] if days else [])


def test_messages_wait_two_weeks_and_bad_ones_leave_their_queue() -> None:
    """A daemon that is down for days loses no report."""
    found = made()
    for name in ("Warnings", "Reports"):
        assert (
            found[name]["MessageRetentionPeriod"]
            == found[f"{name}Dead"]["MessageRetentionPeriod"]
            == 1_209_600
        )
        assert found[name]["SqsManagedSseEnabled"] is found[f"{name}Dead"]["SqsManagedSseEnabled"] is True
        dead = {"Fn::GetAtt": [f"{name}Dead", "Arn"]}
        assert found[name]["RedrivePolicy"] == {"deadLetterTargetArn": dead, "maxReceiveCount": 5}
    policies = {
        name: [each["Sid"] for each in found[f"{name}Policy"]["PolicyDocument"]["Statement"]]
        for name in ("Warnings", "Reports")
    }
    assert policies == {"Warnings": ["Events", "TlsOnly"], "Reports": ["TlsOnly"]}
    for rule in ("WarningsRule", "EndsRule"):
        assert found[rule]["Targets"] == [{"Id": "queue", "Arn": {"Fn::GetAtt": ["Warnings", "Arn"]}}]


def test_roles_are_assumed_by_whom_they_are_for() -> None:
    """Nodes by EC2 alone, the daemon's also by people of the account, the pool's by schedules of ours."""
    found = made()

    def who(role: str) -> list[Any]:
        return [each["Principal"] for each in found[role]["AssumeRolePolicyDocument"]["Statement"]]

    ec2 = {"Service": "ec2.amazonaws.com"}
    assert who("NodeRole") == [ec2]
    root = {"AWS": {"Fn::Sub": "arn:aws:iam::${AWS::AccountId}:root"}}
    assert who("ControlRole") == [ec2, root]
    assert who("PoolEndRole") == [{"Service": "scheduler.amazonaws.com"}]
    (scheduler,) = found["PoolEndRole"]["AssumeRolePolicyDocument"]["Statement"]
    account = {"Fn::Sub": "${AWS::AccountId}"}
    assert scheduler["Condition"] == {"StringEquals": {"aws:SourceAccount": account}}
    managed = {each["Ref"] for each in found["ControlRole"]["ManagedPolicyArns"]}
    assert managed == {name for name in found if name.startswith("DaemonPolicy")}
    assert found["NodeRole"]["ManagedPolicyArns"] == [{"Ref": "NodePolicy"}]


def test_a_further_region_has_its_queue_of_warnings_and_no_roles() -> None:
    """IAM is global, and the bucket and the reports are at home."""
    home, further = made(), made(StackOptions(is_further=True))
    assert set(home) - set(further) >= {
        "ControlRole",
        "NodeRole",
        "PoolEndRole",
        "Bucket",
        "Reports",
        "ReportsDead",
    }
    assert {"Warnings", "WarningsDead", "WarningsPolicy", "EndsRule", "Nodes"} <= set(further) <= set(home)
    outputs = stack_template(LAB, StackOptions(is_further=True))["Outputs"]
    assert set(outputs) == {"WarningsQueueUrl", "SecurityGroupId", "ControlSecurityGroupId"}


def test_the_outputs_name_what_boa_toml_needs() -> None:
    """Subnets in the order of their zones, placement groups with theirs."""
    outputs = stack_template(LAB, FULL)["Outputs"]
    assert outputs["SubnetIds"]["Value"] == {"Fn::Join": [",", [{"Ref": "Subnet0"}, {"Ref": "Subnet1"}]]}
    group = {"Fn::Join": ["=", ["us-east-1b", {"Ref": "PlacementGroup0"}]]}
    assert outputs["PlacementGroup0"]["Value"] == group
    assert {"BucketName", "NodeProfileName", "ControlRoleArn", "PoolEndRoleArn"} <= set(outputs)
    assert "SubnetIds" not in stack_template(LAB)["Outputs"]


def test_an_alarm_needs_an_address_and_an_amount() -> None:
    """It rings when the bill reaches it, and when AWS expects that it will."""
    alarm = made(FULL)["BillAlarm"]
    assert alarm["Budget"]["BudgetLimit"] == {"Amount": 500.0, "Unit": "USD"}
    told = [each["Notification"] for each in alarm["NotificationsWithSubscribers"]]
    assert {(each["NotificationType"], each["Threshold"]) for each in told} == {
        ("ACTUAL", 100),
        ("FORECASTED", 100),
    }
    cents = made(replace(FULL, usd_per_month=99.994))["BillAlarm"]["Budget"]["BudgetLimit"]
    assert cents["Amount"] == 99.99
    for less in ({"email": ""}, {"usd_per_month": None}):
        assert "BillAlarm" not in made(replace(FULL, **less))


def test_only_the_gateway_costs_money_by_itself() -> None:
    """With its address, for a month of 730 hours; the rest is free or by use."""
    prices = side_prices(LAB)
    usd = {what: usd for what, usd, _ in monthly_costs(FULL, prices)}
    assert usd["NAT gateway with its address"] == pytest.approx(
        730.0 * (prices.nat_usd_per_hour + prices.address_usd_per_hour)
    )
    assert sum(usd.values()) == usd["NAT gateway with its address"] > 0.0
    plain = [what for what, _, _ in monthly_costs(StackOptions(), prices)]
    assert plain == ["roles, security group, rules, placement groups", "two queues", "bucket"]
    assert "bucket" not in [what for what, _, _ in monthly_costs(StackOptions(is_further=True), prices)]
