"""AWS: instances rented and released through EC2, none forgotten, none paid for twice.

One paginated listing per tick, filtered by our cluster tag, is the truth. Everything else here only corrects
for what a listing cannot know: launches not visible yet, instances that fell out of it, warnings, and orders
to end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from boa_daemon.backends.aws_calls import AwsCalls
from boa_daemon.backends.aws_errors import CallFailed
from boa_daemon.backends.aws_events import InterruptionQueue, Listener, Notices
from boa_daemon.backends.aws_launch import Launcher
from boa_daemon.backends.aws_listing import lease_of, node_of
from boa_daemon.backends.aws_market import AwsMarket
from boa_daemon.backends.aws_release import Releaser
from boa_daemon.backends.aws_request import CLUSTER_TAG, LEASE_TAG
from boa_daemon.backends.aws_sweep import Sweeper
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.errors import MissingPrice
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.tick.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.offers import Offer
from boa_daemon.tick.ports import Accepted, Clock, Launched, Provider, Refused, Unknown
from boa_daemon.tick.state import NodeState
from policies.model import InstanceType, NodeId

GONE_SECONDS, YOUNG_SECONDS = 60.0, 300.0
"""An instance that fell out of the listing is believed gone after this long, and not while it is young."""
BOOT_SECONDS = 180.0
"""From launch to ready with the driver installed; `boa simulate` assumes the same."""
_TAG_BATCH = 500


class AwsCloud(Provider):
    """Implements `Provider`. Not for several threads at once, but for the notices.

    `books` names the database whose ticks the action ids count. Without `touches` it only looks. `say` gets
    alarms, as sentences.
    """

    boot_seconds = BOOT_SECONDS

    def __init__(
        self,
        settings: AwsSettings,
        *,
        catalog: Catalog,
        clock: Clock,
        calls: AwsCalls | None = None,
        notices: Notices | None = None,
        books: str = "",
        touches: bool = True,
        say: Callable[[str], None] = lambda sentence: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings
        self.calls = calls or AwsCalls(settings)
        self.notices = notices or Notices()
        self.market = AwsMarket(settings, self.calls, catalog, clock)
        self.launcher = Launcher(settings, self.calls, self.market, catalog, clock, books=books, sleep=sleep)
        self.releaser = Releaser(self.calls, clock, say)
        self.sweeper = Sweeper(settings, self.calls, clock)
        self._catalog, self._clock, self._touches, self._say = catalog, clock, touches, say
        self._kinds = _kinds(catalog)
        self._live: dict[NodeId, NodeState] = {}
        self._ended: dict[NodeId, NodeState] = {}
        self._missing: dict[NodeId, tuple[float, int]] = {}
        self._ready_at: dict[NodeId, float] = {}
        self._stopped_at: dict[NodeId, float] = {}
        self._listener: Listener | None = None

    def listen(self, wake: Callable[[], None]) -> None:
        """Hear spot warnings through the queue of the settings, if there is one; `wake` calls for a tick."""
        if self.settings.queue_url and self._listener is None:
            queue = InterruptionQueue(self.calls, self.settings.queue_url, self.notices, wake)
            self._listener = Listener(queue, self._say)

    def refresh(self) -> None:
        """Ask for prices, quotas and zones that are getting old."""
        self.market.refresh()

    def ages(self) -> Mapping[str, float | None]:
        """Return how old each fact is, in seconds; None for what is not known."""
        return self.market.ages()

    def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def remember(self, nodes: Iterable[NodeState]) -> None:
        """Learn of nodes that lived when an earlier process last looked, so that none vanishes unbilled."""
        self._live.update({node.id: node for node in nodes if node.ended_at is None})

    def nodes(self) -> Sequence[NodeState]:
        """Return our nodes as EC2 lists them; leases are renewed and ends followed up on the way.

        Raises:
            CallFailed: when EC2 cannot be asked: no list is not an empty list.
        """
        instances = self._listed()
        now = self._clock.now()
        found = {instance["InstanceId"]: self._node(instance, now) for instance in instances}
        for name, node in found.items():
            (self._ended if node.ended_at is not None else self._live)[name] = node
            self._missing.pop(name, None)
        for name in [name for name in self._live if name in self._ended]:
            del self._live[name]
        self._look_for(self._live.keys() - found.keys(), now)
        if self._touches:
            self.releaser.follow_up({each["InstanceId"]: each["State"]["Name"] for each in instances})
            self._renew(instances, now)
        self._forget(found, now)
        return [*self._live.values(), *self._ended.values()]

    def offers(self) -> Sequence[Offer]:
        """Return what the region rents, at cached prices, less what our nodes take of the quotas."""
        try:
            return self.market.offers(self._vcpus_in_use())
        except CallFailed as error:
            self._say(f"nothing can be rented now: {error}")
            return [
                Offer(instance_type=name, zone="unknown", nodes_left=0)
                for name in self.settings.instance_types
            ]

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Ask EC2 for nodes; the same action id asks for the same nodes."""
        return self.launcher.launch(action)

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """End nodes that the listing showed as ours; others are refused, those gone already accepted."""
        outcomes: dict[NodeId, Accepted | Refused | Unknown] = {}
        ours: list[NodeId] = []
        for action in actions:
            if action.node in self._live:
                ours.append(action.node)
            elif action.node in self._ended:
                outcomes[action.node] = Accepted()
            else:
                reason = f"{action.node} is not in the list of cluster {self.settings.cluster}"
                outcomes[action.node] = Refused(reason=reason, kind="bad-request")
        return outcomes | self.releaser.terminate(ours)

    def sweep(self) -> Mapping[str, str]:
        """Find what bears our tag and nothing explains, and end it; return a sentence on each by its id.

        Instances that the tick knows by their intent are the tick's own; those without one, those whose lease
        has run out, and loose disks, interfaces and spot requests are leaks.

        Raises:
            CallFailed: when EC2 cannot be asked.
        """
        leaks = tuple(found for found in self.sweeper.find() if found.leak and not found.is_ending)
        failed = self.sweeper.release(leaks) if self._touches else {}
        for name, why in failed.items():
            self._say(f"{name} is a leak and could not be ended: {why}")
        return {leak.id: f"{leak.kind} {leak.id} in {leak.region}: {leak.leak}" for leak in leaks}

    def _listed(self) -> list[dict[str, Any]]:
        """Return all instances with our tag; EC2 keeps those that ended for about an hour."""
        mine = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [self.settings.cluster]}]
        reservations = self.calls.pages(
            "ec2:DescribeInstances", "Reservations", Filters=mine, MaxResults=1000
        )
        return [instance for reservation in reservations for instance in reservation["Instances"]]

    def _node(self, instance: Mapping[str, Any], now: float) -> NodeState:
        """Return an instance as a node, with what we and the notices know beside the listing."""
        name, state = instance["InstanceId"], instance["State"]["Name"]
        if state == "running":
            self._ready_at.setdefault(name, instance["LaunchTime"].timestamp() if not self._live else now)
        elif state in ("shutting-down", "terminated"):
            self._stopped_at.setdefault(name, now)
        prices: Sequence[tuple[float, float]] = ()
        if instance.get("InstanceLifecycle") == "spot":
            self.market.remember_spot_since(instance["LaunchTime"].timestamp())
            zone = instance.get("Placement", {}).get("AvailabilityZone", "")
            prices = self.market.spot_prices(instance["InstanceType"], zone)
        return node_of(
            instance,
            self._kinds,
            spot_prices=prices,
            is_leaving=name in self.releaser.asked,
            ends_by=self.notices.ends_by(name),
            ready_at=self._ready_at.get(name),
            stopped_at=self.notices.ended_at(name) or self._stopped_at.get(name),
        )

    def _look_for(self, missing: Iterable[NodeId], now: float) -> None:
        """Believe that nodes are gone after two listings without them, a minute apart; not while young."""
        for name in missing:
            since, listings = self._missing.get(name, (now, 0))
            self._missing[name] = (since, listings + 1)
            node = self._live[name]
            is_young = now - node.launched_at < YOUNG_SECONDS
            if listings < 1 or now - since < GONE_SECONDS or is_young:
                continue
            end = max(self.notices.ended_at(name) or since, node.launched_at)
            self._ended[name] = replace(node, phase="terminated", ended_at=end, idle_since=None)
            self._say(f"{name} vanished from the list: its bill ends {now - end:.0f} s ago")
            del self._live[name], self._missing[name]

    def _renew(self, instances: Sequence[Mapping[str, Any]], now: float) -> None:
        """Renew the leases of which more than a third is over, in one call."""
        seconds = 60.0 * self.settings.lease_minutes
        due = [
            instance["InstanceId"]
            for instance in instances
            if instance["State"]["Name"] in ("pending", "running")
            and (lease_of(instance) or 0.0) - now < seconds * 2.0 / 3.0
        ]
        lease = {"Key": LEASE_TAG, "Value": str(int(now + seconds))}
        for begin in range(0, len(due), _TAG_BATCH):
            try:
                self.calls.call("ec2:CreateTags", Resources=due[begin : begin + _TAG_BATCH], Tags=[lease])
            except CallFailed as error:
                self._say(f"{len(due)} leases were not renewed; the nodes end with them: {error}")
                return

    def _vcpus_in_use(self) -> Mapping[str, int]:
        """Return what our live nodes take of each quota, by its code."""
        used: Counter[str] = Counter()
        for node in self._live.values():
            entry = self._catalog.entries.get(node.instance_type.name)
            if entry is not None:
                used[self.market.quota_code(entry.name, node.market)] += entry.vcpus
        return used

    def _forget(self, found: Mapping[NodeId, NodeState], now: float) -> None:
        """Drop notes on nodes that ended and that EC2 no longer lists."""
        for name in [name for name in self._ended if name not in found]:
            if now - (self._ended[name].ended_at or now) > 3600.0:
                del self._ended[name]
                self._ready_at.pop(name, None)
                self._stopped_at.pop(name, None)


def _kinds(catalog: Catalog) -> Mapping[str, InstanceType]:
    """Return every type of the catalogue that has a price."""
    found: dict[str, InstanceType] = {}
    for name in catalog.entries:
        try:
            found[name] = catalog.instance_type(name)
        except MissingPrice:
            continue
    return found
