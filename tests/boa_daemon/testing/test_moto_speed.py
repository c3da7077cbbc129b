"""`testing/moto_speed.py`: moto answers the same, and does less for it."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from aws_days import with_credentials
from aws_rigs import START
from moto.core import models, responses, serialize
from moto.ec2.models import instance_types
from moto.kms import models as kms

from boa_daemon.testing import ManualClock, fronts, moto_speed
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fronts import mocked
from boa_daemon.testing.moto_speed import speed_up

REPLACED: dict[str, tuple[Any, str]] = {
    "names of attributes": (serialize.XFormedAttributePicker, "get_possible_keys"),
    "methods of classes": (responses, "method_names_from_class"),
    "keys": (kms, "generate_private_key"),
    "offerings": (instance_types.InstanceTypeOfferingBackend, "describe_instance_type_offerings"),
}


def answers() -> list[Any]:
    """Return what a new cloud says of its network, of offerings, and of an instance that it launched."""
    with mocked(FakeCloud(ManualClock(START).now)):
        ec2 = boto3.client("ec2", region_name="us-east-1")
        image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        made = ec2.run_instances(ImageId=image, InstanceType="g5.xlarge", MinCount=1, MaxCount=1)
        (row,) = ec2.describe_instances()["Reservations"]
        offered = [
            ec2.describe_instance_type_offerings(
                LocationType="availability-zone",
                Filters=[{"Name": "instance-type", "Values": names}, *also],
            )["InstanceTypeOfferings"]
            for names in (["g5.xlarge"], ["p4d.24xlarge", "g5.xlarge"], ["no-such"])
            for also in ([], [{"Name": "location", "Values": ["us-east-1a"]}])
        ]
        return [
            made["Instances"][0].keys(),
            {key: type(value) for key, value in row["Instances"][0].items()},
            row["Instances"][0]["State"],
            [each.keys() for each in ec2.describe_subnets()["Subnets"]],
            [sorted((each["InstanceType"], each["Location"]) for each in rows) for rows in offered],
            ec2.describe_volumes()["Volumes"][0].keys(),
        ]


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with_credentials(monkeypatch)


def test_each_function_is_replaced_once() -> None:
    """A second call wraps nothing again."""
    speed_up()
    found: dict[str, Callable[..., Any]] = {name: getattr(*place) for name, place in REPLACED.items()}
    assert all(not hasattr(each.__wrapped__, "__wrapped__") for each in found.values())  # type: ignore[attr-defined]
    assert models.RESPONSES_METHODS == []


def test_moto_answers_as_it_does_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new cloud is as if it were the first, before and after, and without what remembers."""
    quick = answers()
    assert answers() == quick
    assert [len(rows) for rows in quick[4]][-2:] == [0, 0]
    assert min(len(rows) for rows in quick[4][:4]) >= 1
    for owner, name in REPLACED.values():
        monkeypatch.setattr(owner, name, getattr(owner, name).__wrapped__)
    assert answers() == quick


def test_a_version_of_moto_with_other_functions_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is no error."""
    monkeypatch.delattr(kms, "generate_private_key")
    monkeypatch.delattr(models, "RESPONSES_METHODS")
    speed_up()


def test_tests_of_other_projects_keep_moto_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import of the fake cloud changes nothing: their keys differ, and `requests` is redirected."""
    called: list[str] = []
    monkeypatch.setattr(moto_speed, "speed_up", lambda: called.append("speed_up"))
    runpy.run_path(str(fronts.__file__), run_name="imported")
    assert not called
