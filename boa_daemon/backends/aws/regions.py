"""Several regions as one cloud: an `AwsCloud` for each, with one list of nodes and of offers.

The home region has bucket, queues and roles. A machine of a further region is a machine of its own in the
plan, `g5.xlarge~sa-east-1`, with the region's price: so no job spans two regions, and one that waits for a
machine without stock goes to the same machine elsewhere, as between machines with the same GPU.

A region that does not answer in time is cut off until it does: its nodes stay as they were last seen and cost
money, nothing is rented there, and a launch there whose answer was lost counts as spent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.cloud import BOOT_SECONDS, AwsCloud
from boa_daemon.backends.aws.prices.side_prices import transfer_usd_per_gb
from boa_daemon.backends.region_names import name_in, region_of_zone
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.errors import NOT_SENT, BoaError
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.node_lives import instance_of
from boa_daemon.tick.facts.offers import ANY, Extras, Offer, Scope, scope_of
from boa_daemon.tick.facts.ports import Accepted, Launched, Provider, Refused, Unknown
from boa_daemon.tick.facts.state import NodeState, Transfer
from policies.model import InstanceType, NodeId
from policies.money_text import in_dollars

GB_PER_SECOND = 0.05
"""How fast a checkpoint crosses regions, as assumed: some hundred MB/s between big machines, often less."""
STARTS_PER_HOUR = 1.0
"""How often a node of a further region reads a checkpoint, as assumed for its price."""
PATIENCE_SECONDS = 20.0
"""A region that has not listed its nodes after this time is cut off for this tick."""


class RegionalCloud(Provider):
    """A `Provider` on several regions; `clouds` are by region, the home region first."""

    boot_seconds = BOOT_SECONDS
    root_volume_gib = AwsCloud.root_volume_gib

    def __init__(
        self,
        clouds: Mapping[str, AwsCloud],
        *,
        say: Callable[[str], None] = lambda sentence: None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.clouds, self.home = dict(clouds), next(iter(clouds))
        self._say, self._patience = say, patience_seconds
        self._pool = ThreadPoolExecutor(max_workers=len(clouds), thread_name_prefix="boa-region")
        # Apart from listings, which must not wait for a refresh.
        self._refresher = ThreadPoolExecutor(max_workers=len(clouds), thread_name_prefix="boa-refresh")
        self._refreshes: dict[str, Future[None]] = {}
        self._asked: dict[str, Future[Sequence[NodeState]]] = {}
        self._last: dict[str, list[NodeState]] = {region: [] for region in clouds}
        self._region_of: dict[NodeId, str] = {}
        self._cut_off: dict[str, str] = {}
        self._checkpoint_gb, self._every_hours = 0.0, 1.0
        self._kinds: dict[tuple[InstanceType, str], InstanceType] = {}

    @property
    def settings(self) -> AwsSettings:
        """The settings of the home region."""
        return self.clouds[self.home].settings

    @property
    def calls(self) -> RegionalCalls:
        """The calls of the home region; those about nodes go to the node's own region."""
        return RegionalCalls(self)

    def cloud_of(self, node: NodeId) -> AwsCloud:
        """Return the cloud of a node; that of the home region for an unknown one."""
        return self.clouds[self._region_of.get(instance_of(node), self.home)]

    def why_cut_off(self, region: str) -> str:
        """Return why a region counts as one that does not answer; empty if it answers."""
        return self._cut_off.get(region, "")

    # Listing

    def remember(self, nodes: Iterable[NodeState]) -> None:
        """Take over the nodes that an earlier process knew, each in its region."""
        by_region: dict[str, list[NodeState]] = {}
        for node in nodes:
            region = self._region_of_state(node)
            self._note(node.id, region)
            by_region.setdefault(region, []).append(self._plain_node(node))
            if node.ended_at is None:
                self._last[region].append(node)
        for region, known in by_region.items():
            self.clouds[region].remember(known)

    def nodes(self) -> Sequence[NodeState]:
        """Return the nodes of all regions; those of a region that does not answer as they were last seen.

        Raises:
            CallFailed: when no region answers.
        """
        for region, cloud in self.clouds.items():
            if region not in self._asked:
                self._asked[region] = self._pool.submit(cloud.nodes)
        wait(self._asked.values(), timeout=self._patience)
        failures: list[CallFailed] = []
        for region in self.clouds:
            asked = self._asked[region]
            if not asked.done():
                self._cut(region, f"it has not answered for {self._patience:.0f} s")
                continue
            del self._asked[region]
            try:
                found = asked.result()
            except CallFailed as error:
                failures.append(error)
                self._cut(region, str(error))
                continue
            self._take(region, found)
        if failures and len(self._cut_off) == len(self.clouds):
            raise failures[0]
        return [node for region in self.clouds for node in self._last[region]]

    def _cut(self, region: str, why: str) -> None:
        if region not in self._cut_off:
            self._say(
                f"{region} does not answer: its {len(self._last[region])} nodes stay as last seen: {why}"
            )
        self._cut_off[region] = why

    def _take(self, region: str, found: Sequence[NodeState]) -> None:
        if self._cut_off.pop(region, None) is not None:
            self._say(f"{region} answers again")
        for node in found:
            self._note(node.id, region)
        self._last[region] = [
            replace(node, instance_type=self._kind(node.instance_type, region)) for node in found
        ]

    def _note(self, node: NodeId, region: str) -> None:
        self._region_of[instance_of(node)] = region

    def _region_of_state(self, node: NodeState) -> str:
        return node.instance_type.machine_name.region or region_of_zone(node.zone, self.clouds) or self.home

    def _kind(self, kind: InstanceType, region: str) -> InstanceType:
        """Return a type as the plan names it in a region: the same object each time."""
        if region == self.home:
            return kind
        name = name_in(kind.name, region, home=self.home)
        return self._kinds.setdefault((kind, region), replace(kind, name=name))

    def _plain_node(self, node: NodeState) -> NodeState:
        return replace(node, instance_type=_at_home(node.instance_type))

    # Renting

    def offers(self) -> Sequence[Offer]:
        """Return the offers of all regions; a region that is cut off has no nodes left."""
        found: list[Offer] = []
        for region, cloud in self.clouds.items():
            is_cut, usd = region in self._cut_off, self._transfer_usd_per_hour(region)
            found += (
                replace(
                    _with_transfer(offer, usd),
                    instance_type=name_in(offer.instance_type, region, home=self.home),
                    pool=offer.pool or region,
                    nodes_left=0 if is_cut else offer.nodes_left,
                )
                for offer in (cloud.market.known_offers() if is_cut else cloud.offers())
            )
        return found

    def transfers(self) -> Mapping[str, Transfer]:
        """Return what it takes to bring a checkpoint from the bucket at home to each further machine."""
        usd = transfer_usd_per_gb(self.settings)
        far = Transfer(usd_per_gb=usd, gb_per_second=GB_PER_SECOND, source=self.home)
        return {
            name_in(name, region, home=self.home): far
            for region, cloud in self.clouds.items()
            if region != self.home
            for name in cloud.settings.instance_types
        }

    def expect_checkpoints(self, gigabytes: float, *, every_hours: float) -> None:
        """Count checkpoints of this size in the prices of further regions: read at starts, and saved."""
        self._checkpoint_gb, self._every_hours = gigabytes, max(every_hours, 1e-3)

    def _transfer_usd_per_hour(self, region: str) -> float:
        """Return what a node of a region pays per hour for checkpoints in the home region's bucket.

        A region bills what leaves it: the home region what is read, the node's region what is saved.
        """
        if region == self.home:
            return 0.0
        read = STARTS_PER_HOUR * transfer_usd_per_gb(self.settings)
        saved = transfer_usd_per_gb(self.clouds[region].settings) / self._every_hours
        return round(self._checkpoint_gb * (read + saved), 6)

    def _transfer_notes(self) -> Sequence[str]:
        """Return what checkpoints cost in each further region that has nodes."""
        return [
            f"checkpoints of nodes in {region} cross to and from {self.home}: {self._checkpoint_gb:.3g} GB, "
            f"{in_dollars(usd)} per node and hour, which offers, caps and ledger count"
            for region in self.clouds
            if self._last[region] and (usd := self._transfer_usd_per_hour(region))
        ]

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Rent in the region of the offer; a refusal closes offers of that region alone."""
        region = action.instance_type.machine_name.region or self.home
        if region in self._cut_off:
            reason = f"{region} does not answer: {self._cut_off[region]}"
            return Refused(reason=reason, kind="no-capacity", retry_after_seconds=60.0)
        offer, kind = action.offer, _at_home(action.instance_type)
        if offer is not None:
            pool = "" if offer.pool == region else offer.pool
            offer = replace(offer, instance_type=kind.name, pool=pool)
        outcome = self.clouds[region].launch(replace(action, instance_type=kind, offer=offer))
        if isinstance(outcome, Launched):
            for name in outcome.nodes:
                self._note(name, region)
            short = None if outcome.short is None else self._scoped(outcome.short, region)
            return replace(outcome, short=short)
        return self._scoped(outcome, region) if isinstance(outcome, Refused) else outcome

    def _scoped(self, refused: Refused, region: str) -> Refused:
        """Return a refusal whose scopes name the machines of one region."""
        scopes: list[str] = []
        for scope in refused.scopes:
            own = scope_of(scope)
            every = self.clouds[region].settings.instance_types
            kinds = every if own.instance_type == ANY else (own.instance_type,)
            scopes += [self._named(own.of_type(kind), region) for kind in kinds]
        return replace(refused, scopes=tuple(scopes))

    def hides(self, action: LaunchNodes) -> bool:
        """Return whether a launch may have made nodes in a region that does not answer now."""
        return (action.instance_type.machine_name.region or self.home) in self._cut_off

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """End nodes in their regions; in a region that does not answer the outcome is unknown."""
        outcomes: dict[NodeId, Accepted | Refused | Unknown] = {}
        for region, cloud in self.clouds.items():
            mine = [each for each in actions if self.cloud_of(each.node) is cloud]
            if region in self._cut_off:
                said = Unknown(reason=f"{region} does not answer: {self._cut_off[region]}")
                outcomes |= {each.node: said for each in mine}
            elif mine:
                outcomes |= cloud.terminate(mine)
        return outcomes

    def renew(self, nodes: Collection[NodeId]) -> None:
        """Renew leases in each region that answers."""
        for region, cloud in self.clouds.items():
            if region not in self._cut_off:
                cloud.renew([name for name in nodes if self.cloud_of(name) is cloud])

    # Upkeep

    def listen(self, wake: Callable[[], None]) -> None:
        """Receive the warnings of every region that has a queue."""
        for cloud in self.clouds.values():
            cloud.listen(wake)

    def elsewhere(self) -> str:
        """Return why the nodes of some region are another daemon's; empty if all are ours."""
        return next((said for cloud in self.clouds.values() if (said := cloud.elsewhere())), "")

    def sweep(self) -> Mapping[str, str]:
        """End leaks in every region that answers.

        Raises:
            BoaError: when no region can be asked.
        """
        found: dict[str, str] = {}
        failures: list[BoaError] = []
        for region, cloud in self.clouds.items():
            if region in self._cut_off:
                continue
            try:
                found |= cloud.sweep()
            except BoaError as error:
                failures.append(error)
                self._say(f"{region} could not be searched for leaks: {error}")
        if failures and len(failures) == len(self.clouds):
            raise failures[0]
        return found

    def refresh(self) -> None:
        """Refresh the facts of every region, at the same time: one that hangs makes no other's facts old."""
        for region, cloud in self.clouds.items():
            if region not in self._refreshes or self._refreshes[region].done():
                self._refreshes[region] = self._refresher.submit(cloud.refresh)
        wait(self._refreshes.values(), timeout=self._patience)
        for refresh in self._refreshes.values():
            if refresh.done():
                refresh.result()

    def standing(self) -> Extras:
        """Return what is billed without a node in all regions together, by kind."""
        found: Counter[str] = Counter()
        for cloud in self.clouds.values():
            for kind, usd in cloud.standing():
                found[kind] += usd  # type: ignore[assignment] # counters also count dollars
        return tuple(found.items())

    def notes(self) -> Sequence[str]:
        """Return the notes of all regions, and which do not answer."""
        cut = [f"{region} does not answer: {why}" for region, why in self._cut_off.items()]
        return [
            *cut,
            *self._transfer_notes(),
            *(note for cloud in self.clouds.values() for note in cloud.notes()),
        ]

    def idle_usd_per_hour(self) -> float:
        """Return what idle reservations of all regions cost per hour."""
        return sum(cloud.idle_usd_per_hour() for cloud in self.clouds.values())

    def list_prices(self) -> Mapping[str, float]:
        """Return the price on demand of each machine in each region."""
        return {
            name_in(name, region, home=self.home): usd
            for region, cloud in self.clouds.items()
            for name, usd in cloud.list_prices().items()
        }

    def price_version(self) -> int:
        """Return a number that grows with each new list price of any region."""
        return sum(cloud.price_version() for cloud in self.clouds.values())

    def lately_priced(self) -> Mapping[NodeId, float]:
        """Return when the ended nodes ended whose prices were not known then and are known now."""
        return {name: end for cloud in self.clouds.values() for name, end in cloud.lately_priced().items()}

    def amended(self, nodes: Sequence[NodeState]) -> Sequence[NodeState]:
        """Return the nodes that have ended and cost otherwise now, each by the prices of its region."""
        by_region: dict[str, list[NodeState]] = {region: [] for region in self.clouds}
        for node in nodes:
            by_region[self._region_of_state(node)].append(self._plain_node(node))
        return [
            replace(node, instance_type=self._kind(node.instance_type, region))
            for region, cloud in self.clouds.items()
            for node in cloud.amended(by_region[region])
        ]

    def bills_are_right(self, nodes: Iterable[NodeId]) -> None:
        """Note that the bills of these nodes are final by what is known now."""
        names = list(nodes)
        for cloud in self.clouds.values():
            cloud.bills_are_right(names)

    def price_documents(self) -> Mapping[str, str]:
        """Return what the next process must know of the prices of all regions."""
        return {key: text for cloud in self.clouds.values() for key, text in cloud.price_documents().items()}

    def restore_prices(self, documents: Mapping[str, str]) -> None:
        """Take over what an earlier process knew of prices."""
        for cloud in self.clouds.values():
            cloud.restore_prices(documents)

    def ages(self) -> Mapping[str, float | None]:
        """Return the ages of facts; those of further regions begin with the region."""
        found: dict[str, float | None] = {}
        for region, cloud in self.clouds.items():
            before = "" if region == self.home else f"{region} "
            found |= {f"{before}{name}": age for name, age in cloud.ages().items()}
        return found

    def nets(self) -> Mapping[str, Callable[[], str]]:
        """Return the nets of all regions by name; what says why one is lost names the regions."""
        named: dict[str, list[tuple[str, Callable[[], str]]]] = {}
        for region, cloud in self.clouds.items():
            before = "" if region == self.home else f"in {region}: "
            for name, why in cloud.nets().items():
                named.setdefault(name, []).append((before, why))
        found: dict[str, Callable[[], str]] = {name: partial(_joined, whys) for name, whys in named.items()}
        found["regions"] = self._regions_fault
        return found

    def _regions_fault(self) -> str:
        return "; ".join(
            f"{region} does not answer, its {len(self._last[region])} nodes count as last seen: {why}"
            for region, why in list(self._cut_off.items())
        )

    def news(self) -> Sequence[tuple[str, str]]:
        """Return what happened to instances and reservations of all regions since the last call."""
        return [each for cloud in self.clouds.values() for each in cloud.news()]

    def ask_anew(self) -> None:
        """Ask for every fact of every region again."""
        for cloud in self.clouds.values():
            cloud.ask_anew()

    def use(self, settings: AwsSettings) -> None:
        """Take over the settings of each region that need no restart."""
        for region, cloud in self.clouds.items():
            cloud.use(settings.in_region(region))

    def failed_launches(self) -> Sequence[tuple[str, Refused]]:
        """Return the launches that failed since the last call, by offer, named as in plans."""
        return [
            (self._named(scope_of(key), region), self._scoped(refused, region))
            for region, cloud in self.clouds.items()
            for key, refused in cloud.failed_launches()
        ]

    def _named(self, scope: Scope, region: str) -> str:
        """Return a scope or an offer's key of a region as plans name it."""
        return str(scope.of_type(name_in(scope.instance_type, region, home=self.home)))

    def rehearse_end(self, node: NodeId) -> float | None:
        """Handle a spot warning of a node in its region."""
        return self.cloud_of(node).rehearse_end(node)

    def efa_cards(self, node: NodeId) -> tuple[int, str]:
        """Return how many EFA cards a node must show, or why none are checked."""
        return self.cloud_of(node).efa_cards(node)

    def close(self) -> None:
        """Stop listening in every region; a call that still waits for its region is left alone."""
        for cloud in self.clouds.values():
            cloud.close()
        for pool in (self._pool, self._refresher):
            pool.shutdown(wait=False, cancel_futures=True)


def _at_home(machine: InstanceType) -> InstanceType:
    """Return a machine as the cloud of its region names it."""
    return replace(machine, name=str(machine.machine_name.in_region("")))


def _joined(whys: Sequence[tuple[str, Callable[[], str]]]) -> str:
    return "; ".join(f"{before}{said}" for before, why in whys if (said := why()))


def _with_transfer(offer: Offer, usd: float) -> Offer:
    """Return an offer with so many more dollars per hour of transfer."""
    if not usd or offer.usd_per_hour is None:
        return offer
    extras = dict(offer.extras)
    extras["transfer"] = extras.get("transfer", 0.0) + usd
    return replace(offer, extras=tuple(extras.items()), usd_per_hour=offer.usd_per_hour + usd)


class RegionalCalls:
    """The calls of engines: those about instances go to the region of the instance, all others home."""

    def __init__(self, cloud: RegionalCloud) -> None:
        self._cloud = cloud

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Make one call.

        Raises:
            CallFailed: as `AwsCalls.call` does.
        """
        named = arguments.get("InstanceIds") or [arguments.get("InstanceId", "")]
        cloud = self._cloud.cloud_of(str(named[0]))
        why = self._cloud.why_cut_off(cloud.settings.region)
        if why and cloud.settings.region != self._cloud.home:
            # A tick calls about each job: calls that must fail would take its time from other regions.
            raise CallFailed(operation, NOT_SENT, f"{cloud.settings.region} does not answer: {why}")
        return cloud.calls.call(operation, **arguments)

    def client(self, service: str) -> Any:
        """Return a service's calls: of SSM to the nodes' regions, of all others home."""
        home = self._cloud.clouds[self._cloud.home].calls
        return _NodeCalls(self) if service == "ssm" else home.client(service)


class _NodeCalls:
    """SSM's calls for engines."""

    def __init__(self, calls: RegionalCalls) -> None:
        self._calls = calls

    def send_command(self, **arguments: Any) -> dict[str, Any]:
        """Send a command to instances of one region."""
        return self._calls.call("ssm:SendCommand", **arguments)

    def get_command_invocation(self, **arguments: Any) -> dict[str, Any]:
        """Return the answer of an instance."""
        return self._calls.call("ssm:GetCommandInvocation", **arguments)
