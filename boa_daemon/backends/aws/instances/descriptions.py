"""EC2's descriptions of instances: all instances with our tag, or some by their ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.instances.launch_request import CLUSTER_TAG
from policies.model import NodeId

_ID_BATCH = 200


def instances_of(calls: AwsCalls, cluster: str) -> list[dict[str, Any]]:
    """Return all instances with our tag; EC2 lists ended ones for about an hour.

    Raises:
        CallFailed: when EC2 cannot be asked: no list is not an empty list.
    """
    mine = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster]}]
    return list(_described(calls, Filters=mine, MaxResults=1000))


def instances_by_id(calls: AwsCalls, names: Sequence[NodeId]) -> list[dict[str, Any]]:
    """Return the descriptions of instances by their ids, whatever their tags; unknown ids are left out.

    Raises:
        CallFailed: when EC2 cannot be asked: then nothing is known of them.
    """
    found: list[dict[str, Any]] = []
    for begin in range(0, len(names), _ID_BATCH):
        batch = list(names[begin : begin + _ID_BATCH])
        found += _described(calls, Filters=[{"Name": "instance-id", "Values": batch}])
    return found


def _described(calls: AwsCalls, **asked: Any) -> Iterator[dict[str, Any]]:
    for reservation in calls.pages("ec2:DescribeInstances", "Reservations", **asked):
        yield from reservation["Instances"]
