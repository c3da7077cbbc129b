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
PROBE_SECONDS = 170.0
_TAG_BATCH = 500


class LeaseRenewer:
    """Renews leases, in batches; `fault` says why the last renewal failed, empty if it succeeded."""

    def __init__(self, calls: AwsCalls, *, seconds: float, say: Callable[[str], None]) -> None:
        self._calls, self._seconds, self._say = calls, seconds, say
        self._done_at: float | None = None
        self.fault = ""

    def renew(self, instances: Sequence[Mapping[str, Any]], *, now: float) -> None:
        """Renew leases of which more than a quarter has passed; shorten leases that are too long.

        If none was written for `PROBE_SECONDS`, the oldest is renewed early: a daemon that may not write the
        tag any more is noticed within minutes, not when its nodes power off.
        """
        least = self._seconds * (1.0 - RENEWED_AFTER)
        left = {
            instance["InstanceId"]: (lease_of(instance) or 0.0) - now
            for instance in instances
            if instance["State"]["Name"] in ("pending", "running", "stopping", "stopped")
        }
        due = [name for name, each in left.items() if not least <= each <= self._seconds + OVERLONG_SECONDS]
        if self._done_at is None:
            self._done_at = now
        if not due and left and now - self._done_at > PROBE_SECONDS:
            due = [min(left, key=lambda name: left[name])]
        lease = {"Key": LEASE_TAG, "Value": str(int(now + self._seconds))}
        for begin in range(0, len(due), _TAG_BATCH):
            try:
                self._calls.call("ec2:CreateTags", Resources=due[begin : begin + _TAG_BATCH], Tags=[lease])
            except CallFailed as error:
                said = f"{len(due)} leases were not renewed; their nodes power off when they end: {error}"
                if said != self.fault:
                    self._say(said)
                self.fault = said
                return
        if due:
            self._done_at = now
        if due or not left:
            self.fault = ""
