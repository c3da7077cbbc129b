"""`boa up` and `boa down --all --stack`: a site is created from nothing and removed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from aws_fixtures import credentials
from request_shapes import RequestShapes, request_shapes
from verbs import exit_code

from boa_daemon.backends.aws.rights.policy import policy
from boa_daemon.cli.common.aws_options import used_resources
from boa_daemon.cli.common.toml_keys import with_keys
from boa_daemon.daemon.settings.config import aws_settings
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.errors import InputError
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import mocked

__all__ = ["credentials"]
pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse")
"""moto makes no placement groups, no policies of buckets and no budgets, and says so."""
Boa = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def shapes() -> Iterator[RequestShapes]:
    """A fake account with a quota, and a record of the shape of every request."""
    terms = Terms(vcpu_quotas={"L-DB2E81BA": 64, "L-417A185B": 768})
    with mocked(FakeCloud(time.time, terms)), request_shapes() as shapes:
        yield shapes


@pytest.fixture
def boa(
    shapes: RequestShapes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Boa:
    """Return a function that runs a command in an empty folder and gives exit code, JSON and all output."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, is_json: bool = True) -> tuple[int, Any, str]:
        code = exit_code(monkeypatch, *words, *(["--json"] if is_json else []))
        said = capsys.readouterr()
        document = json.loads(said.out) if is_json and said.out else None
        return code, document, said.out + said.err

    return run


def test_boa_up_without_yes_creates_nothing(boa: Boa, shapes: RequestShapes) -> None:
    """The answer lists the resources and their cost."""
    code, plan, _ = boa("up", "--type", "g5.xlarge", "--cluster", "lab")

    assert (code, plan["is_made"], plan["is_there"]) == (0, False, False)
    assert {"AWS::S3::Bucket", "AWS::SQS::Queue", "AWS::IAM::Role"} <= {row["type"] for row in plan["makes"]}
    assert plan["usd_per_month"] == 0.0
    assert plan["nodes"][0]["usd_per_hour"] == pytest.approx(1.006)
    assert not Path("boa.toml").exists()
    assert not [name for name in shapes.counts if "Create" in name]


def test_a_private_network_costs_its_nat_gateway(boa: Boa) -> None:
    """The gateway and its address are priced for 730 hours a month."""
    _, plan, _ = boa("up", "--type", "p4d.24xlarge", "--private")

    assert plan["usd_per_month"] == pytest.approx((0.045 + 0.005) * 730.0)
    assert "AWS::EC2::PlacementGroup" in {row["type"] for row in plan["makes"]}


def test_a_type_with_several_efa_interfaces_needs_private_subnets(boa: Boa, shapes: RequestShapes) -> None:
    """A P4d with EFA has four interfaces and so gets no public address: it is refused before it costs."""
    code, _, said = boa("up", "--type", "p4d.24xlarge", "--yes")

    assert code == 2
    assert "--private" in said
    assert "public" in said
    assert not [name for name in shapes.counts if "Create" in name]


def test_boa_up_makes_a_site_that_passes_the_doctor(boa: Boa, shapes: RequestShapes) -> None:
    """It keeps the other lines of boa.toml, and a second `boa up` finds the site."""
    Path("boa.toml").write_text('# mine\n[cloud]\ncluster = "lab"\ninstance_types = ["g5.xlarge"]\n')
    code, made, _ = boa("up", "--yes", "--usd-per-hour", "12.5")
    settings = load_settings(Path("boa.toml")).settings
    doctor_code, doctor, _ = boa("doctor")
    again_code, again, _ = boa("up", "--yes")

    assert (code, made["is_made"], made["is_changed"]) == (0, True, True)
    assert Path("boa.toml").read_text().startswith("# mine\n")
    assert (settings.budget.usd_per_hour, settings.budget.usd_per_day_cap) == (12.5, 600.0)
    assert (settings.cloud.provider, settings.engine.name) == ("aws", "ssm")
    assert settings.engine.queue_url != aws_settings(settings.cloud).queue_url
    failed = [check for check in doctor["checks"] if check["status"] == "failed"]
    assert (doctor_code, failed) == (0, [])
    assert {"queue", "reports", "bucket", "network g5.xlarge"} <= {
        check["name"] for check in doctor["checks"]
    }
    assert (again_code, again["is_there"]) == (0, True)
    assert shapes.faults == []


def test_the_stack_holds_the_policy_that_boa_iam_prints(boa: Boa) -> None:
    """The policy in IAM equals the printed one for the settings that `boa up` leaves."""
    boa("up", "--yes", "--type", "g5.xlarge", "--cluster", "lab")
    settings = load_settings(Path("boa.toml")).settings
    cloud = aws_settings(settings.cloud)
    iam = boto3.client("iam")
    [arn] = [each["Arn"] for each in iam.list_policies(Scope="Local")["Policies"] if "control" in each["Arn"]]
    version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
    document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]

    printed = policy(
        cloud.model_copy(update={"security_groups": ()}),
        uses=used_resources(Path("boa.toml")),
        account="123456789012",
    )
    assert document == printed


def test_down_removes_the_stack_and_keeps_the_data(boa: Boa) -> None:
    """With --data it removes the bucket as well."""
    _, made, _ = boa("up", "--yes", "--type", "g5.xlarge")
    bucket = made["outputs"]["BucketName"]
    s3 = boto3.client("s3")
    s3.put_object(Bucket=bucket, Key="jobs/a/g1/checkpoint/1", Body=b"x" * 1000)
    code, first, said = boa("down", "--all", "--stack", "--wait-seconds", "1")
    kept = [each["Name"] for each in s3.list_buckets()["Buckets"]]
    _, second, _ = boa("down", "--all", "--stack", "--data", "--wait-seconds", "1")

    assert code == 0, said
    assert (first["stack"]["removed"], first["stack"]["bucket_removed"]) == (True, False)
    assert (first["stack"]["objects"], first["stack"]["gb"]) == (1, 1e-6)
    assert kept == [bucket]
    assert (second["stack"]["removed"], second["stack"]["bucket_removed"]) == (False, True)
    assert s3.list_buckets()["Buckets"] == []


def test_stack_and_data_without_their_partner_flags_are_refused(boa: Boa) -> None:
    """Without --all, nodes would stay without the role that ends them."""
    assert boa("down", "--stack")[0] == 2
    assert boa("down", "--all", "--data")[0] == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '\n[cloud]\nregion = "x"\n'),
        ('[cloud]\nregion = "y" # here\nzones = []\n', '[cloud]\nregion = "x"\nzones = []\n'),
        ("[cloud] # c\n\n[engine]\n", '[cloud] # c\nregion = "x"\n\n[engine]\n'),
    ],
)
def test_settings_keys_are_set_in_place(before: str, after: str) -> None:
    """Comments and other keys stay."""
    assert with_keys(before, {"cloud": {"region": "x"}}).lstrip("\n") == after.lstrip("\n")


def test_an_inline_table_is_refused_with_the_line_to_write() -> None:
    """The setting has to be changed by hand."""
    with pytest.raises(InputError, match=r'Set \[cloud\] region = "x"'):
        with_keys('cloud = {region = "y"}\n', {"cloud": {"region": "x"}})


SIDES = (
    "gp3_usd_per_gib_month = 0.088\ngp3_usd_per_mb_month = 0.044\nsnapshot_usd_per_gb_month = 0.05\n"
    "address_usd_per_hour = 0.005\nnat_usd_per_hour = 0.048\nnat_usd_per_gb = 0.048\n"
    "s3_usd_per_gb_month = 0.023\ns3_usd_per_1000_writes = 0.005\nsqs_usd_per_million = 0.4\n"
    'as_of = "2026-11-01"\n'
)


def test_boa_up_makes_a_stack_in_each_region_and_the_global_roles_once(boa: Boa) -> None:
    """The further region has queue, rules and groups; the home's policy then names its queue."""
    Path("boa.toml").write_text(
        '[cloud]\nprovider = "aws"\ncluster = "lab"\nregions = ["us-east-1", "eu-west-1"]\n'
        f'instance_types = ["g5.xlarge"]\n[cloud.by_region.eu-west-1.side_prices]\n{SIDES}'
    )
    code, made, said = boa("up", "--yes")

    assert code == 0, said
    [further] = made["further"]
    assert (made["region"], further["region"]) == ("us-east-1", "eu-west-1")
    types = {row["type"] for row in further["makes"]}
    assert not any(name.startswith(("AWS::IAM", "AWS::S3")) for name in types)
    assert {"AWS::SQS::Queue", "AWS::Events::Rule", "AWS::EC2::SecurityGroup"} <= types
    roles = [each["RoleName"] for each in boto3.client("iam").list_roles()["Roles"]]
    assert sorted(name for name in roles if name.startswith("boa-lab")) == [
        "boa-lab-control", "boa-lab-node", "boa-lab-pool-end",
    ]  # fmt: skip
    settings = aws_settings(load_settings(Path("boa.toml")).settings.cloud)
    there = settings.in_region("eu-west-1")
    assert "eu-west-1" in there.queue_url
    assert "us-east-1" in settings.queue_url
    assert there.security_groups
    assert there.security_groups != settings.security_groups
    assert there.instance_profile == settings.instance_profile == "boa-lab-node"
    document = json.dumps(policy(settings, uses=used_resources(Path("boa.toml"))))
    assert "arn:aws:sqs:eu-west-1" in document
    code, again, said = boa("up", "--yes")
    assert (code, again["further"][0]["is_changed"]) == (0, False), said
    code, gone, said = boa("down", "--all", "--stack", "--data")
    assert (code, gone["stack"]["removed"]) == (0, True), said
    for region in ("us-east-1", "eu-west-1"):
        stacks = boto3.client("cloudformation", region_name=region).list_stacks()["StackSummaries"]
        assert {each["StackStatus"] for each in stacks} <= {"DELETE_COMPLETE"}
