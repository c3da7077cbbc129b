"""The warm pool on EC2: stopping instances and starting them again.

Only instances that the listing showed as ours are stopped or started. The tag of the next life is written
before the call: after a crash the next listing shows what was wanted. An instance that cannot be stopped
is ended, and for an instance that cannot be started a new one is rented.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.instance_lives import LIFE_TAG, STOPPED_TAG
from boa_daemon.backends.aws.instances.launch_request import (
    GENERATION_TAG,
    INTENT_TAG,
    JOB_TAG,
    LEASE_TAG,
    LONGEST_TAG,
)
from boa_daemon.backends.aws.instances.termination_schedule import schedule_termination
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.node_lives import instance_of, life_of, next_life
from boa_daemon.tick.facts.ports import Accepted, Clock, Launched, Refused, Unknown
from policies.model import NodeId

Said: TypeAlias = Accepted | Refused | Unknown
AGAIN_SECONDS, GIVE_UP_SECONDS = 60.0, 300.0
"""Seconds between orders to stop, and seconds after the first order when a running instance is ended."""


class AwsWarmPool:
    """Stops and starts instances; a started node gets a lease of `lease_seconds`."""

    def __init__(
        self, calls: AwsCalls, clock: Clock, *, lease_seconds: float, say: Callable[[str], None]
    ) -> None:
        self._calls, self._clock, self._say, self._lease_seconds = calls, clock, say, lease_seconds
        self._asked: dict[NodeId, tuple[float, float]] = {}
        self.fault = ""
        """Why the last schedule that ends a stopped instance could not be made; empty if it could."""
        self._started: dict[str, tuple[NodeId, ...]] = {}

    @property
    def asked(self) -> Collection[NodeId]:
        """The nodes that were told to stop and that the listing does not show as stopped yet."""
        return self._asked

    def stop(self, nodes: Sequence[NodeId]) -> dict[NodeId, Said]:
        """Stop instances and return the outcome of each; a refusal leaves an instance's cost as it was."""
        return {node: self._stop(node) for node in nodes}

    def _stop(self, node: NodeId) -> Said:
        """Stop one instance: write the tag, schedule its end in case the daemon never returns, then call."""
        instance, now = instance_of(node), self._clock.now()
        try:
            self._tag(instance, {LIFE_TAG: str(life_of(node) + 1), STOPPED_TAG: str(int(now))})
            first, _ = self._asked.get(node, (now, now))
            self._asked[node] = (first, now)
            if self._calls.settings.pool_end_role:
                self._schedule(instance, life_of(node) + 1, now)
            self._calls.call("ec2:StopInstances", InstanceIds=[instance])
        except CallFailed as error:
            if error.meaning in ("unknown", "throttled"):
                return Unknown(reason=str(error))
            return Refused(reason=str(error), kind="bad-request")
        return Accepted()

    def _schedule(self, instance: str, life: int, now: float) -> None:
        """Schedule the end of a stopped instance whose daemon never returns.

        Raises:
            CallFailed: when it cannot be scheduled; the instance is then ended instead of stopped.
        """
        try:
            schedule_termination(self._calls, instance, life, now=now)
        except CallFailed as error:
            self.fault = f"the end of stopped instances cannot be scheduled, so they are ended: {error}"
            raise
        self.fault = ""

    def follow_up(self, unstopped: Sequence[NodeId]) -> list[NodeId]:
        """Repeat orders to stop that had no effect; return the nodes that should be ended instead."""
        now = self._clock.now()
        self._asked = {node: at for node, at in self._asked.items() if node in unstopped}
        late = []
        for node in unstopped:
            first, last = self._asked.setdefault(node, (now, now - AGAIN_SECONDS))
            if now - first >= GIVE_UP_SECONDS:
                self._say(f"{node} was told to stop {now - first:.0f} s ago and still runs: it is ended")
                late.append(node)
            elif now - last >= AGAIN_SECONDS and isinstance(self._stop(node), Refused):
                late.append(node)
        return late

    def launch(
        self,
        action: LaunchNodes,
        stopped: Sequence[NodeId],
        rent: Callable[[LaunchNodes], Launched | Refused | Unknown],
    ) -> Launched | Refused | Unknown:
        """Start the stopped nodes of an order and rent the rest; a repeated order starts no others."""
        said = {node: self._start(node, action) for node in action.starts if node in stopped}
        started = self._started.get(action.id, ())
        started += tuple(next_life(node) for node, each in said.items() if isinstance(each, Accepted))
        self._started = {action.id: started}
        lost = [each.reason for each in said.values() if isinstance(each, Unknown)]
        for node, each in said.items():
            if isinstance(each, Refused):
                self._say(f"{node} could not be started, and a new instance is rented: {each.reason}")
        rest = action.count - len(started) - len(lost)
        outcome = rent(replace(action, count=rest, starts=())) if rest else Launched(nodes=())
        if lost or isinstance(outcome, Unknown):
            return Unknown(
                reason="; ".join([*lost, *([outcome.reason] if isinstance(outcome, Unknown) else [])])
            )
        if isinstance(outcome, Refused):
            return Launched(nodes=started, short=outcome) if started else outcome
        return replace(outcome, nodes=(*started, *outcome.nodes))

    def _start(self, node: NodeId, action: LaunchNodes) -> Said:
        """Start one instance: write the tags of its next life, then call."""
        instance = instance_of(node)
        tags = {
            LIFE_TAG: str(life_of(node) + 1),
            INTENT_TAG: action.id,
            LEASE_TAG: str(int(self._clock.now() + self._lease_seconds)),
        }
        if action.for_jobs:
            job, generation = action.for_jobs[0]
            tags |= {JOB_TAG: job[:LONGEST_TAG], GENERATION_TAG: str(generation)}
        try:
            self._tag(instance, tags)
        except CallFailed as error:
            return Refused(reason=str(error), kind="bad-request")
        try:
            self._calls.call("ec2:StartInstances", InstanceIds=[instance])
        except CallFailed as error:
            if error.meaning == "unknown":
                return Unknown(reason=str(error))
            return Refused(reason=str(error), kind="no-capacity")
        return Accepted()

    def _tag(self, instance: str, tags: Mapping[str, str]) -> None:
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        self._calls.call("ec2:CreateTags", Resources=[instance], Tags=listed)
