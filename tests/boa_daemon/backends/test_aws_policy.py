"""`backends/aws_policy.py`: it allows the calls that the code makes, on what is ours, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.backends import aws_calls
from boa_daemon.backends.aws_calls import OPERATIONS
from boa_daemon.backends.aws_policy import actions_of, cloud_formation, policy
from boa_daemon.backends.settings import AwsSettings

BACKENDS = Path(aws_calls.__file__).parent
SETTINGS = AwsSettings(
    cluster="lab",
    instance_types=("g5.xlarge",),
    instance_profile="boa-node",
    queue_url="https://sqs.us-east-1.amazonaws.com/123456789012/boa-warnings",
)
MUTATING = re.compile(r"^ec2:(?!Describe)")
NAMED = re.compile(r'"((?:ce|ec2|ssm|pricing|servicequotas|sts|sqs):[A-Z]\w+)"')


def statements(effect: str = "Allow") -> list[dict[str, Any]]:
    """Return the statements of an effect."""
    return [each for each in policy(SETTINGS)["Statement"] if each["Effect"] == effect]


def test_calls_and_table_match() -> None:
    """Every operation that the code names is in the table, and the other way round."""
    named: set[str] = set()
    for path in BACKENDS.glob("aws*.py"):
        if path.name not in ("aws_calls.py", "aws_policy.py"):
            named.update(NAMED.findall(path.read_text()))

    assert named == set(OPERATIONS)


def test_nobody_goes_around_the_door() -> None:
    """boto3 is imported in one module only."""
    importing = [
        path.name
        for path in BACKENDS.rglob("*.py")
        if re.search(r"^\s*(import|from) boto", path.read_text(), re.M)
    ]

    assert importing == ["aws_calls.py"]


def test_policy_and_calls_match() -> None:
    """What is allowed is what is called, and passing the node's role."""
    allowed = {action for each in statements() for action in each["Action"]}
    called = {action for group in set(OPERATIONS.values()) - {"free"} for action in actions_of(group)}

    assert allowed == called | {"iam:PassRole"}
    assert not [action for action in allowed if "*" in action]


def test_every_statement_that_makes_or_ends_is_bound_to_our_tag() -> None:
    """Made with it or made before with it; the inputs of a launch alone make nothing."""
    for each in statements():
        if not any(MUTATING.match(action) for action in each["Action"]):
            continue
        resources = "".join(each["Resource"])
        if each["Sid"] == "LaunchInputs":
            assert ":instance/" not in resources
            assert ":volume/" not in resources
            continue
        condition = each["Condition"]["StringEquals"]
        bound = {condition.get("aws:RequestTag/boa:cluster"), condition.get("aws:ResourceTag/boa:cluster")}
        assert "lab" in bound, each["Sid"]
        assert "*" not in each["Resource"]


def test_the_owner_tag_cannot_be_changed() -> None:
    """Of a node that lives only the lease and two names can."""
    [renew] = [each for each in statements() if each["Sid"] == "RenewLeases"]

    assert renew["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"] == ["boa:lease", "boa:job", "Name"]


def test_one_role_can_be_passed_to_ec2_alone() -> None:
    """Or a node could be given somebody's rights."""
    [passing] = [each for each in statements() if each["Action"] == ["iam:PassRole"]]

    assert passing["Resource"] == ["arn:aws:iam::*:role/boa-node"]
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}


def test_launches_are_held_to_imdsv2_and_our_types() -> None:
    """Whoever has the key can make nothing else with it."""
    [launch] = [each for each in statements() if each["Sid"] == "LaunchInstances"]

    assert launch["Condition"]["StringEquals"]["ec2:MetadataHttpTokens"] == "required"
    assert launch["Condition"]["StringEquals"]["ec2:InstanceType"] == ["g5.xlarge"]


def test_foreign_instances_are_denied_whatever_else_allows_it() -> None:
    """An explicit deny wins."""
    [never] = statements("Deny")

    assert "ec2:TerminateInstances" in never["Action"]
    assert never["Condition"] == {"StringNotEquals": {"aws:ResourceTag/boa:cluster": "lab"}}


def test_the_policy_fits() -> None:
    """A managed policy has at most 6,144 characters, white space not counted."""
    assert len(json.dumps(policy(SETTINGS), separators=(",", ":"))) < 6144


def test_the_template_has_the_policy_the_queue_and_the_rule() -> None:
    """ARNs are completed by CloudFormation; only EventBridge may send, and only over TLS."""
    resources = cloud_formation(SETTINGS)["Resources"]
    kinds = {each["Type"] for each in resources.values()}

    assert kinds == {
        "AWS::IAM::ManagedPolicy",
        "AWS::SQS::Queue",
        "AWS::SQS::QueuePolicy",
        "AWS::Events::Rule",
    }
    text = json.dumps(resources["DaemonPolicy"])
    assert "arn:aws:ec2:us-east-1:*" not in text
    assert text.count("Fn::Sub") > 5


@pytest.mark.parametrize("name", ["daemon-policy.json", "daemon-stack.yaml"])
def test_the_shipped_files_are_what_the_code_prints(name: str) -> None:
    """`infra/iam` is made by `boa iam`, with the settings beside it."""
    import yaml

    from boa_daemon.backends.settings import load_aws_settings

    folder = BACKENDS.parents[1] / "infra" / "iam"
    settings = load_aws_settings(folder / "boa.toml")
    shipped = (folder / name).read_text()
    made = policy(settings) if name.endswith("json") else cloud_formation(settings)

    assert (json.loads(shipped) if name.endswith("json") else yaml.safe_load(shipped)) == made
