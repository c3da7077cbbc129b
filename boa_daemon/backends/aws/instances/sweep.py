"""Find and end leaked resources: instances, disks, interfaces and spot requests that no record explains.

Resources with our cluster tag are ours; nothing else is touched. Instances younger than
`AGE_GUARD_SECONDS` are left alone, because their record may not be written yet. A leak is

- an instance without an intent tag, or with an intent that is not in the records, if records are given;
- an instance whose lease has ended: its daemon is gone, and it should have ended itself;
- an unattached disk of more than `DISK_GUARD_SECONDS`, an unattached interface, or an open spot request.

What others made with copies of our tags is left alone (`copied_tags`). Spot instances without our tag are not
ours to end, and the receipt does not count them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.copied_tags import made_by_others
from boa_daemon.backends.aws.instances.launch_request import CLUSTER_TAG, INTENT_TAG
from boa_daemon.backends.aws.instances.node_from_instance import ended_at, lease_of, tags_of_instance
from boa_daemon.backends.aws.instances.release import BATCH
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.tick.facts.ports import Clock

AGE_GUARD_SECONDS, LEASE_GRACE_SECONDS = 30.0, 120.0
DISK_GUARD_SECONDS = 300.0

ResourceKind: TypeAlias = Literal["instance", "volume", "network-interface", "spot-request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedResource:
    """An existing resource of ours; `leak` says why it should not exist, empty if it may.

    An instance that `is_ending` was ended and is not billed any more; callers only wait for it. One that
    `is_stopped`, as in the warm pool, costs its disk.
    """

    kind: ResourceKind
    id: str
    region: str
    leak: str = ""
    since: float | None = None
    instance_type: str = ""
    is_ending: bool = False
    is_stopped: bool = False


class Sweeper:
    """Finds our resources in a region, and ends them."""

    def __init__(self, settings: AwsSettings, calls: AwsCalls, clock: Clock) -> None:
        self._settings, self._calls, self._clock = settings, calls, clock

    def find(
        self, *, region: str = "", known_intents: Callable[[str], bool] | None = None
    ) -> list[OwnedResource]:
        """Return our live instances, unattached disks and interfaces, and open spot requests in a region.

        `known_intents` says whether the records have an intent; without it all intents count as known.

        Raises:
            CallFailed: when AWS cannot be asked.
        """
        where = region or self._settings.region
        return [
            *self._instances(where, known_intents),
            *self._loose(where, "ec2:DescribeVolumes", "Volumes", "volume", "VolumeId"),
            *self._loose(
                where,
                "ec2:DescribeNetworkInterfaces",
                "NetworkInterfaces",
                "network-interface",
                "NetworkInterfaceId",
            ),
            *self._spot_requests(where),
        ]

    def release(self, found: Sequence[OwnedResource]) -> dict[str, str]:
        """End resources; return the ids that could not be ended, and why."""
        failed: dict[str, str] = {}
        to_end = [each for each in found if not each.is_ending]
        for region in sorted({each.region for each in to_end}):
            for kind, ids in _by_kind(to_end, region):
                failed.update(self._end(kind, ids, region))
        return failed

    def billing_stopped_at(self, ids: Sequence[str], *, region: str) -> float | None:
        """Return when the last of these instances left `running`; None if EC2 does not say."""
        mine = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [self._settings.cluster]}]
        ends = [
            ended_at(instance) for instance in self._listed(region, mine) if instance["InstanceId"] in ids
        ]
        known = [end for end in ends if end is not None]
        return max(known, default=None)

    def _listed(self, region: str, filters: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        for reservation in self._calls.pages(
            "ec2:DescribeInstances", "Reservations", region=region, Filters=list(filters), MaxResults=1000
        ):
            yield from reservation["Instances"]

    def _mine(self) -> list[dict[str, Any]]:
        return [{"Name": f"tag:{CLUSTER_TAG}", "Values": [self._settings.cluster]}]

    def _instances(self, region: str, known: Callable[[str], bool] | None) -> Iterator[OwnedResource]:
        """Yield our instances that are not terminated."""
        now = self._clock.now()
        for instance in self._listed(region, self._mine()):
            state = instance["State"]["Name"]
            if state == "terminated" or made_by_others(instance):
                continue
            launched = instance["LaunchTime"].timestamp()
            is_exempt = state == "shutting-down" or now - launched < AGE_GUARD_SECONDS
            yield OwnedResource(
                kind="instance",
                id=instance["InstanceId"],
                region=region,
                leak="" if is_exempt else _leak(instance, known, now),
                is_ending=state == "shutting-down",
                is_stopped=state in ("stopping", "stopped"),
                since=launched,
                instance_type=instance["InstanceType"],
            )

    def _loose(
        self, region: str, operation: str, items: str, kind: ResourceKind, key: str
    ) -> Iterator[OwnedResource]:
        """Yield our unattached disks or interfaces."""
        now = self._clock.now()
        for row in self._calls.pages(operation, items, region=region, Filters=self._mine()):
            if row.get("Status", row.get("State")) != "available" or made_by_others(_with_tags(row)):
                continue
            made = row.get("CreateTime")
            since = made.timestamp() if isinstance(made, datetime) else None
            # A disk is available for a moment between its creation and its attachment.
            is_young = since is not None and now - since < DISK_GUARD_SECONDS
            leak = "" if is_young else "attached to nothing"
            yield OwnedResource(kind=kind, id=row[key], region=region, leak=leak, since=since)

    def _spot_requests(self, region: str) -> Iterator[OwnedResource]:
        """Yield our spot requests that could still launch something."""
        for row in self._calls.pages(
            "ec2:DescribeSpotInstanceRequests", "SpotInstanceRequests", region=region, Filters=self._mine()
        ):
            is_live = row["State"] == "active" and row.get("Type") == "persistent"
            if row["State"] == "open" or is_live:
                yield OwnedResource(
                    kind="spot-request",
                    id=row["SpotInstanceRequestId"],
                    region=region,
                    leak="could still launch something",
                )

    def _end(self, kind: ResourceKind, ids: Sequence[str], region: str) -> dict[str, str]:
        """End resources of one kind; return the ids that failed, and why."""
        if kind in ("volume", "network-interface"):
            operation, key = _ONE_BY_ONE[kind]
            return {name: said for name in ids if (said := self._try(operation, region, **{key: name}))}
        operation, key = _TOGETHER[kind]
        said = self._try(operation, region, **{key: list(ids)})
        if not said:
            return {}
        if len(ids) == 1:
            return {ids[0]: said}
        return {name: why for name in ids if (why := self._try(operation, region, **{key: [name]}))}

    def _try(self, operation: str, region: str, **arguments: Any) -> str:
        """Make a call; return why it failed, empty if it succeeded or the resource is gone already."""
        try:
            self._calls.call(operation, region=region, **arguments)
        except CallFailed as error:
            return "" if error.code.endswith(".NotFound") else str(error)
        return ""


_TOGETHER = {
    "instance": ("ec2:TerminateInstances", "InstanceIds"),
    "spot-request": ("ec2:CancelSpotInstanceRequests", "SpotInstanceRequestIds"),
}
_ONE_BY_ONE = {
    "volume": ("ec2:DeleteVolume", "VolumeId"),
    "network-interface": ("ec2:DeleteNetworkInterface", "NetworkInterfaceId"),
}
_ORDER: Sequence[ResourceKind] = ("spot-request", "instance", "network-interface", "volume")
"""Spot requests are ended first, or they would launch instances again."""


def _by_kind(found: Sequence[OwnedResource], region: str) -> Iterator[tuple[ResourceKind, list[str]]]:
    """Yield the ids of a region by kind, in the order of ending, in batches for one call."""
    for kind in _ORDER:
        ids = [each.id for each in found if each.kind == kind and each.region == region]
        for begin in range(0, len(ids), BATCH):
            yield kind, ids[begin : begin + BATCH]


def _with_tags(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a disk or an interface with its tags under the name that instances have them by."""
    return {"Tags": row.get("Tags") or row.get("TagSet") or ()}


def _leak(instance: Mapping[str, Any], known: Callable[[str], bool] | None, now: float) -> str:
    """Return why an instance is a leak; empty if it is none."""
    intent = tags_of_instance(instance).get(INTENT_TAG, "")
    lease = lease_of(instance)
    if not intent:
        return "has no intent tag: no daemon asked for it"
    if known is not None and not known(intent):
        return f"its intent {intent} is in no record"
    if lease is None or now - lease > LEASE_GRACE_SECONDS:
        return "its lease ended without a renewal: its daemon is gone"
    return ""
