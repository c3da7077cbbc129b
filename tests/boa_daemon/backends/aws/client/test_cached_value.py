"""`client/cached_value.py` and its members: facts are asked for anew when a call or a person says so."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from aws_rigs import AwsRig, RigMaker, a_launch
from moto.ec2.models.amis import Ami

from boa_daemon.backends.aws.client.cached_value import CachedValue
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.facts.ports import Launched, Refused


def test_a_value_is_kept_asked_anew_and_aged() -> None:
    """A failure keeps the old value and says why; `forget` asks at the next use."""
    answers: list[Any] = [1, CallFailed("ec2:X", "Unavailable", "no", http_status=503), 2]

    def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, CallFailed):
            raise answer
        return int(answer)

    value: CachedValue[int] = CachedValue(100.0, retry_seconds=10.0)
    assert value.get(ask, now=0.0) == 1
    assert (value.get(ask, now=101.0), value.age_seconds(101.0)) == (1, 101.0)
    assert "Unavailable" in value.failed
    value.forget()
    assert (value.get(ask, now=102.0), value.failed) == (2, "")


def _parameter(rig: AwsRig, image: str) -> None:
    """Point the parameter to a new image; the account has this image alone."""
    ec2 = rig.fake.backend("us-east-1")
    ec2.amis.clear()
    ec2.amis[image] = Ami(ec2, image, name="an image", owner_id="amazon", architecture="x86_64")
    ssm = boto3.client("ssm", region_name="us-east-1")
    ssm.put_parameter(Name="/our/ami", Value=image, Type="String", Overwrite=True)


@pytest.mark.parametrize("code", ["InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"])
def test_an_image_behind_a_parameter_is_asked_anew_when_it_is_gone(make_rig: RigMaker, code: str) -> None:
    """The parameter has a new image and the old one is deregistered: the same launch takes the new one."""
    rig = make_rig(image="ssm:/our/ami")
    _parameter(rig, "ami-11111111")
    assert isinstance(rig.cloud.launch(a_launch(rig.offer())), Launched)
    _parameter(rig, "ami-22222222")
    if code.endswith("Unavailable"):
        rig.fake.faults.plan("RunInstances", f"error:{code}")
    outcome = rig.cloud.launch(a_launch(rig.offer(), name="t2-launch"))

    assert isinstance(outcome, Launched)
    images = [
        each["ImageId"]
        for reservation in boto3.client("ec2", "us-east-1").describe_instances()["Reservations"]
        for each in reservation["Instances"]
    ]
    assert sorted(images) == ["ami-11111111", "ami-22222222"]


def test_an_image_that_stays_gone_is_refused_after_one_more_question(make_rig: RigMaker) -> None:
    """The launch is not repeated for ever, and the advice names the setting."""
    rig = make_rig(image="ssm:/our/ami")
    _parameter(rig, "ami-11111111")
    rig.cloud.launch(a_launch(rig.offer()))
    rig.fake.faults.plan("RunInstances", "error:InvalidAMIID.NotFound", times=9)
    outcome = rig.cloud.launch(a_launch(rig.offer(), name="t2-launch"))

    assert isinstance(outcome, Refused)
    assert "[cloud] image" in outcome.reason
    assert rig.fake.faults.counts["RunInstances"] == 2


def test_a_default_subnet_that_was_replaced_is_asked_anew(make_rig: RigMaker) -> None:
    """The listing of subnets is minutes old; the launch that finds one gone asks again."""
    rig = make_rig(zones=("us-east-1a",))
    offer = rig.offer()
    assert rig.cloud.launcher.open_subnets("us-east-1a") != [""]
    rig.fake.faults.plan("RunInstances", "error:InvalidSubnetID.NotFound", times=1)
    listings = rig.fake.faults.counts["DescribeSubnets"]
    rig.cloud.launch(a_launch(offer))

    assert rig.fake.faults.counts["DescribeSubnets"] > listings


def test_everything_is_asked_anew_when_somebody_says_so(make_rig: RigMaker) -> None:
    """SIGHUP: zones, prices, quotas, images, subnets, credentials; their ages begin anew."""
    rig = make_rig(Terms(vcpu_quotas={"L-DB2E81BA": 8}))
    rig.cloud.refresh()
    rig.cloud.launch(a_launch(rig.offer()))
    before = dict(rig.fake.faults.counts)
    rig.fake.terms.vcpu_quotas["L-DB2E81BA"] = 64
    rig.pass_time(60.0)
    rig.cloud.ask_anew()
    rig.cloud.refresh()
    rig.cloud.launch(a_launch(rig.offer(), name="t2-launch"))

    for operation in ("DescribeInstanceTypeOfferings", "GetProducts", "GetServiceQuota", "DescribeImages"):
        assert rig.fake.faults.counts[operation] > before[operation], operation
    assert rig.cloud.market.quota("L-DB2E81BA") == 64.0
    ages = rig.cloud.ages()
    assert {"zones", "credentials", "subnets", "price g5.xlarge", "quota L-DB2E81BA"} <= set(ages)
    assert ages["zones"] == 0.0


def test_changed_settings_are_used_from_the_next_launch_on(make_rig: RigMaker) -> None:
    """Side prices, images, groups and the like need no restart; the cluster's name does not change."""
    rig = make_rig(region="ap-southeast-6", zones=())
    assert "side prices" in rig.cloud.faults()
    known = make_rig().settings.model_copy(
        update={"key_name": "new", "cluster": "other", "region": "us-east-1"}
    )
    prices = {
        "gp3_usd_per_gib_month": 0.1, "gp3_usd_per_mb_month": 0.04, "snapshot_usd_per_gb_month": 0.05,
        "address_usd_per_hour": 0.005, "nat_usd_per_hour": 0.05, "nat_usd_per_gb": 0.05,
        "s3_usd_per_gb_month": 0.02, "s3_usd_per_1000_writes": 0.005, "sqs_usd_per_million": 0.4,
        "as_of": "2026-11-01",
    }  # fmt: skip
    changed = type(known).model_validate(known.model_dump() | {"side_prices": prices})
    rig.cloud.use(changed)

    assert "side prices" not in rig.cloud.faults()
    assert (rig.cloud.settings.key_name, rig.cloud.settings.region) == ("new", "ap-southeast-6")
    assert rig.cloud.settings.cluster == rig.settings.cluster
