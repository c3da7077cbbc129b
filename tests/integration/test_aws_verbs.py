"""The commands `boa doctor`, `gc`, `down --all` and `iam` against AWS in process."""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from verbs import exit_code

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.instances import receipt
from boa_daemon.backends.settings import AwsSettings, SidePrices
from boa_daemon.daemon.loop.assembly import open_storage
from boa_daemon.daemon.money.standing_costs import StandingCosts
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.testing import ManualClock
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import mocked
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.ports import Launched

SIDES = SidePrices.model_validate(
    dict.fromkeys((name for name in SidePrices.model_fields if "usd" in name), 0.05) | {"as_of": "2026-11-01"}
)
TWO = '[cloud]\nprovider = "aws"\nregions = ["us-east-1", "eu-west-1"]\ninstance_types = ["g5.xlarge"]\n'
QUOTA = {"L-DB2E81BA": 16}
Boa = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def fake() -> Iterator[FakeCloud]:
    """A cloud on real time, because the commands read the system clock."""
    with mocked(FakeCloud(time.time, Terms(vcpu_quotas=dict(QUOTA), enforces_cluster="boa"))) as cloud:
        yield cloud


@pytest.fixture
def boa(
    fake: FakeCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Boa:
    """Return a function that runs a command beside a boa.toml: exit code, JSON answer, printed text."""
    monkeypatch.chdir(tmp_path)
    # Our own rate limit would have two commands in a row wait for AWS's real quotas (client/test_calls.py).
    monkeypatch.setattr(AwsCalls, "_pace", lambda calls, operation: None)
    monkeypatch.setattr(receipt, "_LOOK_SECONDS", 0.05)
    Path("boa.toml").write_text(
        '[cloud]\nprovider = "aws"\ninstance_types = ["g5.xlarge"]\nzones = ["us-east-1a"]\n'
        '[engine]\nname = "ssm"\n'
    )

    def run(*words: str, is_json: bool = True) -> tuple[int, Any, str]:
        code = exit_code(monkeypatch, *words, *(["--json"] if is_json else []))
        said = capsys.readouterr()
        document = json.loads(said.out) if is_json and said.out else None
        return code, document, said.out + said.err

    return run


def rent(
    count: int = 1, *, at: float | None = None, cluster: str = "boa", region: str = "us-east-1"
) -> tuple[str, ...]:
    """Rent nodes whose lease began at an instant."""
    settings = AwsSettings(
        cluster=cluster,
        region=region,
        instance_types=("g5.xlarge",),
        zones=(f"{region}a",),
        side_prices=SIDES,
    )
    clock = ManualClock(time.time() if at is None else at)
    cloud = AwsCloud(settings, catalog=Catalog.load(), clock=clock, sleep=lambda seconds: None)
    offer = replace(cloud.offers()[0], usd_per_hour=1.2)
    kind = Catalog.load().instance_type("g5.xlarge")
    outcome = cloud.launch(
        LaunchNodes(id=f"t{clock.now()}", instance_type=kind, count=count, offer=offer, reason="test")
    )
    assert isinstance(outcome, Launched), outcome
    return outcome.nodes


def age(fake: FakeCloud, seconds: float) -> None:
    """Move the launch of every instance back in time."""
    for life in fake.history():
        life.launched_at -= seconds
        instance = fake.backend(life.region).get_instance(life.id)
        instance.launch_time -= timedelta(seconds=seconds)


def test_the_doctor_finds_an_account_ready(boa: Boa) -> None:
    """The doctor exits with 0; a launch with our tag is allowed, a launch with a foreign tag is denied."""
    code, answer, _ = boa("doctor")

    by_name = {check["name"]: check for check in answer["checks"]}
    assert (code, answer["is_ready"]) == (0, True)
    assert by_name["launch with our tag"]["status"] == "ok"
    assert by_name["launch with a foreign tag"]["status"] == "ok"
    assert by_name["quota L-DB2E81BA on-demand"]["said"] == "16 vCPUs, room for 4 more g5.xlarge of 4"


def test_the_doctor_starts_nothing(boa: Boa, fake: FakeCloud) -> None:
    """`boa doctor` launches and ends no instance."""
    rent()
    boa("doctor")

    assert len(fake.history()) == 1
    assert len(fake.live()) == 1


@pytest.mark.parametrize(
    "case",
    [
        ("GetCallerIdentity", "ExpiredToken", "credentials", "Renew the credentials"),
        ("DescribeInstanceTypeOfferings", "UnauthorizedOperation", "instance types", "boa iam"),
        ("DescribeImages", "InvalidAMIID.NotFound", "images", "[cloud] image"),
        ("RunInstances", "UnauthorizedOperation", "launch with our tag", "boa iam"),
        ("DescribeSubnets", "InvalidSubnetID.NotFound", "subnet us-east-1a", "[cloud] subnets"),
    ],
)
def test_a_failed_check_names_its_fix(boa: Boa, fake: FakeCloud, case: tuple[str, str, str, str]) -> None:
    """A failed check names its fix; the exit code is 1 for a failure and 0 for a warning."""
    operation, code, name, fix = case
    fake.faults.plan(operation, f"error:{code}", times=99)
    exit_code, answer, _ = boa("doctor")

    bad = {check["name"]: check for check in answer["checks"] if check["status"] in ("failed", "warning")}
    assert fix in bad[name]["fix"]
    assert exit_code == (1 if bad[name]["status"] == "failed" else 0)


def test_the_doctor_reports_a_quota_of_zero(boa: Boa, fake: FakeCloud) -> None:
    """The check of the quota fails and its fix names the quota code."""
    fake.terms.vcpu_quotas["L-DB2E81BA"] = 0
    code, answer, _ = boa("doctor")

    assert code == 1
    [quota] = [check for check in answer["checks"] if check["name"].startswith("quota")]
    assert quota["status"] == "failed"
    assert "L-DB2E81BA" in quota["fix"]


def test_the_doctor_reports_an_instance_type_that_the_region_lacks(boa: Boa) -> None:
    """The check of p3.2xlarge fails: P3 can no longer be launched anywhere."""
    Path("boa.toml").write_text('[cloud]\ninstance_types = ["p3.2xlarge"]\n')
    code, answer, _ = boa("doctor")

    assert code == 1
    [kind] = [check for check in answer["checks"] if check["name"] == "type p3.2xlarge"]
    assert kind["status"] == "failed"


def test_the_doctor_without_json_says_ready_to_rent(boa: Boa) -> None:
    """The printed text says that the account is ready to rent."""
    _, _, said = boa("doctor", is_json=False)

    assert "Ready to rent." in said


def test_gc_check_reports_leaks_and_ends_nothing(boa: Boa, fake: FakeCloud) -> None:
    """`boa gc --check` exits with 6 if there is a leak, and ends nothing."""
    rent(at=time.time() - 7200.0)
    age(fake, 7200.0)
    code, answer, _ = boa("gc", "--check")

    assert code == 6
    assert [leak["kind"] for leak in answer["leaks"]] == ["instance"]
    assert "lease" in answer["leaks"][0]["leak"]
    assert len(fake.live()) == 1


def test_gc_ends_leaks_and_nothing_else(boa: Boa, fake: FakeCloud) -> None:
    """`boa gc` ends an instance with an old lease and an unattached volume of this cluster, nothing else.

    What was just made stays: records may not be written yet, and a disk may be about to be attached.
    """
    fake.terms.enforces_cluster = ""
    [leak] = rent(at=time.time() - 7200.0)
    age(fake, 7200.0)
    [wanted] = rent()
    [young] = rent(at=time.time() - 7200.0)
    [foreign] = rent(at=time.time() - 7000.0, cluster="theirs")
    ec2 = boto3.client("ec2", region_name="us-east-1")
    tags = [{"Key": "boa:cluster", "Value": "boa"}]
    volume = ec2.create_volume(
        AvailabilityZone="us-east-1a", Size=8, TagSpecifications=[{"ResourceType": "volume", "Tags": tags}]
    )["VolumeId"]
    fake.backend("us-east-1").volumes[volume].create_time -= timedelta(seconds=600.0)
    made = {"AvailabilityZone": "us-east-1a", "Size": 8}
    loose = {
        ec2.create_volume(**made)["VolumeId"],
        ec2.create_volume(**made, TagSpecifications=[{"ResourceType": "volume", "Tags": tags}])["VolumeId"],
    }
    code, answer, _ = boa("gc")

    assert code == 0
    assert {each["id"] for each in answer["leaks"]} == {leak, volume}
    assert {life.id for life in fake.live()} == {wanted, young, foreign}
    left = ec2.describe_volumes(Filters=[{"Name": "status", "Values": ["available"]}])["Volumes"]
    assert {each["VolumeId"] for each in left} == loose
    assert answer["regions"][0]["billing_stopped_at"] is not None


def test_gc_and_down_look_in_every_region_of_the_settings(boa: Boa, fake: FakeCloud) -> None:
    """Without --region both ask all regions; with it, the named ones alone."""
    Path("boa.toml").write_text(TWO)
    [leak] = rent(at=time.time() - 7200.0, region="eu-west-1")
    age(fake, 7200.0)
    [home], [far] = rent(), rent(region="eu-west-1")
    assert boa("gc", "--check", "--region", "us-east-1")[0] == 0
    code, answer, _ = boa("gc")
    assert (code, [each["id"] for each in answer["leaks"]]) == (0, [leak])
    assert {life.id for life in fake.live()} == {home, far}
    code, answer, _ = boa("down", "--all")

    assert code == 0
    assert [(each["region"], each["ended"]) for each in answer["regions"]] == [
        ("us-east-1", 1), ("eu-west-1", 1),
    ]  # fmt: skip
    assert fake.live() == []


@pytest.mark.parametrize("words", [("gc",), ("down", "--all", "--stack")])
def test_a_region_that_does_not_answer_stops_no_other_and_is_told(
    boa: Boa, fake: FakeCloud, words: tuple[str, ...]
) -> None:
    """The other region's leak is ended; exit code 4 and a sentence say that the first one is not known."""
    Path("boa.toml").write_text(TWO)
    rent(at=time.time() - 7200.0, region="eu-west-1")
    age(fake, 7200.0)
    fake.faults.plan("DescribeInstances", "error:UnauthorizedOperation")
    code, answer, said = boa(*words)

    assert code == 4
    assert [each["region"] for each in answer["regions"]] == ["eu-west-1"]
    assert "us-east-1 does not answer" in said
    assert answer.get("stack") is None
    assert fake.live() == []


def test_the_doctor_looks_at_every_region_of_the_settings(boa: Boa, fake: FakeCloud) -> None:
    """The checks of a further region begin with its name; --region asks for one alone."""
    Path("boa.toml").write_text(TWO)
    names = [check["name"] for check in boa("doctor")[1]["checks"]]

    assert "type g5.xlarge" in names
    assert "eu-west-1: type g5.xlarge" in names
    assert "eu-west-1: credentials" not in names
    alone = [check["name"] for check in boa("doctor", "--region", "eu-west-1")[1]["checks"]]
    assert "type g5.xlarge" in alone
    assert not any(name.startswith("eu-west-1:") for name in alone)


def test_the_policy_allows_every_region_of_the_settings(boa: Boa) -> None:
    """One statement each: region conditions have both regions, and what names a region is there twice."""
    Path("boa.toml").write_text(TWO + '[engine]\nname = "ssm"\nuri = "s3://b/jobs"\n')
    _, document, _ = boa("iam")
    by_sid = {each["Sid"]: each for each in document["Statement"]}

    assert len(by_sid) == len(document["Statement"])
    for sid in ("Read", "CommandAnswers"):
        found = by_sid[sid]["Condition"]["StringEquals"]["aws:RequestedRegion"]
        assert found == ["us-east-1", "eu-west-1"]
    documents = by_sid["CommandDocument"]["Resource"]
    assert [each.split(":")[3] for each in documents] == ["us-east-1", "eu-west-1"]
    assert any(":ec2:eu-west-1:" in each and "image" in each for each in by_sid["LaunchInputs"]["Resource"])


def test_gc_without_leaks_exits_with_0(boa: Boa) -> None:
    """Both `boa gc --check` and `boa gc` exit with 0."""
    assert boa("gc", "--check")[0] == 0
    assert boa("gc")[0] == 0


def test_down_prints_a_receipt_for_each_region(boa: Boa, fake: FakeCloud) -> None:
    """The receipt says for each region that nothing is left, and when billing stopped."""
    rent(3)
    before = time.time()
    code, answer, _ = boa("down", "--all", "--region", "us-east-1", "--region", "us-west-2")

    first, second = answer["regions"]
    assert code == 0
    assert (first["instances"], first["volumes"], first["network_interfaces"], first["spot_requests"]) == (
        0,
    ) * 4
    assert first["ended"] == 3
    stopped = time.strptime(first["billing_stopped_at"], "%Y-%m-%dT%H:%M:%SZ")
    assert before - 2 <= calendar.timegm(stopped) <= time.time()
    assert (second["region"], second["ended"]) == ("us-west-2", 0)
    assert fake.live() == []


def test_down_reports_images_that_stay_and_the_bill_by_kind(
    boa: Boa, fake: FakeCloud, tmp_path: Path
) -> None:
    """`boa down` keeps images, and reports all kinds of cost, including costs without a node."""
    with Path("boa.toml").open("a") as file:
        file.write(f'[budget]\nstanding_usd_per_hour = 0.045\n[daemon]\nstate_dir = "{tmp_path / "state"}"\n')
    (tmp_path / "state").mkdir()
    with closing(open_storage(sqlite_url(tmp_path / "state" / "boa.sqlite"))) as storage:
        StandingCosts(storage.store).charge((("gateway", 0.045), ("images", 0.02)), now=time.time() - 7200.0)
    [name] = rent()
    tags = [{"Key": "boa:image", "Value": "boa"}]
    boto3.client("ec2", region_name="us-east-1").create_image(
        InstanceId=name,
        Name="boa-boa-1",
        TagSpecifications=[{"ResourceType": kind, "Tags": tags} for kind in ("image", "snapshot")],
    )
    code, answer, _ = boa("down", "--all")
    _, _, said = boa("down", "--all", is_json=False)

    assert code == 0
    assert answer["regions"][0]["of_warm_pool"] == 0
    assert answer["images"]["count"] == 1
    assert answer["images"]["most_usd_per_month"] > 0.0
    assert answer["billed_usd"] == {"compute": 0.0, "gateway": 0.045, "images": 0.02}
    assert "1 image left" in said
    assert "boa image remove --keep 0" in said
    assert "$0.065 (compute $0.00, gateway $0.045, images $0.02)" in said


def test_down_reports_an_instance_that_it_cannot_end(boa: Boa, fake: FakeCloud) -> None:
    """An instance with termination protection gives exit code 4 and its fix."""
    [name] = rent()
    fake.history()[0].is_protected = True
    code, answer, _ = boa("down", "--all", "--wait-seconds", "0.5")

    assert code == 4
    assert answer["regions"][0]["instances"] == 1
    assert "termination protection" in answer["regions"][0]["failed"][name]


def test_down_without_all_ends_nothing_if_no_daemon_runs(boa: Boa, fake: FakeCloud) -> None:
    """`boa down` without `--all` asks the daemon; without a daemon it exits with 5."""
    rent()
    code, _, _ = boa("down")

    assert code == 5
    assert len(fake.live()) == 1


def test_iam_prints_a_policy_and_a_template(boa: Boa) -> None:
    """`boa iam` prints a policy in JSON; `--cloudformation` prints a template."""
    _, document, _ = boa("iam", "--cluster", "lab", "--account", "123456789012")
    _, _, template = boa("iam", "--cloudformation", is_json=False)

    assert document["Version"] == "2012-10-17"
    assert "123456789012" in json.dumps(document)
    assert template.startswith("AWSTemplateFormatVersion")


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('[cloud]\nmarkt = "spot"\n', "Did you mean 'market'"),
        ('[cloud]\nregion = "virginia"\n', "region"),
        ('[cloud]\nprovider = "local"\n', "provider"),
        ("[cloud\n", "not valid TOML"),
    ],
)
@pytest.mark.parametrize("verb", ["doctor", "gc", "down --all"])
def test_bad_settings_give_exit_code_2_before_anything_is_asked_of_aws(
    boa: Boa, monkeypatch: pytest.MonkeyPatch, verb: str, toml: str, said: str
) -> None:
    """The message names the bad setting, and no call is made."""
    calls: list[str] = []
    monkeypatch.setattr(
        "botocore.client.BaseClient._make_api_call", lambda self, operation, values: calls.append(operation)
    )
    Path("boa.toml").write_text(toml)
    code, _, output = boa(*verb.split())

    assert code == 2
    assert said in output
    assert calls == []
