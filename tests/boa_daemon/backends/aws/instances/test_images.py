"""`aws/instances/images.py`: the cluster's own images, their age and cost, and which may be deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from ec2_rows import Answers, failed

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances import images
from boa_daemon.backends.aws.instances.images import OwnImage
from boa_daemon.backends.aws.prices.side_prices import side_prices
from boa_daemon.backends.settings import AwsSettings

DAY = 86_400.0
MADE = 1_800_000_000.0


def a_row(
    name: str, *, state: str = "available", at: str = "2027-01-15T08:00:00.000Z", **more: Any
) -> dict[str, Any]:
    """Return an image as EC2 describes it."""
    return {"ImageId": name, "Name": f"boa {name}", "State": state, "CreationDate": at, "Tags": []} | more


def an_image(name: str = "ami-1", **changes: Any) -> OwnImage:
    """Return an image that was made at MADE from ami-0."""
    plain = OwnImage(
        id=name, name=name, state="available", built_at=MADE, base="ami-0", base_name="", holds="",
        volume_gib=100, snapshots=(), root_device="/dev/sda1",
    )  # fmt: skip
    return replace(plain, **changes)


def calls(**operations: Any) -> Any:
    """Return a stand-in for the calls."""
    return cast(AwsCalls, Answers(AwsSettings(cluster="lab", volume_gib=200), **operations))


def test_an_image_is_read_from_its_row() -> None:
    """Its size is that of its largest disk; a row without disks or tags is an image, too."""
    disks = [
        {"Ebs": {"VolumeSize": 50, "SnapshotId": "snap-1"}},
        {"VirtualName": "ephemeral0"},
        {"Ebs": {"VolumeSize": 80, "SnapshotId": "snap-2"}},
        {"Ebs": {}},
    ]
    tags = [{"Key": images.BASE_TAG, "Value": "ami-0"}, {"Key": images.HOLDS_TAG, "Value": "pip torch"}]
    row = a_row("ami-1", BlockDeviceMappings=disks, Tags=tags, RootDeviceName="/dev/xvda")
    (found,) = images.own_images(calls(DescribeImages=[row]))
    assert (found.volume_gib, found.snapshots, found.root_device) == (80, ("snap-1", "snap-2"), "/dev/xvda")
    assert (found.base, found.base_name, found.holds, found.built_at) == ("ami-0", "", "pip torch", MADE)
    (bare,) = images.own_images(calls(DescribeImages=[a_row("ami-2")]))
    assert (bare.volume_gib, bare.snapshots, bare.name) == (0, (), "boa ami-2")


ROWS = [
    a_row("ami-old"),
    a_row("ami-new", at="2027-01-16T08:00:00+00:00"),
    a_row("ami-made", at="2027-01-17T08:00:00", state="pending"),
    a_row("ami-also", at="2027-01-16T08:00:00.000Z"),
]


def test_images_are_listed_newest_first_by_tag_or_name() -> None:
    """Of our account alone; one without a time zone counts in UTC, and ties go by the id."""
    site = calls(DescribeImages=ROWS)
    assert [each.id for each in images.own_images(site)] == ["ami-made", "ami-also", "ami-new", "ami-old"]
    images.own_images(site, name="x")
    asked = [call for _, call in site.asked]
    assert [call["Filters"] for call in asked] == [
        [{"Name": "tag:boa:image", "Values": ["lab"]}],
        [{"Name": "name", "Values": ["x"]}],
    ]
    assert all(call["Owners"] == ["self"] for call in asked)


def test_the_newest_image_is_one_that_can_be_launched() -> None:
    """Without one the error says how it is made, and is one of a missing image."""
    assert images.newest(calls(DescribeImages=ROWS)).id == "ami-also"
    with pytest.raises(CallFailed, match="cluster lab has none") as error:
        images.newest(calls(DescribeImages=ROWS[2:3]))
    assert "boa image build" in error.value.message
    assert error.value.rule.scope == "image"


def test_a_month_of_images_costs_their_gigabytes() -> None:
    """By the hour of a month of 730 hours; no images cost nothing, also where no price is known."""
    settings = AwsSettings()
    usd = side_prices(settings).snapshot_usd_per_gb_month
    two = [an_image(), an_image("ami-2", volume_gib=46)]
    assert images.most_usd_per_hour(two, settings) * 730.0 == pytest.approx(146 * usd)
    assert images.most_usd_per_hour([], AwsSettings(region="xx-nowhere-1")) == 0.0


def test_a_base_is_an_image_or_what_a_parameter_says_today() -> None:
    """The parameter is asked for each time."""
    site = calls(GetParameter={"Parameter": {"Value": "ami-9"}})
    assert [images.base_of(site, name) for name in ("ami-1", "ssm:/aws/x")] == ["ami-1", "ami-9"]
    assert [call for _, call in site.asked] == [{"Name": "/aws/x"}]


def test_an_image_is_stale_by_its_age_its_base_and_its_disk() -> None:
    """Each reason is a sentence; thirty days, the same base and a disk that fits are none."""
    site = calls(GetParameter={"Parameter": {"Value": "ami-9"}})
    after = MADE + images.STALE_DAYS * DAY

    def reasons(now: float = after, **changes: Any) -> list[str]:
        return [*images.staleness(site, an_image(**changes), now)]

    assert reasons(volume_gib=200) == []
    assert reasons(after + DAY) == ["it is 31 days old"]
    assert reasons(base_name="ssm:/x") == ["its base is ami-0, and /x is ami-9 now"]
    assert reasons(base_name="ssm:/x", base="ami-9") == []
    assert "nothing can be launched from it" in reasons(volume_gib=201)[0]
    assert an_image().days_old(MADE - 5.0) == 0.0


def test_the_newest_usable_images_stay_and_those_that_are_being_made() -> None:
    """Failed ones go; one that somebody uses stays whatever its age."""
    listed = [
        an_image("ami-5", state="pending"),
        an_image("ami-4", state="failed"),
        *(an_image(f"ami-{number}") for number in (3, 2, 1)),
    ]

    def gone(**how: Any) -> list[str]:
        return [image.id for image in images.outdated(listed, **how)]

    assert gone(keep=2) == ["ami-4", "ami-1"]
    assert gone(keep=1, but=["ami-1"]) == ["ami-4", "ami-2"]
    assert gone(keep=0) == ["ami-4", "ami-3", "ami-2", "ami-1"]


def a_site(**errors: Exception) -> Any:
    """Return calls of a site with an image of snap-1, a loose snapshot, and one that is being made."""
    kept = a_row("ami-2", BlockDeviceMappings=[{"Ebs": {"SnapshotId": "snap-1"}}])
    rows = [{"SnapshotId": "snap-1"}, {"SnapshotId": "snap-2"}, {"SnapshotId": "snap-3", "State": "pending"}]
    plain = {"DeregisterImage": {}, "DeleteSnapshot": {}}
    return calls(**({"DescribeImages": [kept], "DescribeSnapshots": rows} | plain | errors))


def test_an_image_is_deleted_with_its_snapshots_and_with_those_that_no_image_has() -> None:
    """A snapshot of another image, or of one that is being made, stays."""
    site = a_site()
    assert images.remove(site, [an_image("ami-1")]) == ["ami-1", "snap-2"]
    deleted = [call for operation, call in site.asked if operation == "ec2:DeleteSnapshot"]
    assert deleted == [{"SnapshotId": "snap-2"}]


@pytest.mark.parametrize(
    "code", ["InvalidSnapshot.NotFound", "InvalidSnapshot.InUse", "InvalidAMIID.Unavailable"]
)
def test_what_is_gone_or_in_use_is_no_failure_and_not_counted(code: str) -> None:
    """Another process may delete the same; every other refusal is told."""
    site = a_site(
        DeleteSnapshot=failed("ec2:DeleteSnapshot", code), DeregisterImage=failed("ec2:DeregisterImage", code)
    )
    assert images.remove(site, [an_image("ami-1")]) == []
    denied = a_site(DeregisterImage=failed("ec2:DeregisterImage", "UnauthorizedOperation"))
    with pytest.raises(CallFailed):
        images.remove(denied, [an_image("ami-1")])
