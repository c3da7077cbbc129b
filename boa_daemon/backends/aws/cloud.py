"""AWS: instances rented and released through EC2, none forgotten, none paid for twice.

One paginated listing per tick, filtered by our cluster tag, is the truth: what it shows as living lives,
whatever was believed before. Everything else here only corrects for what a listing cannot know: launches not
visible yet, instances that fell out of it, warnings, and orders to end. An instance that fell out is asked
for by its id before it is believed gone: an index of tags may lag.

The tag `boa:books` names the database that rented an instance. What another database rented is not seen, not
ended and not renewed, unless our own database knows it: it has another daemon, or ours lost its memory.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from boa_daemon.backends.aws.cached_value import CachedValue
from boa_daemon.backends.aws.calls import AwsCalls
from boa_daemon.backends.aws.cluster_claim import ClusterClaim
from boa_daemon.backends.aws.descriptions import instances_by_id, instances_of
from boa_daemon.backends.aws.errors import CallFailed
from boa_daemon.backends.aws.events import InterruptionQueue, Listener, Notices, spot_warning
from boa_daemon.backends.aws.images import OwnImage, most_usd_per_hour, own_images
from boa_daemon.backends.aws.instance_lives import as_life, is_stop_open, life_before, life_now
from boa_daemon.backends.aws.instance_ownership import own_instances
from boa_daemon.backends.aws.launch import Launcher
from boa_daemon.backends.aws.launch_request import BUILD_TAG, CARDS_TAG, MARKET_TAG
from boa_daemon.backends.aws.leases import renew_leases
from boa_daemon.backends.aws.market import AwsMarket
from boa_daemon.backends.aws.node_from_instance import lease_of, tags_of_instance
from boa_daemon.backends.aws.pool import AwsWarmPool
from boa_daemon.backends.aws.release import Releaser
from boa_daemon.backends.aws.sweep import Sweeper
from boa_daemon.backends.aws.topology import InstanceTopology
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.errors import MissingPrice
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.tick.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.node_lives import instance_of, life_named, life_of
from boa_daemon.tick.offers import Extras, Offer
from boa_daemon.tick.ports import Accepted, Clock, Launched, Provider, Refused, Unknown
from boa_daemon.tick.state import NodeState
from policies.model import InstanceType, NodeId

GONE_SECONDS, YOUNG_SECONDS = 60.0, 300.0
"""An instance that fell out of the listing is believed gone after this long, and not while it is young."""
BOOT_SECONDS = 180.0
"""From launch to ready with the driver installed; `boa simulate` assumes the same."""
OVERDUE_SECONDS = 30.0
"""What EC2 announced as taken back ends on time; what runs on so long after is given back."""
IMAGES_SECONDS = 3600.0
"""So often the daemon looks which images are kept, as they cost money."""
_LIVING = ("pending", "running", "stopping", "stopped")


class AwsCloud(Provider):
    """Implements `Provider`. Not for several threads at once, but for the notices.

    `books` names the database whose ticks the action ids count. Without `touches` it only looks. `say` gets
    alarms, as sentences. A `claim` says whose the cluster is before anybody has rented.
    """

    boot_seconds = BOOT_SECONDS
    root_volume_gib = AwsSettings.model_fields["volume_gib"].default

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
        claim: ClusterClaim | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings
        self.calls = calls or AwsCalls(settings)
        self.notices = notices or Notices()
        self.market = AwsMarket(settings, self.calls, catalog, clock)
        self.launcher = Launcher(settings, self.calls, self.market, catalog, clock, books=books, sleep=sleep)
        self.releaser = Releaser(self.calls, clock, say)
        self.sweeper = Sweeper(settings, self.calls, clock)
        self.pool = AwsWarmPool(self.calls, clock, lease_seconds=60.0 * settings.lease_minutes, say=say)
        self.topology = InstanceTopology(self.calls, clock, say)
        self._lives: dict[str, int] = {}
        self._catalog, self._clock, self._touches, self._say = catalog, clock, touches, say
        self._books, self._claim = books, claim
        self._known: set[NodeId] = set()
        self._wanted: frozenset[NodeId] = frozenset()
        self._instances: Sequence[Mapping[str, Any]] = ()
        self._builders: frozenset[NodeId] = frozenset()
        self._elsewhere = ""
        self._images: CachedValue[list[OwnImage]] = CachedValue(IMAGES_SECONDS, retry_seconds=600.0)
        self._kinds = _kinds(catalog)
        self._live: dict[NodeId, NodeState] = {}
        self._ended: dict[NodeId, NodeState] = {}
        self._missing: dict[NodeId, tuple[float, int]] = {}
        self._ready_at: dict[NodeId, float] = {}
        self._stopped_at: dict[NodeId, float] = {}
        self._listener: Listener | None = None
        self._wake: Callable[[], None] = lambda: None

    def listen(self, wake: Callable[[], None]) -> None:
        """Hear spot warnings through the queue of the settings, if there is one; `wake` calls for a tick."""
        self._wake = wake
        if self.settings.queue_url and self._listener is None:
            self._listener = Listener(self._queue(), self._say)

    def _queue(self) -> InterruptionQueue:
        """Return the reader of the queue of the settings."""
        return InterruptionQueue(self.calls, self.settings.queue_url, self.notices, self._wake)

    def rehearse_end(self, node: NodeId) -> float | None:
        """Read EC2's warning of a node as if the queue had brought it; EC2 itself leaves the node alone."""
        if not self._touches or node not in self._live:
            return None
        self._queue().take([spot_warning(instance_of(node), self._clock.now())])
        return self.notices.ends_by(instance_of(node))

    def refresh(self) -> None:
        """Ask for prices, quotas and zones that are getting old."""
        self.market.refresh()
        self._images.refresh(lambda: own_images(self.calls), now=self._clock.now())

    def standing(self) -> Extras:
        """Return what the cluster's images cost per hour at the most, as they were last listed."""
        try:
            usd = most_usd_per_hour(self._images.value or (), self.settings)
        except MissingPrice:
            # Nothing is rented there, so no cap can be broken.
            return ()
        return (("images", usd),) if usd else ()

    def ages(self) -> Mapping[str, float | None]:
        """Return how old each fact is, in seconds; None for what is not known."""
        return self.market.ages()

    def efa_cards(self, node: NodeId) -> tuple[int, str]:
        """Return how many EFA cards a node must show, by the tag it was born with, or why it shows none."""
        name = instance_of(node)
        listed = next((each for each in self._instances if each["InstanceId"] == name), {})
        said = tags_of_instance(listed).get(CARDS_TAG, "")
        if said.isascii() and said.isdigit() and len(said) < 4:
            return int(said), ""
        entry = self._catalog.entries.get(str(listed.get("InstanceType", "")))
        if entry is None or not entry.efa_interfaces:
            return 0, ""
        why = (
            f"no subnet of {listed.get('Placement', {}).get('AvailabilityZone') or 'its zone'} was known"
            if self.settings.efa
            else "[cloud] efa is false"
        )
        return 0, f"EFA is not checked: it was launched without a card of {entry.name}'s, as {why}"

    def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def remember(self, nodes: Iterable[NodeState]) -> None:
        """Learn of nodes that lived when an earlier process last looked, so that none vanishes unbilled."""
        live = {node.id: node for node in nodes if node.ended_at is None}
        self._live.update(live)
        self._known |= {instance_of(name) for name in live}
        self._lives |= {instance_of(name): life_of(name) for name in live}
        self._wanted |= live.keys()
        self.topology.remember(live.values())

    def nodes(self) -> Sequence[NodeState]:
        """Return our nodes as EC2 lists them; ends are followed up on the way.

        Raises:
            CallFailed: when EC2 cannot be asked: no list is not an empty list.
        """
        listed = instances_of(self.calls, self.settings.cluster)
        now = self._clock.now()
        instances = self._ours(listed, now)
        found = self._take_in(instances, now)
        missing = self._live.keys() - found.keys()
        # Asked for by its id, one that fell out of the list may be there after all: that is EC2's word too.
        gone = [instance_of(name) for name in missing if self._is_long_gone(name, now)]
        asked = instances_by_id(self.calls, gone)
        instances += asked
        found |= self._take_in(asked, now)
        self._look_for(missing - found.keys(), now)
        if self._touches:
            self.releaser.follow_up({each["InstanceId"]: each["State"]["Name"] for each in instances})
            self._end_overdue(instances, now)
            self._finish_stops(instances)
        self._instances = instances
        built = (each for each in instances if BUILD_TAG in tags_of_instance(each))
        # What builds an image has a time of its own: nothing prolongs it, and what is left then is a leak.
        self._builders = frozenset(each["InstanceId"] for each in built)
        self._forget(found, now)
        self._live = self.topology.placed(self._live, instances)
        return [*self._live.values(), *self._ended.values()]

    def _finish_stops(self, instances: Sequence[Mapping[str, Any]]) -> None:
        """Stop what was told to and runs on, as after a crash; end what does not stop."""
        running = [each for each in instances if each["State"]["Name"] == "running"]
        open_stops = []
        for instance in running:
            life = self._lives.get(instance["InstanceId"], 1)
            name = life_named(instance["InstanceId"], life)
            is_open = is_stop_open(instance, life) or name in self.pool.asked
            if is_open and instance["InstanceId"] not in self.releaser.asked:
                open_stops.append(name)
        late = self.pool.follow_up(open_stops)
        if late:
            self.releaser.terminate([instance_of(name) for name in late])

    def _end_overdue(self, instances: Sequence[Mapping[str, Any]], now: float) -> None:
        """End what EC2 said it would take back and did not: its jobs have left it, and it is paid for."""
        running = [each["InstanceId"] for each in instances if each["State"]["Name"] == "running"]
        due = [name for name in running if name not in self.releaser.asked]
        overdue = [name for name in due if now - (self.notices.ends_by(name) or now) > OVERDUE_SECONDS]
        if overdue:
            self._say(f"{', '.join(overdue)}: announced as taken back, and runs on: it is given back")
            self.releaser.terminate(overdue)

    def _take_in(self, instances: Sequence[Mapping[str, Any]], now: float) -> dict[NodeId, NodeState]:
        """Take descriptions in and return them as nodes; one that lives was never ended, whatever we knew."""
        found: dict[NodeId, NodeState] = {}
        for instance in instances:
            node = self._node(instance, now)
            found[node.id] = node
            self._end_life_before(instance, node)
        for name, node in found.items():
            self._missing.pop(name, None)
            if node.ended_at is None:
                self._live[name] = node
                if self._ended.pop(name, None) is not None:
                    self._say(f"{name} was taken for ended and is listed again: it is billed on")
            else:
                self._ended[name] = node
                self._live.pop(name, None)
        return found

    def _end_life_before(self, instance: Mapping[str, Any], node: NodeState) -> None:
        """Note that an instance is in another life than before: the bill of that one is final."""
        name, life = instance_of(node.id), life_of(node.id)
        known, self._lives[name] = self._lives.get(name), life
        before = life_named(name, life - 1 if known is None else known)
        if before == node.id:
            return
        if before in self._live:
            ended = self._live.pop(before)
            at = max(node.launched_at, ended.launched_at)
            self._ended[before] = replace(ended, phase="terminated", ended_at=at, idle_since=None)
        elif before not in self._ended and (found := life_before(instance, node, self._kinds)) is not None:
            self._ended[found.id] = found

    def _ours(self, listed: Sequence[dict[str, Any]], now: float) -> list[dict[str, Any]]:
        """Return the instances that our database rented or knows; note whose the cluster is otherwise."""
        if not self._touches:
            return list(listed)
        ours, self._elsewhere = own_instances(
            listed, known=self._known, books=self._books, cluster=self.settings.cluster, now=now
        )
        return ours

    def elsewhere(self) -> str:
        """Return why the cluster is another daemon's, as listed and claimed; empty where it is ours."""
        if self._elsewhere or self._claim is None or not self._touches:
            return self._elsewhere
        return self._claim.hold()

    def renew(self, nodes: Collection[NodeId]) -> None:
        """Renew the leases of nodes, as of the last listing; those of others run out."""
        self._wanted = frozenset(nodes) - self._builders
        if self._touches:
            names = {instance_of(name) for name in self._wanted}
            wanted = [each for each in self._instances if each["InstanceId"] in names]
            seconds = 60.0 * self.settings.lease_minutes
            renew_leases(self.calls, wanted, now=self._clock.now(), seconds=seconds, say=self._say)

    def offers(self) -> Sequence[Offer]:
        """Return what the region rents, at cached prices, less what our nodes take of the quotas."""
        try:
            return self.market.offers(self._vcpus_in_use())
        except (CallFailed, MissingPrice) as error:
            self._say(f"nothing can be rented now: {error}")
            return [
                Offer(instance_type=name, zone="unknown", nodes_left=0)
                for name in self.settings.instance_types
            ]

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Ask EC2 for nodes, stopped ones first; the same action id asks for the same nodes."""
        if not action.starts:
            return self.launcher.launch(action)
        stopped = [name for name, node in self._live.items() if node.phase == "stopped"]
        again = [name for name in stopped if name in action.starts]
        outcome = self.pool.launch(action, again, self.launcher.launch)
        # Until the next listing they are not there to be started once more.
        for name in again:
            self._live[name] = replace(self._live[name], phase="terminating")
        return outcome

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """End nodes that the listing showed as ours; others are refused, those gone already accepted."""
        outcomes: dict[NodeId, Accepted | Refused | Unknown] = {}
        ours: list[NodeId] = []
        for action in actions:
            if action.node in self._live:
                if not (action.stops and self._stopped(action.node, outcomes)):
                    ours.append(action.node)
            elif action.node in self._ended:
                outcomes[action.node] = Accepted()
            else:
                reason = f"{action.node} is not in the list of cluster {self.settings.cluster}"
                outcomes[action.node] = Refused(reason=reason, kind="bad-request")
        said = self.releaser.terminate([instance_of(name) for name in ours])
        return outcomes | {name: said[instance_of(name)] for name in ours}

    def _stopped(self, name: NodeId, outcomes: dict[NodeId, Accepted | Refused | Unknown]) -> bool:
        """Stop a node that runs; return whether that is what became of it. What cannot be stopped ends."""
        node = self._live[name]
        if node.phase == "stopped" or node.market != "on-demand":
            return False
        said = self.pool.stop([name])[name]
        if isinstance(said, Refused):
            self._say(f"{name} cannot be stopped, and ends: {said.reason}")
            return False
        outcomes[name] = said
        return True

    def sweep(self) -> Mapping[str, str]:
        """Find what bears our tag and nothing explains, and end it; return a sentence on each by its id.

        Instances that the tick knows by their intent are the tick's own; those without one, those whose lease
        has run out, and loose disks, interfaces and spot requests are leaks.

        Raises:
            CallFailed: when EC2 cannot be asked.
        """
        # What the tick wants is no leak: its lease may have run out while AWS could not be reached.
        wanted = {instance_of(name) for name in self._wanted}
        leaks = tuple(
            found
            for found in self.sweeper.find()
            if found.leak and not found.is_ending and found.id not in wanted
        )
        failed = self.sweeper.release(leaks) if self._touches else {}
        for name, why in failed.items():
            self._say(f"{name} is a leak and could not be ended: {why}")
        return {leak.id: f"{leak.kind} {leak.id} in {leak.region}: {leak.leak}" for leak in leaks}

    def _node(self, instance: Mapping[str, Any], now: float) -> NodeState:
        """Return an instance as a node, with what we and the notices know beside the listing."""
        of_instance, state = instance["InstanceId"], instance["State"]["Name"]
        life = life_now(instance, self._lives.get(of_instance))
        name, launched_at = life_named(of_instance, life), instance["LaunchTime"].timestamp()
        if state == "running":
            self._ready_at.setdefault(name, launched_at if not self._live else now)
        elif state in ("shutting-down", "terminated"):
            self._stopped_at.setdefault(name, now)
        if state in _LIVING:
            self._stopped_at.pop(name, None)
        prices: Sequence[tuple[float, float]] = ()
        if instance.get("InstanceLifecycle") == "spot":
            self.market.remember_spot_since(launched_at)
            zone = instance.get("Placement", {}).get("AvailabilityZone", "")
            prices = self.market.spot_prices(instance["InstanceType"], zone)
        told = self.notices.ended_at(of_instance) or 0.0
        is_leaving = of_instance in self.releaser.asked or name in self.pool.asked
        ends_by = self.notices.ends_by(of_instance)
        if ends_by is None and tags_of_instance(instance).get(MARKET_TAG) == "reserved":
            ends_by = self.market.taken_back_at(instance["InstanceType"])
        if BUILD_TAG in tags_of_instance(instance) and state in _LIVING:
            is_leaving, ends_by = True, lease_of(instance)
        return as_life(
            instance,
            life,
            known=self._live.get(name),
            now=now,
            kinds=self._kinds,
            spot_prices=prices,
            is_leaving=is_leaving or is_stop_open(instance, life),
            ends_by=ends_by,
            ready_at=self._ready_at.get(name),
            # What was told of an earlier run or a stop says nothing of this life.
            stopped_at=told if told >= launched_at and life % 2 else self._stopped_at.get(name),
        )

    def _is_long_gone(self, name: NodeId, now: float) -> bool:
        """Whether a node was missing from listings for so long that it would be believed gone."""
        since, listings = self._missing.get(name, (now, 0))
        is_young = now - self._live[name].launched_at < YOUNG_SECONDS
        return listings >= 1 and now - since >= GONE_SECONDS and not is_young

    def _look_for(self, missing: Iterable[NodeId], now: float) -> None:
        """Believe that nodes are gone after two listings without them, a minute apart; not while young."""
        for name in missing:
            since, listings = self._missing.get(name, (now, 0))
            is_gone, node = self._is_long_gone(name, now), self._live[name]
            self._missing[name] = (since, listings + 1)
            if not is_gone:
                continue
            end = max(self.notices.ended_at(name) or since, node.launched_at)
            self._ended[name] = replace(node, phase="terminated", ended_at=end, idle_since=None)
            self._say(f"{name} vanished from the list: its bill ends {now - end:.0f} s ago")
            del self._live[name], self._missing[name]

    def _vcpus_in_use(self) -> Mapping[str, int]:
        """Return what our live nodes take of each quota, by its code."""
        used: Counter[str] = Counter()
        for node in self._live.values():
            entry = self._catalog.entries.get(node.instance_type.name)
            if entry is not None and node.phase != "stopped":
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
