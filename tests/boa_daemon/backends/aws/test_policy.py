"""`backends/aws/policy.py`: it allows the calls that the code makes, on what is ours, and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.backends.aws import calls
from boa_daemon.backends.aws.calls import NODE_OPERATIONS, OPERATIONS
from boa_daemon.backends.aws.image_policy import image_policy
from boa_daemon.backends.aws.policy import node_policy, parts_of, policy
from boa_daemon.backends.aws.policy_statements import UsedResources, actions_of
from boa_daemon.backends.aws.stack import as_yaml, stack_template
from boa_daemon.backends.aws.stack_settings import StackOptions, stack_settings_of
from boa_daemon.backends.aws.termination_schedule import termination_policy
from boa_daemon.backends.settings import AwsSettings

AWS = Path(calls.__file__).parent
SETTINGS = AwsSettings(
    cluster="lab",
    instance_types=("g5.xlarge",),
    instance_profile="boa-node",
    queue_url="https://sqs.us-east-1.amazonaws.com/123456789012/boa-warnings",
    warm_pool_nodes=2,
    pool_end_role="arn:aws:iam::123456789012:role/boa-lab-pool-end",
)
USES = UsedResources(
    reports_queue_url="https://sqs.us-east-1.amazonaws.com/123456789012/boa-reports",
    uri="s3://bucket/jobs",
    sns_topic="arn:aws:sns:us-east-1:123456789012:alerts",
)
CODE = AWS.parents[1]
TABLES = (
    "calls.py", "image_policy.py", "policy.py", "resource_policies.py", "stack.py", "stack_network.py",
    "policy_statements.py", "rate_limits.py",
)  # fmt: skip
"""These name calls without making them."""
SEPARATE = {"stack", "free", "bake", "unbake", "baked"}
"""Groups that no policy of the daemon holds."""
MUTATING = re.compile(r"^ec2:(?!Describe)")
NAMED = re.compile(
    r'"((?:ce|cloudformation|ec2|events|iam|pricing|s3|servicequotas|scheduler|sns|sqs|ssm|sts):[A-Z]\w+)"'
)
BY_METHOD = {
    "ssm:SendCommand", "ssm:GetCommandInvocation", "s3:GetObject", "s3:ListObjectsV2",
    "s3:DeleteObject",
}  # fmt: skip
"""What engines call by the name of a method, on the clients that the door gives them."""


def statements(effect: str = "Allow") -> list[dict[str, Any]]:
    """Return the statements of an effect."""
    return [each for each in policy(SETTINGS, uses=USES)["Statement"] if each["Effect"] == effect]


def test_calls_and_table_match() -> None:
    """Every operation that the code names is in the table, and the other way round."""
    named: set[str] = set()
    for path in CODE.rglob("*.py"):
        if "testing" not in path.parts and path not in {AWS / name for name in TABLES}:
            named.update(NAMED.findall(path.read_text()))
    called = {name for name in named if name in OPERATIONS} | BY_METHOD

    assert named - set(OPERATIONS) == set()
    assert called == set(OPERATIONS)


def test_nobody_goes_around_the_door() -> None:
    """In the whole program boto3 is imported in one module; the fakes and the tests are no part of it."""
    importing = [
        path.relative_to(CODE).as_posix()
        for path in CODE.rglob("*.py")
        if re.search(r"^\s*(import|from) (boto|aiobotocore)", path.read_text(), re.M)
        and "testing" not in path.parts
    ]

    assert importing == ["backends/aws/calls.py"]


def test_policy_and_calls_match() -> None:
    """What is allowed is what is called, and passing the node's role."""
    allowed = {action for each in statements() for action in each["Action"]}
    called = {action for group in set(OPERATIONS.values()) - SEPARATE for action in actions_of(group)}

    assert allowed == called | {"iam:PassRole"}
    assert not [action for action in allowed if "*" in action]


def test_images_have_a_policy_of_their_own_and_it_allows_what_is_called() -> None:
    """Beside the daemon's own statements: what makes, lists and removes images, on what bears their tag."""
    allows = [each for each in image_policy(SETTINGS, uses=USES)["Statement"] if each["Effect"] == "Allow"]
    more = {action for each in allows for action in each["Action"]} - {
        action for each in statements() for action in each["Action"]
    }

    assert more == {*actions_of("bake"), *actions_of("unbake"), *actions_of("baked")}
    assert not {"sqs:ReceiveMessage", "s3:PutObject"} & {name for each in allows for name in each["Action"]}
    [remove] = [each for each in allows if each["Sid"] == "RemoveImage"]
    assert remove["Condition"] == {"StringEquals": {"aws:ResourceTag/boa:image": SETTINGS.cluster}}


def test_without_a_warm_pool_nothing_may_be_stopped_or_started() -> None:
    """Nor may the tags that say which life an instance is in be written; ends and leases are as they were."""
    plain = policy(SETTINGS.model_copy(update={"warm_pool_nodes": 0}), uses=USES)
    allows = [each for each in plain["Statement"] if each["Effect"] == "Allow"]

    assert not [
        each["Sid"] for each in allows if {"ec2:StopInstances", "ec2:StartInstances"} & {*each["Action"]}
    ]
    [renew] = [each for each in allows if each["Sid"] == "RenewLeases"]
    assert renew["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"] == ["boa:lease", "boa:job", "Name"]


def test_stops_and_starts_are_for_what_bears_our_tag() -> None:
    """And an instance of another cluster is denied, whatever else allows it."""
    [pool] = [each for each in statements() if each["Sid"] == "WarmPool"]
    [never] = statements("Deny")

    assert pool["Condition"] == {"StringEquals": {"aws:ResourceTag/boa:cluster": SETTINGS.cluster}}
    assert {"ec2:StopInstances", "ec2:StartInstances"} <= {*never["Action"]}


def test_moto_reads_the_policy_the_same() -> None:
    """IAM's other imitation, which knows actions alone, allows every call too."""
    from moto.iam.access_control import IAMPolicy, PermissionResult

    allowing = json.dumps({"Version": "2012-10-17", "Statement": statements()})
    for group in set(OPERATIONS.values()) - SEPARATE:
        for action in actions_of(group):
            for each in (its for its in statements() if action in its["Action"]):
                said = IAMPolicy({"policy_document": allowing}).is_action_permitted(
                    action, each["Resource"][0]
                )
                assert said == PermissionResult.PERMITTED, action


def test_what_nodes_run_is_what_they_may() -> None:
    """Every service that the scripts of the engine call is in the nodes' policy, and nothing of EC2 is."""
    from boa_daemon.engines import ssm_scripts

    said = Path(ssm_scripts.__file__).read_text()
    services = set(re.findall(r"\baws (s3|sqs|ec2|ssm|s3api|sts) ", said))
    allowed = {
        action
        for each in node_policy(SETTINGS, USES)["Statement"]
        if each["Sid"] != "SsmAgent"
        for action in each["Action"]
    }

    assert services == {action.partition(":")[0] for action in allowed}
    assert not [each for each in node_policy(SETTINGS, USES)["Statement"] if each["Effect"] != "Allow"]
    assert "ssm:GetParameter" not in json.dumps(node_policy(SETTINGS, USES))


def test_nodes_read_the_secrets_that_the_settings_name_and_no_other() -> None:
    """Without a name there is no statement; each is bound to what is named."""
    secret = "arn:aws:secretsmanager:us-east-1:123456789012:secret:boa/wandb-*"
    uses = replace(USES, secrets=("ssm:/boa/*", f"secretsmanager:{secret}"))
    given = {each["Sid"]: each for each in node_policy(SETTINGS, uses, account="123456789012")["Statement"]}

    assert given["SecretParameters"]["Action"] == ["ssm:GetParameter"]
    assert given["SecretParameters"]["Resource"] == ["arn:aws:ssm:us-east-1:123456789012:parameter/boa/*"]
    assert given["Secrets"]["Action"] == ["secretsmanager:GetSecretValue"]
    assert given["Secrets"]["Resource"] == [secret]
    assert not {"Secrets", "SecretParameters"} & {
        each["Sid"] for each in node_policy(SETTINGS, USES)["Statement"]
    }


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
        keys = ("aws:RequestTag", "aws:ResourceTag", "ssm:resourceTag")
        bound = {condition.get(f"{key}/boa:cluster") for key in keys}
        assert "lab" in bound, each["Sid"]
        assert "*" not in each["Resource"]


def test_the_owner_tag_cannot_be_changed() -> None:
    """Of a node that lives only the lease and two names can; with a pool, what says which life it is in."""
    [renew] = [each for each in statements() if each["Sid"] == "RenewLeases"]

    names = ["boa:lease", "boa:job", "Name", "boa:life", "boa:stopped-at", "boa:intent", "boa:generation"]
    assert renew["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"] == names


def test_each_role_can_be_passed_to_one_service_alone() -> None:
    """Or a node could be given somebody's rights."""
    node, end = [each for each in statements() if each["Action"] == ["iam:PassRole"]]

    assert node["Resource"] == ["arn:aws:iam::*:role/boa-node"]
    assert node["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    assert end["Resource"] == [SETTINGS.pool_end_role]
    assert end["Condition"] == {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}}


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
    """A managed policy takes 6,144 characters, a role 10,240, without white space; with the longest names."""
    longest = AwsSettings(
        cluster="c" * 64, instance_types=tuple(f"g6e.{n}xlarge" for n in range(24)), warm_pool_nodes=1
    )
    site = stack_settings_of(longest, account="1" * 12)
    whole = policy(site.settings, uses=site.uses, account="1" * 12)
    parts = parts_of(whole)
    attached = stack_template(longest)["Resources"]["ControlRole"]["Properties"]["ManagedPolicyArns"]

    assert len(json.dumps(policy(SETTINGS, uses=USES), separators=(",", ":"))) < 6144
    assert all(len(json.dumps(part, separators=(",", ":"))) <= 6144 for part in parts)
    assert [each for part in parts for each in part["Statement"]] == whole["Statement"]
    assert len(attached) == len(parts) == 2
    assert len(json.dumps(whole, separators=(",", ":"))) < 10_240


def test_other_partitions_have_arns_of_their_own() -> None:
    """China and GovCloud."""
    for region, partition in (("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")):
        text = json.dumps(
            policy(
                SETTINGS.model_copy(update={"region": region, "warm_pool_nodes": 0, "pool_end_role": ""}),
                uses=UsedResources(uri="s3://b/j"),
            )
        )
        assert "arn:aws:" not in text
        assert f"arn:{partition}:ec2" in text


WISHES = (
    StackOptions(),
    StackOptions(
        private_zones=("us-east-1a", "us-east-1b"),
        efa_zones=("us-east-1a",),
        expire_days=90,
        email="somebody@example.org",
        usd_per_month=100.0,
    ),
)


@pytest.mark.parametrize("wishes", WISHES)
def test_cloudformation_takes_the_template(wishes: StackOptions) -> None:
    """cfn-lint finds nothing, and there is no alias, which CloudFormation rejects."""
    from cfnlint.api import ManualArgs, lint

    text = as_yaml(stack_template(SETTINGS, wishes))
    # W3010: zones are named because not every zone rents the type.
    found = lint(text, config=ManualArgs(regions=["us-east-1"], ignore_checks=["W3010"]))

    assert [f"{each.rule.id} {each.message}" for each in found] == []
    assert not re.search(r"(?m)(?:: |- )[&*]\w", text)
    assert len(json.dumps(stack_template(SETTINGS, wishes))) < 51_200


@pytest.mark.parametrize("which", ["daemon", "node", "image", "pool-end"])
def test_parliament_finds_nothing(which: str) -> None:
    """Actions, resources and condition keys are those that AWS documents for one another."""
    account = "123456789012"
    document = {
        "daemon": policy(SETTINGS, uses=USES, account=account),
        "node": node_policy(SETTINGS, USES, account=account),
        "image": image_policy(SETTINGS, uses=USES, account=account),
        "pool-end": termination_policy(SETTINGS, account=account),
    }[which]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PARLIAMENT],
        input=json.dumps(document), capture_output=True, text=True, check=True,
    )  # fmt: skip
    # Launches and commands are checked on each thing that they make or use: one statement per kind.
    # SSM's agent asks about documents and associations of AWS's own; AWS's policy leaves them open too.
    meant = (
        "RESOURCE_MISMATCH [{'action': 'ec2:RunInstances'",
        "RESOURCE_MISMATCH [{'action': 'ssm:SendCommand'",
        "RESOURCE_MISMATCH [{'action': 'ec2:CreateImage'",
        "RESOURCE_STAR ['ssm:DescribeDocument'",
    )
    found = [line for line in done.stdout.splitlines() if not line.startswith(meant)]

    assert found == []


PARLIAMENT = """
import sys
from parliament import analyze_policy_string
for each in analyze_policy_string(sys.stdin.read()).findings:
    print(each.issue, each.detail)
"""


def test_the_stack_has_what_a_site_needs() -> None:
    """Roles, bucket, two queues with dead letters that keep for 14 days, rules, a group; TLS for all."""
    resources = stack_template(SETTINGS)["Resources"]
    kinds = {each["Type"] for each in resources.values()}
    queues = [each["Properties"] for each in resources.values() if each["Type"] == "AWS::SQS::Queue"]
    policies = json.dumps([each for each in resources.values() if each["Type"].endswith("Policy")])

    assert {"AWS::IAM::Role", "AWS::IAM::InstanceProfile", "AWS::S3::Bucket", "AWS::Events::Rule"} <= kinds
    assert [each["MessageRetentionPeriod"] for each in queues] == [14 * 86_400] * 4
    assert sum("RedrivePolicy" in each for each in queues) == 2
    assert resources["Bucket"]["DeletionPolicy"] == "Retain"
    assert policies.count("aws:SecureTransport") == 3
    assert "arn:aws:ec2:us-east-1:*" not in json.dumps(resources["DaemonPolicy"])
    assert {"running", "pending"}.isdisjoint(
        resources["EndsRule"]["Properties"]["EventPattern"]["detail"]["state"]
    )


@pytest.mark.parametrize("name", ["daemon-policy.json", "node-policy.json", "daemon-stack.yaml"])
def test_the_shipped_files_are_what_the_code_prints(name: str) -> None:
    """`infra/iam` is made by `boa iam`, with the settings beside it."""
    import yaml

    from boa_daemon.backends.settings import load_aws_settings
    from boa_daemon.cli.aws_options import used_resources

    folder = CODE.parent / "infra" / "iam"
    settings, uses = load_aws_settings(folder / "boa.toml"), used_resources(folder / "boa.toml")
    made = {
        "daemon-policy.json": lambda: policy(settings, uses=uses),
        "node-policy.json": lambda: node_policy(settings, uses),
        "daemon-stack.yaml": lambda: stack_template(settings),
    }[name]()
    shipped = (folder / name).read_text()

    assert (json.loads(shipped) if name.endswith("json") else yaml.safe_load(shipped)) == made


OF_THE_COMMAND_LINE = {
    ("s3", "cp"): {"s3:PutObject", "s3:GetObject", "s3:AbortMultipartUpload"},
    ("s3", "sync"): {"s3:PutObject", "s3:GetObject", "s3:AbortMultipartUpload", "s3:ListObjectsV2"},
    ("s3", "ls"): {"s3:ListObjectsV2"},
    ("s3", "rm"): {"s3:DeleteObject", "s3:ListObjectsV2"},
    ("sqs", "send-message"): {"sqs:SendMessage"},
    ("ssm", "get-parameter"): {"ssm:GetParameter"},
    ("secretsmanager", "get-secret-value"): {"secretsmanager:GetSecretValue"},
}
"""What each command of the AWS command line needs, by its documentation."""


def test_nodes_may_do_what_their_scripts_do_and_nothing_else() -> None:
    """Each `aws` command in what runs on nodes is allowed by the node's role; nothing is allowed unused."""
    written = re.compile(r'(?:aws(?:\("|\s)|\[")(s3|sqs|ssm|secretsmanager)(?:", "|\s)([a-z-]+)')
    commands = {
        found
        for folder in ("job", "engines")
        for path in (CODE / folder).rglob("*.py")
        # Sessions are opened where the person is, with their own rights.
        if path.name != "ssm_session.py"
        for found in written.findall(path.read_text())
    }

    assert commands <= set(OF_THE_COMMAND_LINE)
    assert set().union(*(OF_THE_COMMAND_LINE[each] for each in commands)) == set(NODE_OPERATIONS)
