"""How long nodes may live: a lease in a tag, which the daemon renews and the node itself obeys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from boa_daemon.backends.aws.calls import AwsCalls
from boa_daemon.backends.aws.errors import CallFailed
from boa_daemon.backends.aws.instance_lives import ordered_life
from boa_daemon.backends.aws.launch_request import LEASE_TAG
from boa_daemon.backends.aws.node_from_instance import lease_of

RENEWED_AFTER = 0.25
"""A lease is renewed when this part of it is over: what is left outlasts an hour without AWS."""
OVERLONG_SECONDS = 60.0
"""A lease that is longer than a new one by so much was written by a clock that was wrong: it is shortened."""
_TAG_BATCH = 500


def renew_leases(
    calls: AwsCalls,
    instances: Sequence[Mapping[str, Any]],
    *,
    now: float,
    seconds: float,
    say: Callable[[str], None],
) -> None:
    """Renew the leases of which more than a quarter is over, in one call; shorten those too long."""
    due = [
        instance["InstanceId"]
        for instance in instances
        if (instance["State"]["Name"] in ("pending", "running") or ordered_life(instance) > 1)
        and not (
            seconds * (1.0 - RENEWED_AFTER) <= (lease_of(instance) or 0.0) - now <= seconds + OVERLONG_SECONDS
        )
    ]
    lease = {"Key": LEASE_TAG, "Value": str(int(now + seconds))}
    for begin in range(0, len(due), _TAG_BATCH):
        try:
            calls.call("ec2:CreateTags", Resources=due[begin : begin + _TAG_BATCH], Tags=[lease])
        except CallFailed as error:
            say(f"{len(due)} leases were not renewed; the nodes end with them: {error}")
            return
