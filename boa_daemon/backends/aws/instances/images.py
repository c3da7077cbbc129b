"""The cluster's own images: find them by their tag, report age and contents, and delete them.

An image is a snapshot that is billed by the data on its disk. Its tag is `boa:image` with the cluster's
name. It does not have the cluster's own tag, which marks rented resources, so ending a cluster never deletes
its images by accident.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.node_from_instance import tags_of_instance
from boa_daemon.backends.aws.prices.extra_costs import HOURS_OF_A_MONTH
from boa_daemon.backends.aws.prices.side_prices import side_prices
from boa_daemon.backends.settings import BUILT, AwsSettings

IMAGE_TAG, BASE_TAG, NAME_TAG, HOLDS_TAG = "boa:image", "boa:base", "boa:base-name", "boa:holds"
STALE_DAYS = 30
"""Age in days above which an image is reported as stale: drivers and base images change about monthly."""
HINT = "`boa image build` makes one"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnImage:
    """An image of the cluster: `base` is the image it was built from, `holds` lists its contents."""

    id: str
    name: str
    state: str
    built_at: float
    base: str
    base_name: str
    holds: str
    volume_gib: int
    snapshots: tuple[str, ...]
    root_device: str

    def days_old(self, now: float) -> float:
        """Return its age in days."""
        return max(now - self.built_at, 0.0) / 86_400.0


def own_images(calls: AwsCalls, *, name: str = "") -> list[OwnImage]:
    """Return the cluster's images, newest first; with a name, only the image of that name.

    Raises:
        CallFailed: when AWS cannot be asked.
    """
    filters = [{"Name": f"tag:{IMAGE_TAG}", "Values": [calls.settings.cluster]}]
    if name:
        filters = [{"Name": "name", "Values": [name]}]
    rows = calls.pages("ec2:DescribeImages", "Images", Owners=["self"], Filters=filters)
    return sorted((_image(row) for row in rows), key=lambda image: (-image.built_at, image.id))


def most_usd_per_hour(images: Sequence[OwnImage], settings: AwsSettings) -> float:
    """Return the most that images cost per hour: the price of full disks; a snapshot is billed by its data.

    Raises:
        MissingPrice: when the prices of the region are not known.
    """
    gib = sum(image.volume_gib for image in images)
    return gib * side_prices(settings).snapshot_usd_per_gb_month / HOURS_OF_A_MONTH if gib else 0.0


def newest(calls: AwsCalls) -> OwnImage:
    """Return the newest image from which instances can be launched.

    Raises:
        CallFailed: when AWS cannot be asked, or there is none.
    """
    found = next((image for image in own_images(calls) if image.state == "available"), None)
    if found is None:
        said = f'cluster {calls.settings.cluster} has none, and [cloud] image is "{BUILT}": {HINT}'
        raise CallFailed("ec2:DescribeImages", "InvalidAMIID.NotFound", said, http_status=400)
    return found


def base_of(calls: AwsCalls, named: str) -> str:
    """Return the id of the image that `ami-...` or `ssm:PARAMETER` names today.

    Raises:
        CallFailed: when AWS cannot be asked.
    """
    if not named.startswith("ssm:"):
        return named
    return str(calls.call("ssm:GetParameter", Name=named[4:])["Parameter"]["Value"])


def staleness(calls: AwsCalls, image: OwnImage, now: float) -> Iterator[str]:
    """Yield the reasons to rebuild an image.

    Raises:
        CallFailed: when AWS cannot be asked.
    """
    days = image.days_old(now)
    if days > STALE_DAYS:
        yield f"it is {days:.0f} days old"
    if image.base_name.startswith("ssm:") and (today := base_of(calls, image.base_name)) != image.base:
        yield f"its base is {image.base}, and {image.base_name[4:]} is {today} now"
    if image.volume_gib > calls.settings.volume_gib:
        yield (
            f"its disk has {image.volume_gib} GiB and [cloud] volume_gib is {calls.settings.volume_gib}: "
            "nothing can be launched from it"
        )


def remove(calls: AwsCalls, images: Sequence[OwnImage]) -> list[str]:
    """Delete images with their snapshots, and snapshots of ours without an image; return the deleted ids.

    A snapshot of an existing image cannot be deleted, so the next call finishes what a crash interrupted.

    Raises:
        CallFailed: when AWS refuses.
    """
    gone = [image.id for image in images if _gone(calls, "ec2:DeregisterImage", ImageId=image.id)]
    taken = {name for image in own_images(calls) for name in image.snapshots}
    loose = [name for name in _snapshots(calls) if name not in taken]
    return gone + [name for name in loose if _gone(calls, "ec2:DeleteSnapshot", SnapshotId=name)]


def outdated(images: Sequence[OwnImage], *, keep: int, but: Collection[str] = ()) -> list[OwnImage]:
    """Return the images that may be deleted: failed ones, and all but the newest `keep` available ones."""
    usable = [image for image in images if image.state == "available"]
    kept = {image.id for image in usable[:keep]} | {*but}
    return [image for image in images if image.id not in kept and image.state != "pending"]


def _snapshots(calls: AwsCalls) -> list[str]:
    """Return the complete snapshots with our tag; a pending one belongs to an image that is being made."""
    mine = [{"Name": f"tag:{IMAGE_TAG}", "Values": [calls.settings.cluster]}]
    rows = calls.pages("ec2:DescribeSnapshots", "Snapshots", OwnerIds=["self"], Filters=mine)
    return [row["SnapshotId"] for row in rows if row.get("State") != "pending"]


def _gone(calls: AwsCalls, operation: str, **arguments: str) -> bool:
    """Delete a resource; return whether this call deleted it. One that is gone or in use is no failure."""
    try:
        calls.call(operation, **arguments)
    except CallFailed as error:
        if error.code in ("InvalidSnapshot.InUse", "InvalidAMIID.Unavailable") or "NotFound" in error.code:
            return False
        raise
    return True


def _image(row: dict[str, Any]) -> OwnImage:
    tags = tags_of_instance(row)
    disks = [each["Ebs"] for each in row.get("BlockDeviceMappings", ()) if "Ebs" in each]
    made = datetime.fromisoformat(row["CreationDate"].replace("Z", "+00:00"))
    return OwnImage(
        id=row["ImageId"],
        name=row.get("Name", ""),
        state=row.get("State", "pending"),
        built_at=made.replace(tzinfo=made.tzinfo or UTC).timestamp(),
        base=tags.get(BASE_TAG, ""),
        base_name=tags.get(NAME_TAG, ""),
        holds=tags.get(HOLDS_TAG, ""),
        volume_gib=max((int(disk.get("VolumeSize", 0)) for disk in disks), default=0),
        snapshots=tuple(disk["SnapshotId"] for disk in disks if disk.get("SnapshotId")),
        root_device=row.get("RootDeviceName", ""),
    )
