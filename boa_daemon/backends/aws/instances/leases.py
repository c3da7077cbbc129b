"""Leases of nodes: a tag that the daemon renews; a node powers off when its lease ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.launch_request import LEASE_TAG
from boa_daemon.backends.aws.instances.node_from_instance import lease_of

RENEWED_AFTER = 0.25
"""A lease is renewed once this fraction has passed: the rest outlasts an hour without AWS."""
OVERLONG_SECONDS = 60.0
"""A lease this much longer than a new one was written by a wrong clock: it is shortened."""
_TAG_BATCH = 500


def renew_leases(
    calls: AwsCalls,
    instances: Sequence[Mapping[str, Any]],
    *,
    now: float,
    seconds: float,
    say: Callable[[str], None],
) -> None:
    """Renew leases of which more than a quarter has passed, in batches; shorten leases that are too long."""
    due = [
        instance["InstanceId"]
        for instance in instances
        if instance["State"]["Name"] in ("pending", "running", "stopping", "stopped")
        and not (
            seconds * (1.0 - RENEWED_AFTER) <= (lease_of(instance) or 0.0) - now <= seconds + OVERLONG_SECONDS
        )
    ]
    lease = {"Key": LEASE_TAG, "Value": str(int(now + seconds))}
    for begin in range(0, len(due), _TAG_BATCH):
        try:
            calls.call("ec2:CreateTags", Resources=due[begin : begin + _TAG_BATCH], Tags=[lease])
        except CallFailed as error:
            say(f"{len(due)} leases were not renewed; their nodes power off when they end: {error}")
            return
