"""Tags of our nodes on instances and disks of others: nothing of theirs is ended, counted or used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from aws_days import TYPE, Day, a_day, with_credentials

from boa_daemon.backends.aws.instances.launch_request import CLUSTER_TAG, INTENT_TAG
from boa_daemon.backends.aws.instances.sweep import Sweeper

COPIES: Mapping[str, tuple[str, dict[str, str], str]] = {
    "launched in the console from the node": ("3f6f1d20-6d2b-4b5c-8f0e-000000000001", {}, "a launch with"),
    "launched by Terraform": ("terraform-20270115080000000000000001", {}, "a launch with"),
    "of an Auto Scaling group made of the node": (
        "fleet-0a1b-0", {"aws:autoscaling:groupName": "web"}, "an Auto Scaling group",
    ),
    "of a launch template made of the node": (
        "", {"aws:ec2launchtemplate:id": "lt-1"}, "a launch template",
    ),
    "restored from a backup": ("", {"aws:backup:source-resource": "i-0"}, "AWS Backup"),
    "restored by a stack": ("", {"aws:cloudformation:stack-name": "restore"}, "a CloudFormation stack"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with_credentials(monkeypatch)


def _copied(day: Day, token: str, tags: Mapping[str, str]) -> str:
    """Launch an instance with the tags of our node; EC2 lists its token, and those of our nodes."""
    (ours,) = [each for each in day.rig.cloud._instances if each["State"]["Name"] == "running"]
    calls = day.rig.cloud.calls
    request = {
        "ImageId": ours["ImageId"],
        "InstanceType": TYPE,
        "MinCount": 1,
        "MaxCount": 1,
        "TagSpecifications": [{"ResourceType": "instance", "Tags": ours["Tags"]}],
    }
    copy = str(calls.call("ec2:RunInstances", **request)["Instances"][0]["InstanceId"])

    def hook(operation: str, arguments: dict[str, Any], plain: Callable[[], Any]) -> Any:
        answer = plain()
        if operation == "ec2:DescribeInstances":
            for row in answer["Reservations"]:
                for each in row["Instances"]:
                    is_copy = each["InstanceId"] == copy
                    each["ClientToken"] = token if is_copy else "boa-abc"
                    each["Tags"] = [
                        *each.get("Tags", []),
                        *({"Key": key, "Value": value} for key, value in tags.items() if is_copy),
                    ]
        return answer

    day.hook = hook
    return copy


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        each if not number else pytest.param(each, marks=pytest.mark.exhaustive)
        for number, each in enumerate(COPIES)
    ],
)
def test_an_instance_of_somebody_else_lives_on(tmp_path: Path, name: str, is_restarted: bool) -> None:
    """For three hours, past the lease that its tags name; people are told whose tags it has."""
    token, tags, says = COPIES[name]
    with a_day(tmp_path) as day:
        copy = _copied(day, token, tags)
        day.ticks(5.0)
        if is_restarted:
            other = day.rig.another(queue_url=day.rig.cloud.settings.queue_url)
            other.calls._call_once = day.rig.cloud.calls._call_once  # type: ignore[method-assign]
            names = {node.id for node in other.nodes()}
            assert copy not in names
            assert names
        assert any(copy in said and says in said for said in day.alerts()), day.alerts()
        assert any(copy in note for note in day.notes())
        day.play.service.cancel(day.jobs[0], user="ann", is_admin=True)
        day.ticks(180.0)
        assert [life.id for life in day.rig.fake.live()] == [copy], "ours has ended, and theirs lives"
        assert copy not in {row["id"] for row in day.play.service.instances()["instances"]}
        found = Sweeper(day.rig.cloud.settings, day.rig.cloud.calls, day.rig.clock).find()
        assert copy not in {each.id for each in found}
        (life,) = [life for life in day.rig.fake.history() if life.id != copy]
        assert life.ended_at is not None
        hours = (life.ended_at - life.launched_at) / 3600.0
        assert day.charged() < 1.1 * hours * 1.1, "the copy's cost is not in the ledger"


def test_a_restored_disk_with_our_tags_is_not_deleted(tmp_path: Path) -> None:
    """AWS Backup restores the tags of a disk; a disk of ours that is attached to nothing is deleted."""
    with a_day(tmp_path) as day:
        ec2 = boto3.client("ec2", region_name="us-east-1")
        ours = {CLUSTER_TAG: day.rig.cloud.settings.cluster, INTENT_TAG: "t1-launch-0"}
        made = []
        for _ in range(2):
            tags = [{"Key": key, "Value": value} for key, value in ours.items()]
            specifications = [{"ResourceType": "volume", "Tags": tags}]
            answer = ec2.create_volume(
                AvailabilityZone="us-east-1a",
                Size=1,
                TagSpecifications=specifications,  # type: ignore[arg-type]
            )
            made.append(str(answer["VolumeId"]))

        def hook(operation: str, arguments: dict[str, Any], plain: Callable[[], Any]) -> Any:
            answer = plain()
            if operation == "ec2:DescribeVolumes":
                for row in answer["Volumes"]:
                    if row["VolumeId"] == made[0]:
                        row["Tags"].append({"Key": "aws:backup:source-resource", "Value": "vol-1"})
            return answer

        day.hook = hook
        day.ticks(20.0)
        day.hook = None
        left = {row["VolumeId"] for row in ec2.describe_volumes()["Volumes"]}
        assert made[0] in left
        assert made[1] not in left
