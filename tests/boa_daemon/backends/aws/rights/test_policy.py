"""`aws/rights/policy.py`: the printed policies allow the calls that the code makes, and no others."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.backends.aws.client import calls
from boa_daemon.backends.aws.client.calls import NODE_OPERATIONS, OPERATIONS
from boa_daemon.backends.aws.image_builder.policy import image_policy
from boa_daemon.backends.aws.instances.termination_schedule import termination_policy
from boa_daemon.backends.aws.rights.policy import node_policy, parts_of, policy
from boa_daemon.backends.aws.rights.policy_statements import UsedResources, actions_of
from boa_daemon.backends.aws.stack.settings import StackOptions, stack_settings_of
from boa_daemon.backends.aws.stack.template import as_yaml, stack_template
from boa_daemon.backends.settings import AwsSettings

AWS = Path(calls.__file__).parents[1]
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
    "client/calls.py", "client/rate_limits.py", "image_builder/policy.py", "rights/policy.py",
    "rights/policy_statements.py", "rights/resource_policies.py", "stack/network.py", "stack/template.py",
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
    """Return the statements with an effect."""
    return [each for each in policy(SETTINGS, uses=USES)["Statement"] if each["Effect"] == effect]


def test_the_table_holds_exactly_the_operations_in_the_code() -> None:
    """Every operation that the code names is in the table, and the code uses every operation in the table."""
    named: set[str] = set()
    for path in CODE.rglob("*.py"):
        if "testing" not in path.parts and path not in {AWS / name for name in TABLES}:
            named.update(NAMED.findall(path.read_text()))
    called = {name for name in named if name in OPERATIONS} | BY_METHOD

    assert named - set(OPERATIONS) == set()
    assert called == set(OPERATIONS)


def test_only_calls_py_imports_boto3() -> None:
    """The rule covers the whole package except `testing`."""
    importing = [
        path.relative_to(CODE).as_posix()
        for path in CODE.rglob("*.py")
        if re.search(r"^\s*(import|from) (boto|aiobotocore)", path.read_text(), re.M)
        and "testing" not in path.parts
    ]

    assert importing == ["backends/aws/client/calls.py"]


def test_the_daemon_policy_allows_exactly_the_called_operations() -> None:
    """It also allows to pass roles, and has no wildcard action."""
    allowed = {action for each in statements() for action in each["Action"]}
    called = {action for group in set(OPERATIONS.values()) - SEPARATE for action in actions_of(group)}

    assert allowed == called | {"iam:PassRole"}
    assert not [action for action in allowed if "*" in action]


def test_the_image_policy_adds_exactly_the_image_operations() -> None:
    """It removes only images with the cluster's tag."""
    allows = [each for each in image_policy(SETTINGS, uses=USES)["Statement"] if each["Effect"] == "Allow"]
    more = {action for each in allows for action in each["Action"]} - {
        action for each in statements() for action in each["Action"]
    }

    assert more == {*actions_of("bake"), *actions_of("unbake"), *actions_of("baked")}
    assert not {"sqs:ReceiveMessage", "s3:PutObject"} & {name for each in allows for name in each["Action"]}
    [remove] = [each for each in allows if each["Sid"] == "RemoveImage"]
    assert remove["Condition"] == {"StringEquals": {"aws:ResourceTag/boa:image": SETTINGS.cluster}}


def test_without_a_warm_pool_the_policy_allows_no_stops_or_starts() -> None:
    """Only the lease and the two name tags of an instance may be changed then."""
    plain = policy(SETTINGS.model_copy(update={"warm_pool_nodes": 0}), uses=USES)
    allows = [each for each in plain["Statement"] if each["Effect"] == "Allow"]

    assert not [
        each["Sid"] for each in allows if {"ec2:StopInstances", "ec2:StartInstances"} & {*each["Action"]}
    ]
    [renew] = [each for each in allows if each["Sid"] == "RenewLeases"]
    assert renew["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"] == ["boa:lease", "boa:job", "Name"]


def test_stops_and_starts_are_limited_to_the_tag_of_the_cluster() -> None:
    """Instances of another cluster are denied explicitly."""
    [pool] = [each for each in statements() if each["Sid"] == "WarmPool"]
    [never] = statements("Deny")

    assert pool["Condition"] == {"StringEquals": {"aws:ResourceTag/boa:cluster": SETTINGS.cluster}}
    assert {"ec2:StopInstances", "ec2:StartInstances"} <= {*never["Action"]}


def test_moto_permits_every_action_of_the_policy() -> None:
    """moto is a second implementation of IAM; it looks at actions alone."""
    from moto.iam.access_control import IAMPolicy, PermissionResult

    allowing = json.dumps({"Version": "2012-10-17", "Statement": statements()})
    for group in set(OPERATIONS.values()) - SEPARATE:
        for action in actions_of(group):
            for each in (its for its in statements() if action in its["Action"]):
                said = IAMPolicy({"policy_document": allowing}).is_action_permitted(
                    action, each["Resource"][0]
                )
                assert said == PermissionResult.PERMITTED, action


def test_the_node_policy_covers_the_services_that_node_scripts_use() -> None:
    """It has no deny statement and no right to read parameters."""
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


def test_nodes_may_read_only_the_secrets_in_the_settings() -> None:
    """Without secrets in the settings the policy has no statement for them."""
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


def test_every_mutating_statement_is_bound_to_the_tag_of_the_cluster() -> None:
    """The exception is the inputs of a launch, which include no instance and no volume."""
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


def test_the_cluster_tag_cannot_be_changed() -> None:
    """The policy lists the tags that may be written on a running instance."""
    [renew] = [each for each in statements() if each["Sid"] == "RenewLeases"]

    names = ["boa:lease", "boa:job", "Name", "boa:life", "boa:stopped-at", "boa:intent", "boa:generation"]
    assert renew["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"] == names


def test_each_role_can_be_passed_to_one_service_only() -> None:
    """The node role goes to EC2, and the termination role to EventBridge Scheduler."""
    node, end = [each for each in statements() if each["Action"] == ["iam:PassRole"]]

    assert node["Resource"] == ["arn:aws:iam::*:role/boa-node"]
    assert node["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    assert end["Resource"] == [SETTINGS.pool_end_role]
    assert end["Condition"] == {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}}


def test_launches_require_imdsv2_and_a_type_from_the_settings() -> None:
    """A stolen key can launch no other kind of instance."""
    [launch] = [each for each in statements() if each["Sid"] == "LaunchInstances"]

    assert launch["Condition"]["StringEquals"]["ec2:MetadataHttpTokens"] == "required"
    assert launch["Condition"]["StringEquals"]["ec2:InstanceType"] == ["g5.xlarge"]


def test_terminating_instances_of_another_cluster_is_denied_explicitly() -> None:
    """An explicit deny overrides every allow."""
    [never] = statements("Deny")

    assert "ec2:TerminateInstances" in never["Action"]
    assert never["Condition"] == {"StringNotEquals": {"aws:ResourceTag/boa:cluster": "lab"}}


def test_the_policies_fit_into_the_size_limits_of_iam() -> None:
    """A managed policy takes 6,144 characters and a role 10,240, without white space. Long names fit too."""
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


def test_china_and_govcloud_get_arns_of_their_own_partition() -> None:
    """The ARNs begin with `arn:aws-cn` and `arn:aws-us-gov`."""
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
def test_the_stack_template_passes_cfn_lint(wishes: StackOptions) -> None:
    """It has no YAML alias, which CloudFormation rejects, and is short enough."""
    from cfnlint.api import ManualArgs, lint

    text = as_yaml(stack_template(SETTINGS, wishes))
    # W3010: the template names zones because not every zone rents the type.
    found = lint(text, config=ManualArgs(regions=["us-east-1"], ignore_checks=["W3010"]))

    assert [f"{each.rule.id} {each.message}" for each in found] == []
    assert not re.search(r"(?m)(?:: |- )[&*]\w", text)
    assert len(json.dumps(stack_template(SETTINGS, wishes))) < 51_200


@pytest.mark.parametrize("which", ["daemon", "node", "image", "pool-end"])
def test_parliament_accepts_the_policies(which: str) -> None:
    """Parliament checks that actions, resources and condition keys belong together."""
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
    # Launches and commands have one statement per kind of resource that they make or use.
    # SSM's agent asks about AWS's own documents; AWS's managed policy leaves them open as well.
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


def test_the_stack_has_roles_a_bucket_queues_and_rules() -> None:
    """Queues keep messages for 14 days, two have dead-letter queues, and policies require TLS."""
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
def test_the_files_in_infra_iam_are_what_boa_iam_prints(name: str) -> None:
    """They are made with the settings file beside them."""
    import yaml

    from boa_daemon.cli.common.aws_options import used_resources
    from boa_daemon.daemon.settings.setting_layers import load_aws_settings

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


def test_the_node_role_allows_exactly_the_aws_commands_of_node_scripts() -> None:
    """Each `aws` command in `job/` and `engines/` is allowed, and no right is unused."""
    written = re.compile(r'(?:aws(?:\("|\s)|\[")(s3|sqs|ssm|secretsmanager)(?:", "|\s)([a-z-]+)')
    commands = {
        found
        for folder in ("job", "engines")
        for path in (CODE / folder).rglob("*.py")
        # A session is opened on the user's machine, with the user's own rights.
        if path.name != "ssm_session.py"
        for found in written.findall(path.read_text())
    }

    assert commands <= set(OF_THE_COMMAND_LINE)
    assert set().union(*(OF_THE_COMMAND_LINE[each] for each in commands)) == set(NODE_OPERATIONS)
