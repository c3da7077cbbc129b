"""The AWS cloud: rent and release EC2 instances without forgetting one or paying twice.

One paginated listing, filtered by our cluster tag, is the truth: an instance that it shows as living lives,
whatever was known before. Every tick but quiet ones (`QuietTicks`) asks for it. The rest of this module
corrects for what a listing cannot show: launches that are not visible yet, instances that dropped out of it,
warnings, and orders to end. An instance that dropped out is described by its id before it counts as gone,
because an index of tags may lag.

The tag `boa:books` names the database that rented an instance. Instances of another database are not shown,
ended or renewed, unless our database knows them: they belong to another daemon, or our database was lost.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from boa_daemon.backends.aws.client.cached_value import CachedValue
from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.cluster_claim import ClusterClaim
from boa_daemon.backends.aws.instances.copied_tags import copied_sentence, made_by_others
from boa_daemon.backends.aws.instances.descriptions import instances_by_id, instances_of
from boa_daemon.backends.aws.instances.event_rule_probe import EventRuleProbe
from boa_daemon.backends.aws.instances.events import InterruptionQueue, Listener, Notices, spot_warning
from boa_daemon.backends.aws.instances.images import OwnImage, most_usd_per_hour, own_images
from boa_daemon.backends.aws.instances.instance_health import InstanceHealth
from boa_daemon.backends.aws.instances.instance_lives import (
    as_life,
    is_stop_open,
    life_before,
    life_now,
    was_stopped_by_others,
)
from boa_daemon.backends.aws.instances.instance_ownership import own_instances
from boa_daemon.backends.aws.instances.launch import Launcher
from boa_daemon.backends.aws.instances.launch_request import (
    BUILD_TAG,
    CARDS_TAG,
    CLUSTER_TAG,
    EXTRAS_TAG,
    INTENT_TAG,
    MARKET_TAG,
    PRICE_TAG,
)
from boa_daemon.backends.aws.instances.leases import LeaseRenewer
from boa_daemon.backends.aws.instances.market import AwsMarket
from boa_daemon.backends.aws.instances.node_from_instance import (
    LEAST_PRICE,
    a_type,
    ended_at,
    lease_of,
    reservation_of,
    tags_of_instance,
)
from boa_daemon.backends.aws.instances.node_states import (
    EARLY_SECONDS,
    OF_PEOPLE,
    OVERDUE_SECONDS,
    PENDING_SECONDS,
    SHUTDOWN_SECONDS,
    STOPPING_SECONDS,
    TAKEN_BACK,
    UNSEEN_SECONDS,
    failed_to_start,
    reason_sentence,
    state_reason,
)
from boa_daemon.backends.aws.instances.pool import AwsWarmPool
from boa_daemon.backends.aws.instances.quiet_ticks import QuietTicks
from boa_daemon.backends.aws.instances.refusals import refusal_of_end
from boa_daemon.backends.aws.instances.rehearsals import Rehearsals
from boa_daemon.backends.aws.instances.release import Releaser
from boa_daemon.backends.aws.instances.sweep import Sweeper
from boa_daemon.backends.aws.instances.topology import InstanceTopology
from boa_daemon.backends.aws.prices.extra_costs import extras_in, extras_of, tag_of
from boa_daemon.backends.aws.prices.price_steps import PricePath
from boa_daemon.backends.aws.prices.region_prices import how_to_price
from boa_daemon.backends.aws.rights.policy_statements import NO_OTHER_RESOURCES, UsedResources
from boa_daemon.backends.aws.rights.role_probe import RoleProbe
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.errors import MissingPrice
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.node_lives import instance_of, life_named, life_of
from boa_daemon.tick.facts.offers import Extras, Offer
from boa_daemon.tick.facts.ports import (
    WARNING_SECONDS,
    Accepted,
    Clock,
    Launched,
    Provider,
    Refused,
    Unknown,
)
from boa_daemon.tick.facts.state import NodeState
from policies.model import InstanceType, NodeId
from policies.money_text import in_dollars

GONE_SECONDS, YOUNG_SECONDS = 300.0, 300.0
"""An instance missing from the listing counts as gone after `GONE_SECONDS`, and never while it is young. EC2
lists what has ended for an hour: what is missing was rather left out of an answer, and its job still runs."""
SOUGHT_SECONDS = 60.0
"""An instance missing from the listing for this long is described by its id, whatever its tags."""
RESTART_SECONDS = 2.0
"""An instance whose LaunchTime is later than we know by more than this was stopped and started meanwhile."""
BOOT_SECONDS = 180.0
"""Seconds from launch to ready, with the driver installed; `boa simulate` assumes the same."""
IMAGES_SECONDS = 3600.0
"""Seconds between listings of our images, which cost money."""
RELOADED = (
    "prices", "side_prices", "subnets", "security_groups", "image", "images", "instance_profile", "key_name",
    "placement_groups", "reservations", "spot_max_usd_per_hour",
)  # fmt: skip
"""Settings that are used from the next launch on when the daemon reads its settings again."""
MOST_NEWS = 1_000
"""Number of untold events that are kept while nobody asks for them."""
MOST_TOLD = 10_000
"""Number of told facts from which on those of instances that are not listed any more are forgotten."""
_LIVING = ("pending", "running", "stopping", "stopped")


class AwsCloud(Provider):
    """A `Provider` on EC2. Only `notices` may be used from several threads.

    `ledger_id` names the database whose ticks the action ids count. Without `touches` listing, renewing and
    sweeping change nothing on EC2. `say` receives alarms as sentences. A `claim` says whose the cluster is
    before any daemon has rented instances. `uses` names what the roles of nodes must reach.
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
        ledger_id: str = "",
        touches: bool = True,
        say: Callable[[str], None] = lambda sentence: None,
        claim: ClusterClaim | None = None,
        uses: UsedResources = NO_OTHER_RESOURCES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings
        self.calls = calls or AwsCalls(settings)
        self.notices = notices or Notices()
        self.notices.concerns = self._may_be_ours
        self.market = AwsMarket(settings, self.calls, catalog, clock)
        self.launcher = Launcher(
            settings, self.calls, self.market, catalog, clock, ledger_id=ledger_id, sleep=sleep
        )
        self.releaser = Releaser(self.calls, clock, self._alarm)
        self.sweeper = Sweeper(settings, self.calls, clock)
        self.pool = AwsWarmPool(self.calls, clock, lease_seconds=60.0 * settings.lease_minutes, say=say)
        self.topology = InstanceTopology(self.calls, clock, say)
        self.health = InstanceHealth(self.calls, clock)
        self.rehearsals = Rehearsals(self.calls, self.launcher, clock)
        self.rules = EventRuleProbe(self.calls, clock)
        self.roles = RoleProbe(self.calls, uses, clock)
        self.quiet = QuietTicks(self.calls, lease_seconds=60.0 * settings.lease_minutes)
        self.leases = LeaseRenewer(self.calls, seconds=60.0 * settings.lease_minutes, say=say)
        self._told: set[tuple[str, str]] = set()
        self._news: deque[tuple[str, str]] = deque(maxlen=MOST_NEWS)
        self._failed: list[tuple[str, Refused]] = []
        self._has_listed = False
        self._launched_at = float("-inf")
        self._ended_pending: set[str] = set()
        self._failures: Counter[str] = Counter()
        self._interferences: Counter[str] = Counter()
        self._lives: dict[str, int] = {}
        self._catalog, self._clock, self._touches, self._say = catalog, clock, touches, say
        self._ledger_id, self._claim = ledger_id, claim
        self._known: set[NodeId] = set()
        self._wanted: frozenset[NodeId] = frozenset()
        self._instances: Sequence[Mapping[str, Any]] = ()
        self._builders: frozenset[NodeId] = frozenset()
        self._altered: dict[str, str] = {}
        self._copies: dict[str, str] = {}
        self._types: dict[str, str] = {}
        self._untagged: set[str] = set()
        self._elsewhere = ""
        self._unpriced: list[str] = []
        self._images: CachedValue[list[OwnImage]] = CachedValue(IMAGES_SECONDS, retry_seconds=600.0)
        self._kinds = _kinds(catalog)
        self._live: dict[NodeId, NodeState] = {}
        self._ended: dict[NodeId, NodeState] = {}
        self._missing: dict[NodeId, tuple[float, int]] = {}
        self._ran: set[NodeId] = set()
        self._pending_at: dict[NodeId, float] = {}
        self._ready_at: dict[NodeId, float] = {}
        self._stopped_at: dict[NodeId, float] = {}
        self._listener: Listener | None = None
        self._wake: Callable[[], None] = lambda: None
        self.market.tell = self._tell_of_market

    def cloud_of(self, node: NodeId) -> AwsCloud:
        """Return the cloud of a node, as several regions do: this one."""
        del node
        return self

    def listen(self, wake: Callable[[], None]) -> None:
        """Receive spot warnings from the queue of the settings, if there is one; `wake` requests a tick."""
        self._wake = wake
        if self.settings.queue_url and self._listener is None:
            self._listener = Listener(self._queue(), self._say)

    def _queue(self) -> InterruptionQueue:
        return InterruptionQueue(self.calls, self.settings.queue_url, self.notices, self._wake)

    def rehearse_end(self, node: NodeId) -> float | None:
        """Handle a spot warning of a node as if it came from the queue; EC2 itself leaves the node alone."""
        if not self._touches or node not in self._live:
            return None
        self._queue().take([spot_warning(instance_of(node), self._clock.now())])
        return self.notices.ends_by(instance_of(node))

    def refresh(self) -> None:
        """Refresh prices, quotas, zones and the list of images that are getting old."""
        self.market.refresh()
        running = [each["InstanceId"] for each in self._instances if each["State"]["Name"] == "running"]
        self.health.refresh(running)
        self.rules.refresh(self.settings.queue_url)
        self.roles.refresh()
        self.launcher.refresh()
        if self._touches:
            self.rehearsals.refresh(self._rehearsed(), running, in_turn=not self.settings.queue_url)
        self._images.refresh(lambda: own_images(self.calls), now=self._clock.now())

    def standing(self) -> Extras:
        """Return what images and reservations cost per hour at most, used or not, as last listed."""
        used = Counter(
            pool
            for each in self._instances
            if (pool := reservation_of(each)) and each["State"]["Name"] in ("pending", "running")
        )
        try:
            found = (
                ("images", most_usd_per_hour(self._images.value or (), self.settings)),
                ("reservations", self.market.reserved_usd_per_hour(used)),
            )
        except MissingPrice:
            # Without prices of the region nothing is rented there, so no cap can be broken.
            return ()
        return tuple((kind, usd) for kind, usd in found if usd)

    def ages(self) -> Mapping[str, float | None]:
        """Return the age of each cached fact in seconds; None for a fact that is not known."""
        found = self.market.ages() | self.launcher.ages()
        found["instances"] = self.quiet.age_seconds(self._clock.now())
        found["credentials"] = self.calls.session_age_seconds()
        if self.health.as_of is not None or self.health.failed:
            found["status checks"] = self.health.age_seconds()
        if self._images.value:
            found["own images"] = self._images.age_seconds(self._clock.now())
        return found

    def nets(self) -> Mapping[str, Callable[[], str]]:
        """Return each safety net and fact from outside by name, with what says why it is lost, if it is."""
        return {
            "credentials": lambda: self.calls.credentials_fault,
            "spot warnings": lambda: "" if self._listener is None else self._listener.fault,
            "event rules": lambda: self.rules.fault,
            "roles": lambda: self.roles.fault,
            "leases": lambda: self.leases.fault,
            "schedules": lambda: self.pool.fault,
            "status checks": lambda: self.health.failed,
            "own images": lambda: self._images.failed,
            "side prices": self._side_prices_fault,
            "images": self._images_fault,
            "subnets": lambda: self.launcher.faults().get("subnets", ""),
            "routes": lambda: self.launcher.faults().get("routes", ""),
            "launches": lambda: self.rehearsals.launch_fault,
            "ends": lambda: self.releaser.fault or self.rehearsals.end_fault,
            "tags": self._tags_fault,
            "bucket": lambda: "" if self._claim is None else self._claim.fault,
            **self.market.nets(),
        }

    def _side_prices_fault(self) -> str:
        try:
            extras_of(self.settings)
        except MissingPrice as error:
            return f"nothing can be rented: {error}"
        return ""

    def _images_fault(self) -> str:
        found = self.launcher.faults().items()
        return "; ".join(f"{name}: {said}" for name, said in found if name.startswith("image "))

    def _tags_fault(self) -> str:
        """Return which instances have lost tags that we find and bill them by, or have copies of them."""
        return "; ".join([*self._altered.values(), *self._copies.values()])

    def _rehearsed(self) -> list[Offer]:
        """Return one offer of each type to rehearse a launch of, at no known price."""
        found = {offer.instance_type: offer for offer in reversed(self.market.known_offers())}
        return [offer for offer in found.values() if offer.zone != "unknown"]

    def use(self, settings: AwsSettings) -> None:
        """Take over the keys of `RELOADED` from new settings; the others stay as they were at the start."""
        changed = self.settings.model_copy(update={name: getattr(settings, name) for name in RELOADED})
        for user in (self, self.calls, self.market):
            user.settings = changed
        self.market.take_price_file()
        self.launcher.use(changed)

    def ask_anew(self) -> None:
        """Ask for every fact again: credentials, images, subnets, zones, prices, quotas, reservations."""
        self.calls.renew()
        self.quiet.stir()
        self.market.forget("all")
        self.launcher.forget()
        self.health.forget()
        self.rehearsals.forget()
        self.roles.forget()
        self._images.forget()

    def news(self) -> Sequence[tuple[str, str]]:
        """Return what happened to instances and reservations since the last call: a key and a sentence."""
        found = []
        while self._news:
            found.append(self._news.popleft())
        return found

    def _tell_of_market(self, key: str, sentence: str) -> None:
        self._say(sentence)
        self._news.append((key, sentence))

    def _alarm(self, sentence: str) -> None:
        self._tell_of_market(f"{sentence.partition(' ')[0]}:not ended", sentence)

    def _may_be_ours(self, instance: str) -> bool:
        """Whether a notice may be about an instance of ours: EventBridge sends those of all others, too.

        Right after a launch the listing may not show its instances yet.
        """
        return (
            not self._has_listed
            or instance in self._lives
            or self._clock.now() - self._launched_at < YOUNG_SECONDS
        )

    def efa_cards(self, node: NodeId) -> tuple[int, str]:
        """Return how many EFA cards a node must show, from its launch tag, or why none are checked."""
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
        """Stop the listener of the queue."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def remember(self, nodes: Iterable[NodeState]) -> None:
        """Take over the nodes that an earlier process knew as live, so that each of them is billed."""
        live = {node.id: node for node in nodes if node.ended_at is None}
        self._live.update(live)
        self._ran |= {node.id for node in live.values() if node.phase != "requested"}
        self._known |= {instance_of(name) for name in live}
        self._lives |= {instance_of(name): life_of(name) for name in live}
        self._types |= {instance_of(name): node.instance_type.name for name, node in live.items()}
        self._wanted |= live.keys()
        self.topology.remember(live.values())

    def nodes(self) -> Sequence[NodeState]:
        """Return our nodes as EC2 lists them; repeat orders to end or stop that had no effect yet.

        Raises:
            CallFailed: when EC2 cannot be asked: no list is not an empty list.
        """
        now = self._clock.now()
        listed = None
        if not self._missing:
            listed = self.quiet.listing(now, notices=self.notices.count, is_told=self._is_told)
        if listed is None:
            listed = instances_of(self.calls, self.settings.cluster)
            now = self._clock.now()
            self.quiet.keep(listed, now)
        instances = [self._as_recorded(each) for each in self._ours(listed, now)]
        self._keep_spot_prices(instances)
        found = self._take_in(instances, now)
        missing = self._live.keys() - found.keys()
        # An instance missing from the list may still exist: describe it by its id.
        asked = instances_by_id(
            self.calls, [instance_of(name) for name in missing if self._is_sought(name, now)]
        )
        self._note_untagged(asked)
        asked = [self._as_recorded(each) for each in asked]
        instances += asked
        found |= self._take_in(asked, now)
        self._look_for(missing - found.keys(), now)
        if self._touches:
            self.releaser.follow_up({each["InstanceId"]: each["State"]["Name"] for each in instances})
            self._end_overdue(instances, now)
            self._finish_stops(instances)
        self._note_ends(instances, now)
        self._has_listed = True
        self._instances = instances
        built = (each for each in instances if BUILD_TAG in tags_of_instance(each))
        # The lease of an image builder is not renewed; a builder that outlives it is a leak.
        self._builders = frozenset(each["InstanceId"] for each in built)
        self._forget(found, now)
        self._live = self.topology.placed(self._live, instances)
        return [*self._live.values(), *self._ended.values()]

    def _keep_spot_prices(self, instances: Sequence[Mapping[str, Any]]) -> None:
        """Have the history of spot prices begin at the launch of our oldest spot node."""
        launched = [node.launched_at for node in self._live.values() if node.market == "spot"]
        launched += [
            float(each["LaunchTime"].timestamp())
            for each in instances
            if each.get("InstanceLifecycle") == "spot"
        ]
        self.market.keep_spot_since(min(launched, default=None))

    @property
    def _is_told(self) -> bool:
        """Whether a queue that works tells of every change of an instance's state."""
        listener = self._listener
        return listener is not None and not listener.fault and self.rules.is_well

    def _finish_stops(self, instances: Sequence[Mapping[str, Any]]) -> None:
        """Repeat orders to stop that had no effect, as after a crash; end nodes that do not stop."""
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
        """End instances that stay in a state for longer than its row in `node_states` allows."""
        overdue: list[str] = []
        for instance in instances:
            name, state = instance["InstanceId"], instance["State"]["Name"]
            if name in self.releaser.asked:
                continue
            why = self._why_overdue(instance, state, now)
            if why:
                self._tell(name, why.partition(" for ")[0], f"{name} ({instance['InstanceType']}): {why}")
                if state != "shutting-down":
                    overdue.append(name)
                if state == "pending":
                    self._ended_pending.add(name)
        if overdue:
            self.releaser.terminate(overdue)

    def _why_overdue(self, instance: Mapping[str, Any], state: str, now: float) -> str:
        """Return why an instance has been in its state for too long; empty if it has not."""
        name, launched_at = instance["InstanceId"], instance["LaunchTime"].timestamp()
        if state == "running":
            if now - (self.notices.ends_by(name) or now) > OVERDUE_SECONDS:
                return "EC2 announced its end, but it still runs: ending it"
            fault = self.health.fault(name)
            is_due = fault is not None and now - fault.leave_at > WARNING_SECONDS + OVERDUE_SECONDS
            if fault is not None and is_due and not self._is_built(instance):
                return f"{fault.why}: ending it"
        if state == "pending" and now - launched_at > PENDING_SECONDS:
            return f"pending for {now - launched_at:.0f} s: ending it"
        node = self._live.get(life_named(name, self._lives.get(name, 1)))
        if state == "stopping" and node is not None and now - node.launched_at > STOPPING_SECONDS:
            return f"stopping for {now - node.launched_at:.0f} s: ending it"
        since = self._stopped_at.get(life_named(name, self._lives.get(name, 1)))
        if state == "shutting-down" and since is not None and now - since > SHUTDOWN_SECONDS:
            return f"shutting down for {now - since:.0f} s: it counts as a node until EC2 says terminated"
        return ""

    def _is_built(self, instance: Mapping[str, Any]) -> bool:
        return BUILD_TAG in tags_of_instance(instance)

    def _tell(self, name: str, what: str, sentence: str) -> bool:
        """Say something about an instance once, in the log and as an alert; return whether it is news."""
        if (name, what) in self._told:
            return False
        self._told.add((name, what))
        self._say(sentence)
        self._news.append((f"{name}:{what}", sentence))
        return True

    def _note_ends(self, instances: Sequence[Mapping[str, Any]], now: float) -> None:
        """Say why instances left us, and take those that never ran as refusals of their offers."""
        if len(self._told) > MOST_TOLD:
            listed = {each["InstanceId"] for each in instances}
            self._told = {each for each in self._told if each[0] in listed}
        for instance in instances:
            self._tell_of_tenancy(instance)
            name, state = instance["InstanceId"], instance["State"]["Name"]
            life = self._lives.get(name, 1)
            node = self._ended.get(life_named(name, life))
            self._note_interruption(instance, now)
            if was_stopped_by_others(instance, life):
                said = f"{name} was stopped, and not by us: {reason_sentence(instance)}. Its bill ended, its "
                if self._tell(name, f"stopped {life}", f"{said}jobs go on elsewhere"):
                    self._count_interference(instance, life - 1, now)
            elif state in ("shutting-down", "terminated") and self._is_ended_by_others(instance, life):
                said = f"{name} ({instance['InstanceType']}) was ended, and not by us: "
                said += f"{reason_sentence(instance)}. Its bill ended, its jobs go on elsewhere"
                if self._tell(name, "ended", said):
                    self._count_interference(instance, life, now)
            elif state == "running":
                key = _offer_of(instance)
                if now - instance["LaunchTime"].timestamp() > EARLY_SECONDS:
                    self._failures.pop(key, None)
                    self._interferences.pop(key, None)
            elif state == "terminated" and node is not None and (name, "ended") not in self._told:
                self._note_end(instance, node, now)

    def _note_interruption(self, instance: Mapping[str, Any], now: float) -> None:
        """Rest the offer of a spot node that EC2 takes back right after its launch."""
        name, launched_at = instance["InstanceId"], instance["LaunchTime"].timestamp()
        if instance.get("InstanceLifecycle") != "spot" or (name, "interrupted") in self._told:
            return
        ends_by, at = self.notices.ends_by(name), None
        if ends_by is not None:
            at = ends_by - WARNING_SECONDS
        elif state_reason(instance) == TAKEN_BACK:
            at = ended_at(instance) or now
        if at is None:
            return
        self._told.add((name, "interrupted"))
        if self._has_listed and at - launched_at < EARLY_SECONDS and not self._is_built(instance):
            zone = instance.get("Placement", {}).get("AvailabilityZone", "")
            offer = Offer(instance_type=instance["InstanceType"], zone=zone, market="spot")
            order = tags_of_instance(instance).get(INTENT_TAG, "")
            said = f"EC2 took it back {max(at - launched_at, 0.0):.0f} s after its launch"
            self._count_failure(offer, order, TAKEN_BACK, said)

    def _note_end(self, instance: Mapping[str, Any], node: NodeState, now: float) -> None:
        """Say why an instance ended without us; rest its offer if the launch has failed."""
        name, code = instance["InstanceId"], state_reason(instance)
        self._told.add((name, "ended"))
        launched_at, left_at = instance["LaunchTime"].timestamp(), node.ended_at or now
        is_run = life_of(node.id) % 2 == 1
        is_free = is_run and node.ended_at == node.launched_at and not node.prices[0][1]
        is_early = code == "Client.InstanceInitiatedShutdown" and left_at - launched_at < EARLY_SECONDS
        if not self._has_listed or self._is_built(instance):
            # What had ended before this process began says nothing of the offer today.
            return
        said = reason_sentence(instance)
        if not (is_free or is_early):
            if code and code != "Client.UserInitiatedShutdown":
                self._say(f"{name} ({instance['InstanceType']}) was ended, and not by us: {said}")
            return
        offer = Offer(instance_type=instance["InstanceType"], zone=node.zone, market=node.market)
        self._count_failure(offer, node.launched_by, code, said)
        if "napshot" in code or "InternalError" in code:
            # The image may have been replaced, with its key or its snapshot.
            self.launcher.forget()
        cost = "it never ran, and costs nothing" if is_free else "it ended itself right after its launch"
        self._say(f"{name} ({offer.key}): {cost}: {said}")

    def _count_failure(self, offer: Offer, order: str, code: str, said: str) -> None:
        """Rest an offer for a launch that failed after EC2 had accepted it."""
        times = self._counted(self._failures, offer, order)
        self._failed.append((offer.key, refusal_of_end(code, said, offer, self.market, times=times)))

    def _counted(self, counts: Counter[str], offer: Offer, order: str) -> int:
        """Return how often this has happened to an offer; the nodes of one launch count once."""
        if (order, "failed") not in self._told:
            counts[offer.key] += 1
            self._told.add((order, "failed"))
        return counts[offer.key]

    def _is_ended_by_others(self, instance: Mapping[str, Any], life: int) -> bool:
        """Whether a person or a program of the house has ended an instance that this process saw alive.

        What EC2 takes back, and what ends itself, is another matter.
        """
        name = instance["InstanceId"]
        was_seen = any(life_named(name, life) in seen for seen in (self._pending_at, self._ready_at))
        is_ours = self.releaser.has_asked(name) or self._is_built(instance)
        return was_seen and not is_ours and state_reason(instance) in OF_PEOPLE

    def _count_interference(self, instance: Mapping[str, Any], life: int, now: float) -> None:
        """Rest the offer of nodes that others end or stop right after their start, from the second on.

        A person may end one; a clean-up rule of the house ends each that takes its place, too. What EC2
        stops, such as hardware that it retires, says nothing of the next node.
        """
        if state_reason(instance) not in OF_PEOPLE:
            return
        if now - instance["LaunchTime"].timestamp() > EARLY_SECONDS + self.quiet.most_seconds:
            return
        name = life_named(instance["InstanceId"], life)
        run = self._ended.get(name) or self._live.get(name)
        if run is None or (run.ended_at or now) - run.launched_at > EARLY_SECONDS:
            return
        offer = Offer(instance_type=instance["InstanceType"], zone=run.zone, market=run.market)
        times = self._counted(self._interferences, offer, run.launched_by) - 1
        if times > 0:
            code, said = state_reason(instance), reason_sentence(instance)
            self._failed.append((offer.key, refusal_of_end(code, said, offer, self.market, times=times)))

    def _not_started(self, instance: Mapping[str, Any], node: NodeState) -> NodeState:
        """Return a run that never began, at no cost: EC2 accepted the start and stopped it again."""
        offer = Offer(instance_type=instance["InstanceType"], zone=node.zone, market=node.market)
        self._failures[offer.key] += 1
        said, times = reason_sentence(instance), self._failures[offer.key]
        refused = refusal_of_end(state_reason(instance), said, offer, self.market, times=times)
        self._failed.append((offer.key, refused))
        self._tell(
            instance["InstanceId"], f"stopped {life_of(node.id) + 1}", f"{node.id}: not started: {said}"
        )
        return replace(node, ended_at=node.launched_at, prices=((node.launched_at, 0.0),), extras=())

    def failed_launches(self) -> Sequence[tuple[str, Refused]]:
        """Return the launches that EC2 accepted and that failed since the last call, by offer."""
        found, self._failed = self._failed, []
        return found

    def _take_in(self, instances: Sequence[Mapping[str, Any]], now: float) -> dict[NodeId, NodeState]:
        """Update our records from descriptions and return them as nodes; a listed live node never ended."""
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
                    self._say(f"{name} was recorded as ended, and EC2 lists it again: its bill goes on")
            else:
                if name in self._live or name not in self._ended:
                    self._await_prices(node)
                self._ended[name] = node
                self._live.pop(name, None)
        return found

    def _end_life_before(self, instance: Mapping[str, Any], node: NodeState) -> None:
        """End an instance's previous life if the instance is in another one now; that bill is final."""
        name, life = instance_of(node.id), life_of(node.id)
        known, self._lives[name] = self._lives.get(name), life
        before = life_named(name, life - 1 if known is None else known)
        if before == node.id:
            return
        if before in self._live:
            ended = self._live.pop(before)
            at = max(node.launched_at, ended.launched_at)
            ended = replace(ended, phase="terminated", ended_at=at, idle_since=None)
            may_have_run = self._may_have_run(before, ended.launched_at, until=at)
            if life % 2 == 0 and not may_have_run and failed_to_start(instance):
                ended = self._not_started(instance, ended)
            self._await_prices(ended)
            self._ended[before] = ended
        elif before not in self._ended and (found := life_before(instance, node, self._kinds)) is not None:
            self._ended[found.id] = found

    def _ours(self, listed: Sequence[dict[str, Any]], now: float) -> list[dict[str, Any]]:
        """Return the instances that our database rented or knows; note if the cluster is another daemon's."""
        known = self._known | {instance_of(name) for name in (*self._live, *self._ended)}
        listed = self._without_copies(listed, known)
        if not self._touches:
            return listed
        ours, self._elsewhere = own_instances(
            listed, known=known, ledger_id=self._ledger_id, cluster=self.settings.cluster, now=now
        )
        return ours

    def _without_copies(
        self, listed: Sequence[dict[str, Any]], known: Collection[NodeId]
    ) -> list[dict[str, Any]]:
        """Return the instances without those that others made with copies of our tags; note these."""
        unknown = [each for each in listed if each["InstanceId"] not in known]
        others = {each["InstanceId"]: made for each in unknown if (made := made_by_others(each))}
        self._copies = {
            each["InstanceId"]: copied_sentence(each, others[each["InstanceId"]], self.settings.cluster)
            for each in unknown
            if each["InstanceId"] in others and each["State"]["Name"] in _LIVING
        }
        return [each for each in listed if each["InstanceId"] not in others]

    def elsewhere(self) -> str:
        """Return why the cluster is another daemon's, from the listing and the claim; empty if it is ours."""
        if self._elsewhere or self._claim is None or not self._touches:
            return self._elsewhere
        return self._claim.hold()

    def renew(self, nodes: Collection[NodeId]) -> None:
        """Renew the leases of these nodes, as of the last listing; the leases of all other nodes run out."""
        self._wanted = frozenset(nodes) - self._builders
        # The leases of a listing that is used again may have been renewed since.
        if self._touches and self.quiet.is_fresh:
            names = {instance_of(name) for name in self._wanted}
            wanted = [each for each in self._instances if each["InstanceId"] in names]
            self.leases.renew(wanted, now=self._clock.now())
            self.quiet.is_fresh = False

    def offers(self) -> Sequence[Offer]:
        """Return the offers of the region at cached prices, less what our nodes use of the quotas."""
        try:
            offers = self.market.offers(self._vcpus_in_use())
            self._complain_of_prices()
            return offers
        except (CallFailed, MissingPrice) as error:
            self._say(f"nothing can be rented now: {error}")
            # Offers without a price are not rented, and "no price" is the reason that jobs are told.
            return [Offer(instance_type=name, zone="unknown") for name in self.settings.instance_types]

    def _complain_of_prices(self) -> None:
        """Say which types have no price in the region, and the command that mends it; once per change."""
        said = self.market.unpriced()
        if said != self._unpriced:
            self._unpriced = said
            for sentence in said:
                self._say(f"{sentence}. {how_to_price(self.settings)}")

    def notes(self) -> Sequence[str]:
        """Return sentences on types without a price, and on reservations that are paid for and idle."""
        how = how_to_price(self.settings)
        return [
            *(f"{said}. {how}" for said in self._unpriced),
            *self._unwell(),
            *self.market.idle(),
            *self.market.changes(),
        ]

    def _unwell(self) -> list[str]:
        """Return a sentence on each running instance with a failed check or a scheduled event."""
        found = []
        for instance in self._instances:
            fault = self.health.fault(instance["InstanceId"])
            if fault is not None and instance["State"]["Name"] == "running":
                when = datetime.fromtimestamp(fault.leave_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
                found.append(
                    f"{instance['InstanceId']} ({instance['InstanceType']}): {fault.why}: its jobs leave at "
                    f"{when}, and another node takes its place"
                )
        return found

    def idle_usd_per_hour(self) -> float:
        """Return what the free nodes of reservations and blocks cost per hour."""
        return self.market.idle_usd_per_hour()

    def _await_prices(self, node: NodeState) -> None:
        """Note that a node has ended whose last prices may not be known yet; who observes bills none."""
        if self._touches:
            self.market.await_prices(node)

    def price_version(self) -> int:
        """Return a number that grows with each new list price."""
        return self.market.price_version()

    def lately_priced(self) -> Mapping[NodeId, float]:
        """Return when the ended nodes ended whose prices were not known then and are known now."""
        return self.market.lately_priced()

    def amended(self, nodes: Sequence[NodeState]) -> Sequence[NodeState]:
        """Return the nodes that have ended and cost otherwise, by what is known now, than they say."""
        return self.market.amended(nodes)

    def bills_are_right(self, nodes: Iterable[NodeId]) -> None:
        """Note that the bills of these nodes are final by what is known now."""
        self.market.bills_are_right(nodes)

    def price_documents(self) -> Mapping[str, str]:
        """Return what the next process must know of prices, as texts by key."""
        region = self.settings.region
        return {f"{region} {key}": text for key, text in self.market.documents().items()}

    def restore_prices(self, documents: Mapping[str, str]) -> None:
        """Take over what an earlier process knew of the prices of this region."""
        own = f"{self.settings.region} "
        self.market.restore(
            {key.removeprefix(own): text for key, text in documents.items() if key.startswith(own)}
        )

    def list_prices(self) -> Mapping[str, float]:
        """Return the region's prices on demand in USD per hour, by type; types without one are left out."""
        names = self.settings.instance_types
        return {name: usd for name in names if (usd := self.market.list_price(name)) is not None}

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Start stopped nodes and rent the rest; a repeated action id asks for the same nodes."""
        self.quiet.stir()
        self._launched_at = self._clock.now()
        if not action.starts:
            return self.launcher.launch(action)
        stopped = [name for name, node in self._live.items() if node.phase == "stopped"]
        again = [name for name in stopped if name in action.starts and self._may_start(name)]
        outcome = self.pool.launch(action, again, self.launcher.launch)
        # Do not start them once more before the next listing.
        for name in again:
            self._live[name] = replace(self._live[name], phase="terminating")
        return outcome

    def _may_start(self, name: NodeId) -> bool:
        """Whether a stopped node may be started: without a warm pool not one that others have stopped."""
        if self.settings.warm_pool_nodes:
            return True
        instance, life = instance_of(name), life_of(name)
        return not any(
            each["InstanceId"] == instance and was_stopped_by_others(each, life) for each in self._instances
        )

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """End nodes that the listing showed as ours; refuse others, and accept those that ended already."""
        self.quiet.stir()
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
        """Stop a running on-demand node; return whether it was stopped. The caller ends one that was not."""
        node = self._live[name]
        if node.phase == "stopped" or node.market != "on-demand":
            return False
        said = self.pool.stop([name])[name]
        if isinstance(said, Refused):
            self._say(f"{name} cannot be stopped, and is ended: {said.reason}")
            return False
        outcomes[name] = said
        return True

    def sweep(self) -> Mapping[str, str]:
        """Find and end leaks among what has our tag; return a sentence on each by its id.

        Instances whose intent the tick knows are the tick's own. Leaks are instances without an intent,
        instances whose lease has run out, and unattached disks, interfaces and open spot requests.

        Raises:
            CallFailed: when EC2 cannot be asked.
        """
        # A node that the tick wants is no leak: its lease may have run out while AWS could not be reached.
        wanted = {instance_of(name) for name in self._wanted}
        leaks = tuple(
            found
            for found in self.sweeper.find()
            if found.leak and not found.is_ending and found.id not in wanted
        )
        failed = self.sweeper.release(leaks) if self._touches else {}
        self.releaser.note([leak.id for leak in leaks])
        for name, why in failed.items():
            self._say(f"{name} is a leak and could not be ended: {why}")
        return {leak.id: f"{leak.kind} {leak.id} in {leak.region}: {leak.leak}" for leak in leaks}

    def _node(self, instance: Mapping[str, Any], now: float) -> NodeState:
        """Return an instance as a node, from the listing, our own records and the notices."""
        of_instance, state = instance["InstanceId"], instance["State"]["Name"]
        life = self._after_restart(instance, life_now(instance, self._lives.get(of_instance)))
        name, launched_at = life_named(of_instance, life), instance["LaunchTime"].timestamp()
        if state == "pending":
            self._pending_at[name] = now
        elif state == "running":
            self._ran.add(name)
            self._ready_at.setdefault(name, launched_at if not self._live else now)
        elif state in ("shutting-down", "terminated"):
            self._stopped_at.setdefault(name, now)
        if state in _LIVING:
            self._stopped_at.pop(name, None)
        prices: Sequence[tuple[float, float]] = ()
        if instance.get("InstanceLifecycle") == "spot":
            zone = instance.get("Placement", {}).get("AvailabilityZone", "")
            before = self._live.get(name) or self._ended.get(name)
            known = () if before is None else before.prices
            prices = self.market.spot_path(instance["InstanceType"], zone, known)
        told = self.notices.ended_at(of_instance) or 0.0
        # A notice about an earlier run or a stop says nothing about this life.
        stopped_at = told if told >= launched_at and life % 2 else self._stopped_at.get(name)
        until = ended_at(instance) or stopped_at or now
        is_leaving = of_instance in self.releaser.asked or name in self.pool.asked
        ends_by = self.notices.ends_by(of_instance)
        if tags_of_instance(instance).get(MARKET_TAG) == "reserved":
            pool = reservation_of(instance)
            prices = self.market.reserved_prices(instance["InstanceType"], pool)
            ends_by = ends_by or self.market.taken_back_at(instance["InstanceType"], pool)
        fault = self.health.fault(of_instance) if state == "running" else None
        if fault is not None:
            self._tell(of_instance, fault.why, f"{of_instance} ({instance['InstanceType']}): {fault.why}")
            if now >= fault.leave_at:
                ends_by = min(fault.leave_at + WARNING_SECONDS, ends_by or float("inf"))
        if BUILD_TAG in tags_of_instance(instance) and state in _LIVING:
            is_leaving, ends_by = True, lease_of(instance)
        return as_life(
            instance,
            life,
            known=self._live.get(name),
            now=now,
            kinds=self._kinds,
            spot_prices=prices,
            charged=partial(self._charged, self._live.get(name)),
            is_leaving=is_leaving or is_stop_open(instance, life),
            ends_by=ends_by,
            ready_at=self._ready_at.get(name),
            may_have_run=self._may_have_run(name, launched_at, until=until),
            is_ended_pending=of_instance in self._ended_pending,
            stopped_at=stopped_at,
        )

    def _charged(self, known: NodeState | None, name: str, path: PricePath) -> PricePath:
        """Return what a node on demand is charged over time: what was known of it, and later list prices."""
        before = () if known is None else tuple(each for each in known.prices if each[1] >= LEAST_PRICE)
        return self.market.charged(name, before or path)

    def _after_restart(self, instance: Mapping[str, Any], life: int) -> int:
        """Return the life of an instance, the next run if somebody stopped and started it between two looks.

        EC2 then lists it as running since the start. When it was stopped is not known: the earlier run is
        billed up to the start.
        """
        of_instance = instance["InstanceId"]
        known = self._live.get(life_named(of_instance, life))
        is_run = life % 2 == 1 and instance["State"]["Name"] in ("pending", "running")
        if known is None or not is_run or known.id not in self._ran:
            return life
        seconds = instance["LaunchTime"].timestamp() - known.launched_at
        if seconds <= RESTART_SECONDS:
            return life
        self._tell(
            of_instance,
            f"restarted {life}",
            f"{of_instance} ({instance['InstanceType']}) was stopped and started again, and not by us: its "
            "jobs begin again from their checkpoints, and its bill goes on",
        )
        return life + 2

    def _may_have_run(self, name: NodeId, launched_at: float, *, until: float) -> bool:
        """Whether a life was seen or told to run, or was not looked at for so long that it may have run."""
        if (self.notices.ran_at(instance_of(name)) or 0.0) >= launched_at:
            self._ran.add(name)
        return name in self._ran or until - self._pending_at.get(name, launched_at) > UNSEEN_SECONDS

    def _is_sought(self, name: NodeId, now: float) -> bool:
        """Whether a node was missing from listings for long enough to be described by its id."""
        since, listings = self._missing.get(name, (now, 0))
        return name in self._untagged or (listings >= 1 and now - since >= SOUGHT_SECONDS)

    def _note_untagged(self, asked: Sequence[Mapping[str, Any]]) -> None:
        """Note the instances that only their ids find: somebody has changed the tag of the cluster."""
        cluster = self.settings.cluster
        for instance in asked:
            tags, name = tags_of_instance(instance), instance["InstanceId"]
            if instance["State"]["Name"] in _LIVING and tags.get(CLUSTER_TAG) != cluster:
                self._untagged.add(name)
                self._altered[name] = (
                    f"{name} has lost its tag {CLUSTER_TAG}={cluster}: rights that go by the tag do not "
                    f"reach it, so it may be billed on. Put it back: aws ec2 create-tags --resources {name} "
                    f"--tags Key={CLUSTER_TAG},Value={cluster}"
                )

    def _as_recorded(self, instance: dict[str, Any]) -> dict[str, Any]:
        """Return an instance with the tags that we know it by, whatever somebody has made of them since.

        Price, extras, market and order of a run are written once, by its launch or start. A changed tag
        would change the bill, which EC2 does not.
        """
        name, tags = instance["InstanceId"], tags_of_instance(instance)
        if tags.get(CLUSTER_TAG) == self.settings.cluster:
            self._untagged.discard(name)
            self._altered.pop(name, None)
        instance = self._at_price_of_its_type(instance)
        tags = tags_of_instance(instance)
        node = self._live.get(life_named(name, self._lives.get(name, 1)))
        if node is None or life_of(node.id) % 2 == 0 or instance["State"]["Name"] in ("stopping", "stopped"):
            return instance
        own = {
            INTENT_TAG: node.launched_by,
            MARKET_TAG: node.market if node.market != "spot" else tags.get(MARKET_TAG, "spot"),
            EXTRAS_TAG: tag_of(node.extras),
        }
        is_of_type = node.instance_type.name == instance["InstanceType"] and node.market == "on-demand"
        if is_of_type and node.prices and node.prices[0][1] >= LEAST_PRICE:
            own[PRICE_TAG] = f"{node.prices[0][1]:.6g}"
        own = {key: value for key, value in own.items() if value and not _is_same(tags.get(key, ""), value)}
        if not own:
            return instance
        said = ", ".join(f"{key} is {tags.get(key) or 'gone'} and was {was}" for key, was in own.items())
        self._altered[name] = (
            f"{name}: somebody has changed its tags: {said}. BOA goes on with what it has recorded; "
            "after a loss of its database only the tags would tell: put them back"
        )
        return instance | {"Tags": [{"Key": key, "Value": value} for key, value in (tags | own).items()]}

    def _at_price_of_its_type(self, instance: dict[str, Any]) -> dict[str, Any]:
        """Return an instance at the price of its type; its tag has that of the type that was launched.

        A person may change the type of a stopped instance, and start it.
        """
        name, listed = instance["InstanceId"], str(instance["InstanceType"])
        first = self._types.setdefault(name, listed)
        if listed == first or instance.get("InstanceLifecycle") == "spot":
            return instance
        usd = self._usd_of_type(listed)
        self._tell(
            name,
            f"became {listed}",
            f"{name} was a {first}, and somebody has made it a {listed}: it costs "
            f"{in_dollars(usd)}/hour from its start on, and is ended when no job needs it",
        )
        tags = tags_of_instance(instance) | {PRICE_TAG: f"{usd:.6g}"}
        return instance | {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}

    def _usd_of_type(self, name: str) -> float:
        """Return the price on demand of any type, or the dearest that is known."""
        listed = self.market.list_price(name) if name in self._catalog.entries else None
        return a_type(name, self._kinds, None).usd_per_hour if listed is None else listed

    def _tell_of_tenancy(self, instance: Mapping[str, Any]) -> None:
        """Tell that EC2 charges an instance otherwise than we count, for where it was placed."""
        tenancy = str(instance.get("Placement", {}).get("Tenancy") or "default")
        if tenancy != "default" and instance["State"]["Name"] in ("pending", "running"):
            self._tell(
                instance["InstanceId"],
                f"is {tenancy}",
                f"{instance['InstanceId']} has tenancy {tenancy}: EC2 charges about a tenth more than BOA "
                "counts, and $2/hour for the region while any such instance runs. A VPC whose tenancy is "
                "dedicated makes all its instances so: "
                "aws ec2 modify-vpc-tenancy --instance-tenancy default --vpc-id ...",
            )

    def _is_long_gone(self, name: NodeId, now: float) -> bool:
        """Whether a node was missing from listings for long enough to count as gone."""
        since, listings = self._missing.get(name, (now, 0))
        is_young = now - self._live[name].launched_at < YOUNG_SECONDS
        return listings >= 1 and now - since >= GONE_SECONDS and not is_young

    def _look_for(self, missing: Iterable[NodeId], now: float) -> None:
        """End nodes that two listings, a minute apart, did not show; not while they are young."""
        for name in missing:
            since, listings = self._missing.get(name, (now, 0))
            is_gone, node = self._is_long_gone(name, now), self._live[name]
            self._missing[name] = (since, listings + 1)
            if not is_gone:
                continue
            end = max(self.notices.ended_at(name) or since, node.launched_at)
            self._ended[name] = replace(node, phase="terminated", ended_at=end, idle_since=None)
            self._await_prices(self._ended[name])
            self._say(f"{name} is missing from EC2's list: its bill ended {now - end:.0f} s ago")
            del self._live[name], self._missing[name]

    def _vcpus_in_use(self) -> Mapping[str, int]:
        """Return how many vCPUs our live nodes use of each quota, by its code."""
        used: Counter[str] = Counter()
        for node in self._live.values():
            entry = self._catalog.entries.get(node.instance_type.name)
            if entry is not None and node.phase != "stopped":
                used[self.market.quota_code(entry.name, node.market)] += entry.vcpus
        return used

    def _forget(self, found: Mapping[NodeId, NodeState], now: float) -> None:
        """Drop records of nodes that ended over an hour ago and that EC2 no longer lists."""
        living = {instance_of(name) for name in self._live}
        for name in [name for name in self._altered if name not in living]:
            del self._altered[name]
        self._untagged &= living
        self._types = {name: kind for name, kind in self._types.items() if name in living}
        for name in [name for name in self._ended if name not in found]:
            if now - (self._ended[name].ended_at or now) > 3600.0:
                del self._ended[name]
                self._ran.discard(name)
                self._pending_at.pop(name, None)
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


def _is_same(tag: str, value: str) -> bool:
    """Whether a tag says what was recorded: numbers by their value, as dollars of extras are rounded."""
    try:
        return tag == value or extras_in(tag) == extras_in(value) is not None or float(tag) == float(value)
    except ValueError:
        return False


def _offer_of(instance: Mapping[str, Any]) -> str:
    """Return the key of the offer that an instance was launched from."""
    is_spot = instance.get("InstanceLifecycle") == "spot"
    market = "spot" if is_spot else tags_of_instance(instance).get(MARKET_TAG, "on-demand")
    return f"{instance['InstanceType']}/{instance.get('Placement', {}).get('AvailabilityZone', '')}/{market}"
