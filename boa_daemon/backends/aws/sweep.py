"""Looking for what nobody wants: instances, disks, interfaces and spot requests that no record explains.

Whatever carries our cluster tag is ours; nothing else is ever touched. What is younger than the age guard is
left alone: its record may be on its way. A leak is

- an instance without an intent tag, or whose intent the records do not know, where records were given;
- an instance whose lease ended: its daemon is gone, and it should have ended itself;
- a disk or an interface that is attached to nothing, and a spot request that is open.

Spot instances that EC2 launched for somebody and that carry no tag are not ours to end; the receipt counts
none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from boa_daemon.backends.aws.calls import AwsCalls
from boa_daemon.backends.aws.errors import CallFailed
from boa_daemon.backends.aws.launch_request import CLUSTER_TAG, INTENT_TAG
from boa_daemon.backends.aws.node_from_instance import ended_at, lease_of, tags_of_instance
from boa_daemon.backends.aws.release import BATCH
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.tick.ports import Clock

AGE_GUARD_SECONDS, LEASE_GRACE_SECONDS = 30.0, 120.0

ResourceKind: TypeAlias = Literal["instance", "volume", "network-interface", "spot-request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedResource:
    """Something of ours that exists; `leak` says why it should not, empty where it may.

    An instance that `is_ending` was told to, is not billed any more, and is only waited for. One that
    `is_stopped`, as those of the warm pool are, costs its disk.
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
    """Finds what is ours in a region, and ends it."""

    def __init__(self, settings: AwsSettings, calls: AwsCalls, clock: Clock) -> None:
        self._settings, self._calls, self._clock = settings, calls, clock

    def find(
        self, *, region: str = "", known_intents: Callable[[str], bool] | None = None
    ) -> list[OwnedResource]:
        """Return everything of ours in a region, leaks and all; what EC2 shows as terminated is left out.

        `known_intents` says whether the records know an intent; without it all intents count as known.

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
        """End what was found; return the ids that could not be ended, and why."""
        failed: dict[str, str] = {}
        to_end = [each for each in found if not each.is_ending]
        for region in sorted({each.region for each in to_end}):
            for kind, ids in _by_kind(to_end, region):
                failed.update(self._end(kind, ids, region))
        return failed

    def billing_stopped_at(self, ids: Sequence[str], *, region: str) -> float | None:
        """Return when the last of some instances left `running`; None while EC2 does not say."""
        mine = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [self._settings.cluster]}]
        ends = [
            ended_at(instance) for instance in self._listed(region, mine) if instance["InstanceId"] in ids
        ]
        known = [end for end in ends if end is not None]
        return max(known, default=None)

    def _listed(self, region: str, filters: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield instances."""
        for reservation in self._calls.pages(
            "ec2:DescribeInstances", "Reservations", region=region, Filters=list(filters), MaxResults=1000
        ):
            yield from reservation["Instances"]

    def _mine(self) -> list[dict[str, Any]]:
        """Return the filter for what carries our tag."""
        return [{"Name": f"tag:{CLUSTER_TAG}", "Values": [self._settings.cluster]}]

    def _instances(self, region: str, known: Callable[[str], bool] | None) -> Iterator[OwnedResource]:
        """Yield our instances that are not terminated."""
        now = self._clock.now()
        for instance in self._listed(region, self._mine()):
            state = instance["State"]["Name"]
            if state == "terminated":
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
        """Yield our disks or interfaces that are attached to nothing."""
        for row in self._calls.pages(operation, items, region=region, Filters=self._mine()):
            if row.get("Status", row.get("State")) == "available":
                yield OwnedResource(kind=kind, id=row[key], region=region, leak="attached to nothing")

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
        """End things of one kind; return those that failed, and why."""
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
        """Make a call; return why it failed, empty when it did not. What is gone already is no failure."""
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
"""Requests first, or they would launch what is being ended."""


def _by_kind(found: Sequence[OwnedResource], region: str) -> Iterator[tuple[ResourceKind, list[str]]]:
    """Yield the ids of a region by kind, in the order to end them, in batches that one call takes."""
    for kind in _ORDER:
        ids = [each.id for each in found if each.kind == kind and each.region == region]
        for begin in range(0, len(ids), BATCH):
            yield kind, ids[begin : begin + BATCH]


def _leak(instance: Mapping[str, Any], known: Callable[[str], bool] | None, now: float) -> str:
    """Return why an instance should not be there; empty where it may."""
    intent = tags_of_instance(instance).get(INTENT_TAG, "")
    lease = lease_of(instance)
    if not intent:
        return "bears no intent: nobody asked for it"
    if known is not None and not known(intent):
        return f"its intent {intent} is in no record"
    if lease is None or now - lease > LEASE_GRACE_SECONDS:
        return "its lease ended and nobody renewed it: its daemon is gone"
    return ""
