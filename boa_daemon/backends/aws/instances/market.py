"""Zones, prices and quotas of a region's instance types: asked of AWS, cached and dated.

A fact that cannot be found out is unknown, never zero: a price falls back to the dated catalogue or price
file of the same region, never of another; an unknown quota sets no limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, Literal

from boa_daemon.backends.aws.client.answers import reading
from boa_daemon.backends.aws.client.cached_value import CachedValue
from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.client.refusal_codes import Fact
from boa_daemon.backends.aws.instances.blocks import RECLAIM_SECONDS
from boa_daemon.backends.aws.instances.node_from_instance import LEAST_PRICE, market_path
from boa_daemon.backends.aws.prices.extra_costs import extras_of
from boa_daemon.backends.aws.prices.list_prices import ask_terms, in_effect
from boa_daemon.backends.aws.prices.price_steps import (
    ListPrice,
    PricePath,
    PriceStep,
    PriceSteps,
    after_end,
    after_steps,
    day_of,
    joined,
)
from boa_daemon.backends.aws.prices.region_prices import catalog_of, price_file_stamp
from boa_daemon.backends.region_names import is_plain_zone
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog, CatalogEntry
from boa_daemon.tick.facts.node_lives import life_of
from boa_daemon.tick.facts.offers import Market, Offer
from boa_daemon.tick.facts.ports import Clock
from boa_daemon.tick.facts.state import NodeState
from policies.model import NodeId
from policies.money_text import in_dollars, price_in_dollars

ZONES_SECONDS, SPOT_SECONDS, PRICE_SECONDS, QUOTA_SECONDS = 3600.0, 300.0, 12 * 3600.0, 3600.0
USED_QUOTA_SECONDS = 600.0
"""A quota that is used up is asked for this often: somebody has probably asked AWS for more."""
PROBE_SECONDS = 170.0
"""The price list is asked for something at least this often: its loss is told within five minutes."""
SPOT_USELESS_SECONDS = 6 * 3600.0
SPOT_LATE_SECONDS = 60.0
"""A history of spot prices that was asked for this long after a node's end has all of the node's prices."""
AWAITED_SECONDS = 35 * 86_400.0
"""How long after its launch the prices of an ended spot node are waited for: EC2 keeps them for 90 days."""
_SPOT_HISTORY_SECONDS = 3600.0
_RESERVATION_SECONDS = 60.0
CHANGE_SECONDS = 3600.0
"""How long a change of a reservation is among the notes."""
LEAVE_BLOCK_SECONDS = 300.0
"""Jobs leave the nodes of a Capacity Block this long before EC2 ends them."""
LAST_LAUNCH_SECONDS = 1800.0
"""No node is launched in a block this long before EC2 ends it: it would hardly boot and work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A capacity reservation of a type: `left` of its `total` nodes are free.

    A Capacity Block `is_block`: its fee is paid in advance, and EC2 ends its nodes from `ends_at` on. Nodes
    of another reservation go on after `ends_at`, at the price on demand.
    """

    id: str
    instance_type: str
    zone: str
    left: int
    total: int
    is_block: bool = False
    ends_at: float | None = None


class AwsMarket:
    """The offers of a region. `vcpus_in_use` is how much of each quota our own nodes use."""

    def __init__(self, settings: AwsSettings, calls: AwsCalls, catalog: Catalog, clock: Clock) -> None:
        self.settings = settings
        self._calls, self._catalog, self._clock = calls, catalog.in_region(settings.region), clock
        self._zones: CachedValue[dict[str, tuple[str, ...]]] = CachedValue(ZONES_SECONDS)
        self._spot: CachedValue[dict[tuple[str, str], list[tuple[float, float]]]] = CachedValue(
            SPOT_SECONDS, useless_seconds=SPOT_USELESS_SECONDS
        )
        self._prices: dict[str, CachedValue[tuple[ListPrice, ...]]] = {}
        self._steps = PriceSteps()
        self._quotas: dict[str, CachedValue[float]] = {}
        self._reserved: CachedValue[dict[str, Reservation]] = CachedValue(_RESERVATION_SECONDS)
        self._unknown: set[str] = set()
        self._lost_at: dict[str, tuple[float, float]] = {}
        self._spot_from: float | None = None
        self._awaiting: dict[NodeId, tuple[float, float]] = {}
        self._asks = True
        self._changes: dict[str, tuple[float, str]] = {}
        self._file_read = price_file_stamp(settings)
        self._file_fault, self._may_cheapen = "", False
        self.tell: Callable[[str, str], None] = lambda key, sentence: None
        """Called with a key and a sentence when a reservation has changed."""

    def refresh(self) -> None:
        """Refresh facts that are getting old. After the first call nothing else asks for prices and quotas.

        A thread of its own calls this: the planner uses the known facts and never waits for an answer.
        """
        self._asks = False
        now, settings = self._clock.now(), self.settings
        self._reread_prices()
        self._zones.refresh(self._ask_zones, now=now)
        for name in settings.instance_types:
            self._price_of(name).refresh(partial(self._ask_price, name), now=now)
        self._probe_prices(now)
        if "spot" in settings.markets:
            self._spot.refresh(self._ask_spot, now=now)
        if settings.reservations:
            self._reserved.refresh(self._ask_reservations, now=now)
        codes = {
            self.quota_code(name, market) for name in settings.instance_types for market in settings.markets
        }
        for code in sorted(codes - {""}):
            self._quota_of(code).refresh(partial(self._ask_quota, code), now=now)

    def _reread_prices(self) -> None:
        """Read the price file again if somebody has changed it; keep the prices if it cannot be read.

        Lower prices let less count against the caps: those of the same file wait for `take_price_file`.
        """
        stamp = price_file_stamp(self.settings)
        if stamp == self._file_read:
            # A consent is to the file as it is now, and a file that is back has no fault.
            self._file_fault, self._may_cheapen = "", False
            return
        try:
            found = catalog_of(self.settings).in_region(self.settings.region)
            self._check_prices(found, may_cheapen=self._may_cheapen or stamp[0] != self._file_read[0])
            self._catalog = found
        except InputError as error:
            self._file_fault = f"{error}. The prices that were read before are used"
            return
        self._file_read, self._file_fault, self._may_cheapen = stamp, "", False

    @cached_property
    def _shipped(self) -> Mapping[str, CatalogEntry]:
        """The catalogue's own entries of the region, without the price file."""
        return Catalog.load().in_region(self.settings.region).entries

    def _check_prices(self, found: Catalog, *, may_cheapen: bool) -> None:
        """Refuse a price file that has lost prices of our types, as a half written one; tell of changes.

        Raises:
            InputError: naming the types.
        """
        before, file = self._catalog.entries, self.settings.prices
        own = self._shipped
        lost = [
            name
            for name in self.settings.instance_types
            if name in before and before[name] != own.get(name) and found.entries.get(name) == own.get(name)
        ]
        if lost and file:
            raise InputError(
                f"{file} has no price of {', '.join(lost)} any more", hint="Write it whole again"
            )
        changes: dict[str, tuple[float, float]] = {}
        for name in self.settings.instance_types:
            was, is_now = (
                each[name].usd_per_hour if name in each else None for each in (before, found.entries)
            )
            if was is not None and is_now is not None and was != is_now:
                changes[name] = (was, is_now)
        said = ", ".join(
            f"{name} {price_in_dollars(now)}/hour, was {price_in_dollars(was)}"
            for name, (was, now) in changes.items()
        )
        if not may_cheapen and any(now < was for was, now in changes.values()):
            raise InputError(
                f"{file} has lower prices: {said}", hint="`boa config apply --yes` has the caps count them"
            )
        if changes:
            self.tell(f"price file:{int(self._clock.now())}", f"{file} was changed: {said}")

    def _probe_prices(self, now: float) -> None:
        """Ask for the oldest price if none was asked for lately, so that a lost price list shows soon."""
        known = [each for each in self._prices.items() if each[0] in self.settings.instance_types]
        if not known or max(each.tried_at for _, each in known) > now - PROBE_SECONDS:
            return
        name, oldest = min(known, key=lambda each: each[1].tried_at)
        oldest.refresh(partial(self._ask_price, name), now=now, keep_seconds=0.0)

    def _price_of(self, name: str) -> CachedValue[tuple[ListPrice, ...]]:
        return self._prices.setdefault(name, CachedValue(PRICE_SECONDS, retry_seconds=110.0))

    def _quota_of(self, code: str) -> CachedValue[float]:
        return self._quotas.setdefault(code, CachedValue(QUOTA_SECONDS, retry_seconds=600.0))

    def offers(self, vcpus_in_use: Mapping[str, int]) -> list[Offer]:
        """Return what can be rented; types that no zone rents, such as retired ones, are left out."""
        zones = self.zones()
        return [
            *self._reserved_offers(),
            *(
                self._offer(name, zone, market, self._nodes_left(name, market, vcpus_in_use))
                for name in self.settings.instance_types
                for zone in zones.get(name, ())
                for market in self.settings.markets
            ),
        ]

    def known_offers(self) -> list[Offer]:
        """Return offers without asking anything: of the zones that are known, at no known price."""
        zones, wanted = self._zones.value or {}, self.settings.zones
        return [
            Offer(instance_type=name, zone=zone, market=market, nodes_left=0)
            for name in self.settings.instance_types
            for zone in zones.get(name, ("unknown",))
            if zone == "unknown"
            or ((not wanted or zone in wanted) and is_plain_zone(zone, self.settings.region))
            for market in self.settings.markets
        ]

    def zones(self) -> Mapping[str, tuple[str, ...]]:
        """Return the zones that rent each type, limited to those of the settings and at the region's prices.

        Raises:
            CallFailed: when the zones were never known and cannot be asked for.
        """
        found = self._zones.get(self._ask_zones, now=self._clock.now(), may_ask=self._asks)
        if found is None:
            self._zones.forget()
            return self._ask_zones()
        wanted, region = self.settings.zones, self.settings.region
        return {
            name: tuple(
                zone for zone in zones if (not wanted or zone in wanted) and is_plain_zone(zone, region)
            )
            for name, zones in found.items()
        }

    def _zones_fault(self) -> str:
        """Return why zones are not known, or which of the settings have prices that nobody knows."""
        region = self.settings.region
        far = sorted(zone for zone in self.settings.zones if not is_plain_zone(zone, region))
        if not far:
            return self._zones.failed
        return (
            f"nothing is rented in {', '.join(far)}: a Local or Wavelength Zone has prices of its own, and a "
            f"zone of another region is none of {region}'s. Take it out of [cloud] zones"
        )

    def price(self, name: str, zone: str, market: Market) -> float | None:
        """Return the price in USD per hour; None if it is not known."""
        if market == "spot":
            history = self.spot_prices(name, zone)
            has_most = name in self.settings.spot_max_usd_per_hour or self.list_price(name) is not None
            # EC2 lets a spot price rise up to the price on demand: unless that is known, no cap can hold.
            return history[-1][1] if history and has_most else None
        return self.list_price(name)

    def list_price(self, name: str) -> float | None:
        """Return the region's price on demand in USD per hour; None if it is not known."""
        now = self._clock.now()
        listed = self._price_of(name).get(partial(self._ask_price, name), now=now, may_ask=self._asks)
        found = in_effect(listed or (), now)
        if found is None:
            found = self._written_price(name)
        if found is None:
            return None
        changed = self._steps.note(name, found, now=now)
        if changed is not None and found.is_live:
            self._tell_of_price(name, *changed)
        return found.usd_per_hour

    def _written_price(self, name: str) -> ListPrice | None:
        """Return the price of the price file, else the newer of what AWS said last and the catalogue."""
        entry = self._catalog.entry(name)
        day = day_of(entry.as_of)
        written = (
            None if entry.usd_per_hour is None else ListPrice(usd_per_hour=entry.usd_per_hour, since=day)
        )
        told = self._steps.last_of_aws(name)
        if told is None:
            return written
        is_of_house = bool(self.settings.prices) and entry != self._shipped.get(name)
        is_newer = written is not None and (is_of_house or (day or 0.0) > told[1])
        return written if is_newer else told[0]

    def _tell_of_price(self, name: str, before: ListPrice, step: PriceStep) -> None:
        since = datetime.fromtimestamp(step.since, UTC).strftime("%Y-%m-%d %H:%M UTC")
        usd, was = (price_in_dollars(each.usd_per_hour) for each in (step, before))
        self.tell(
            f"list price:{name}:{self.settings.region}:{int(step.since)}",
            f"{name} costs {usd}/hour on demand in {self.settings.region} since {since}, was {was}: nodes on "
            "demand that run are charged that from then on, and the caps count it",
        )

    def charged(self, name: str, path: PricePath) -> PricePath:
        """Return what a running node on demand is charged over time: its path, and later list prices."""
        if name in self.settings.instance_types:
            self.list_price(name)
        return after_steps(path, self._steps.of(name))

    def spot_path(self, name: str, zone: str, before: PricePath) -> Sequence[tuple[float, float]]:
        """Return what a spot node is charged over time: the history, and what was known `before` that."""
        return joined(tuple(each for each in before if each[1] >= LEAST_PRICE), self.spot_prices(name, zone))

    # Bills of nodes that have ended

    def await_prices(self, node: NodeState) -> None:
        """Note that a node has ended: the prices of its last minutes may be known only later."""
        is_charged = any(usd for _, usd in node.prices)
        if node.market == "spot" and node.ended_at is not None and is_charged and life_of(node.id) % 2:
            self._awaiting[node.id] = (node.launched_at, node.ended_at)

    def price_version(self) -> int:
        """Return a number that grows with each new list price."""
        return self._steps.version

    def lately_priced(self) -> dict[NodeId, float]:
        """Return when the ended nodes ended whose prices were not known then and are known now."""
        as_of, now = self._spot.as_of or 0.0, self._clock.now()
        waiting = list(self._awaiting.items())
        for name, (launched_at, _) in waiting:
            if launched_at < now - AWAITED_SECONDS:
                del self._awaiting[name]
        return {name: end for name, (_, end) in waiting if end + SPOT_LATE_SECONDS <= as_of}

    def amended(self, nodes: Sequence[NodeState]) -> list[NodeState]:
        """Return the nodes that have ended and cost otherwise, by what is known now, than they say."""
        found = [replace(node, prices=self._final_prices(node)) for node in nodes]
        return [after for after, node in zip(found, nodes, strict=True) if after.prices != node.prices]

    def bills_are_right(self, nodes: Iterable[NodeId]) -> None:
        """Note that the bills of these nodes are final by what is known now."""
        for name in nodes:
            self._awaiting.pop(name, None)

    def _final_prices(self, node: NodeState) -> PricePath:
        """Return what a node that has ended was charged over time, by what is known now."""
        if node.ended_at is None or not node.prices or life_of(node.id) % 2 == 0:
            return node.prices
        name = node.instance_type.name
        if node.market == "on-demand":
            steps = self._steps.of(name)
            return after_end(node.prices, lambda paid: after_steps(paid, steps), ended_at=node.ended_at)
        as_of = self._spot.as_of
        if node.id not in self._awaiting or as_of is None or as_of < node.ended_at + SPOT_LATE_SECONDS:
            return node.prices
        changes = self.spot_path(name, node.zone, node.prices)
        return after_end(
            node.prices,
            lambda paid: market_path(node.launched_at, paid[0][1], changes),
            ended_at=node.ended_at,
        )

    def documents(self) -> dict[str, str]:
        """Return what the next process must know of prices, as texts by key."""
        found = {f"price {name}": text for name, text in self._steps.documents().items()}
        if self._awaiting or self._lost_at:
            found["nodes"] = json.dumps([self._awaiting, self._lost_at])
        return found

    def restore(self, documents: Mapping[str, str]) -> None:
        """Take over what an earlier process knew; what cannot be read is as if it were not there."""
        self._steps.restore({key[6:]: text for key, text in documents.items() if key.startswith("price ")})
        with suppress(ValueError, TypeError, AttributeError):
            awaiting, lost_at = json.loads(documents.get("nodes", "[{}, {}]"))
            self._awaiting |= {str(name): (float(at), float(end)) for name, (at, end) in awaiting.items()}
            self._lost_at |= {str(name): (float(at), float(usd)) for name, (at, usd) in lost_at.items()}

    def unpriced(self) -> list[str]:
        """Return a sentence on each type of the settings that cannot be rented for want of a price."""
        found = []
        for name in self.settings.instance_types:
            if self.list_price(name) is None:
                cached, entry = self._price_of(name), self._catalog.entries.get(name)
                why = cached.failed.partition(". ")[0] or "it was not asked for yet"
                known = f" (the catalogue has {entry.source})" if entry is not None and entry.source else ""
                found.append(
                    f"{name} is not rented: its price in {self.settings.region} is not known{known}: {why}"
                )
        return found

    def spot_prices(self, name: str, zone: str) -> Sequence[tuple[float, float]]:
        """Return (instant, USD per hour) in order of time; empty if no price is known."""
        found = self._spot.get(self._ask_spot, now=self._clock.now(), may_ask=self._asks)
        return (found or {}).get((name, zone), ())

    def keep_spot_since(self, instant: float | None) -> None:
        """Ask for spot prices from the launch of our oldest spot node on; None without one.

        Nodes that have ended count until the prices of their last minutes are known. Later questions are as
        short as our nodes are young.
        """
        waiting = [launched_at for launched_at, _ in self._awaiting.values()]
        instant = min((each for each in (instant, *waiting) if each is not None), default=None)
        is_earlier = instant is not None and (self._spot_from is None or instant < self._spot_from)
        self._spot_from = instant
        if is_earlier and self._spot.as_of is not None:
            self._spot.forget()

    def quota_code(self, name: str, market: Market) -> str:
        """Return the code of the quota that a type counts against; empty if none is known."""
        entry = self._catalog.entries.get(name)
        if entry is None or market == "reserved":
            return ""
        return entry.vcpu_quota_spot if market == "spot" else entry.vcpu_quota_on_demand

    def quota(self, code: str) -> float | None:
        """Return a quota in vCPUs; None if it is not known."""
        if not code:
            return None
        ask = partial(self._ask_quota, code)
        return self._quota_of(code).get(ask, now=self._clock.now(), may_ask=self._asks)

    def learn_quota(self, code: str, vcpus: int | None) -> None:
        """Note the quota that a refusal named; if it named none, the next use asks AWS."""
        cached = self._quota_of(code)
        if vcpus is None:
            cached.forget()
        else:
            cached.value, cached.as_of = float(vcpus), self._clock.now()

    def reservations(self) -> Mapping[str, Reservation]:
        """Return the active reservations that the settings name, by id; empty if they are not known."""
        if not self.settings.reservations:
            return {}
        found = self._reserved.get(self._ask_reservations, now=self._clock.now(), may_ask=self._asks)
        return found or {}

    def reservation(self, name: str, pool: str = "") -> Reservation | None:
        """Return a type's reservation by its id, without an id the one with most room; None without one."""
        own = [each for each in self.reservations().values() if each.instance_type == name]
        if pool:
            return next((each for each in own if each.id == pool), None)
        return max(own, key=lambda each: each.left, default=None)

    def taken_back_at(self, name: str, pool: str = "") -> float | None:
        """Return when EC2 ends a block's nodes, once that is so near that jobs should leave; else None."""
        found = self.reservation(name, pool)
        at = found.ends_at if found is not None and found.is_block else None
        return at if at is not None and self._clock.now() >= at - LEAVE_BLOCK_SECONDS else None

    def reserved_prices(self, name: str, pool: str) -> list[tuple[float, float]]:
        """Return the price of a node whose reservation is over, from the instant on that it was over.

        The node runs on, and EC2 bills it as on demand.
        """
        now, known = self._clock.now(), self._reserved.value
        if not pool or known is None:
            return []
        found = known.get(pool)
        if found is not None and (found.is_block or found.ends_at is None or now < found.ends_at):
            self._lost_at.pop(pool, None)
            return []
        ends_at = found.ends_at if found is not None and found.ends_at is not None else now
        price = self.list_price(name)
        if price is None:
            return []
        return list(self.charged(name, (self._lost_at.setdefault(pool, (ends_at, price)),)))

    def reserved_usd_per_hour(self, used: Mapping[str, int]) -> float:
        """Return what reservations cost per hour, used or not, without the part that others use.

        `used` is how many of our nodes each has, by its id. A block's fee is paid already.
        """
        return sum(
            # Together at most all: the list of instances may be newer than that of reservations.
            min(each.left + used.get(each.id, 0), each.total) * (self.list_price(each.instance_type) or 0.0)
            for each in self.reservations().values()
            if not each.is_block
        )

    def idle(self) -> list[str]:
        """Return a sentence on each reservation that has free nodes."""
        found = []
        for each in self.reservations().values():
            usd = each.left * (self.list_price(each.instance_type) or 0.0)
            if each.left:
                what = "Capacity Block" if each.is_block else "reservation"
                found.append(
                    f"{each.left} of {each.total} {each.instance_type} of {what} {each.id} in {each.zone} "
                    f"are idle: {in_dollars(usd)}/hour are paid for nothing"
                )
        return found

    def idle_usd_per_hour(self) -> float:
        """Return what the unused nodes of reservations cost per hour; blocks count at the price on demand."""
        return sum(
            each.left * (self.list_price(each.instance_type) or 0.0) for each in self.reservations().values()
        )

    def take_price_file(self) -> None:
        """Read the price file at the next refresh also if its prices are lower: somebody consented to it."""
        self._may_cheapen = True

    def forget(self, fact: Fact | Literal["all"]) -> None:
        """Ask for a fact anew at its next use, or at the next refresh once `refresh` was called."""
        if fact in ("zones", "all"):
            self._zones.forget()
        if fact in ("reservations", "all"):
            self._reserved.forget()
        if fact in ("quotas", "all"):
            for cached in list(self._quotas.values()):
                cached.forget()
        if fact == "all":
            self._spot.forget()
            for listed in list(self._prices.values()):
                listed.forget()

    def ages(self) -> dict[str, float | None]:
        """Return the age of each cached fact in seconds; None for a fact that is not known."""
        now = self._clock.now()
        found = {"zones": self._zones.age_seconds(now)}
        if "spot" in self.settings.markets:
            found["spot"] = self._spot.age_seconds(now)
        found.update(
            {f"price {name}": cached.age_seconds(now) for name, cached in list(self._prices.items())}
        )
        found.update(
            {f"quota {code}": cached.age_seconds(now) for code, cached in list(self._quotas.items())}
        )
        if self.settings.reservations:
            found["reservations"] = self._reserved.age_seconds(now)
        return found

    def nets(self) -> dict[str, Callable[[], str]]:
        """Return each fact by name, with what says why it could not be had when last asked for."""
        return {
            "price list": self._prices_fault,
            "price file": lambda: self._file_fault,
            "quotas": lambda: _first_fault(self._quotas),
            "zones": self._zones_fault,
            "spot prices": lambda: self._spot.failed,
            "reservations": lambda: self._reserved.failed or self._said_unknown(),
        }

    def _prices_fault(self) -> str:
        said = _first_fault(self._prices)
        return said and f"{said}. Dated prices of the region are used, where there are any"

    def _said_unknown(self) -> str:
        """Return a sentence on reservations that the settings name and EC2 does not know."""
        if not self._unknown:
            return ""
        names = ", ".join(sorted(self._unknown))
        return f"EC2 knows no {names} in {self.settings.region}: take it out of [cloud] reservations"

    def _reserved_offers(self) -> list[Offer]:
        """Return an offer for each reservation and block, at its marginal price: its fee is paid in any case.

        A node in it costs only its extras, so it comes before spot and on demand.
        """
        found: list[Offer] = []
        now = self._clock.now()
        for one in self.reservations().values():
            if one.ends_at is not None and now >= one.ends_at - LAST_LAUNCH_SECONDS:
                continue
            if self.list_price(one.instance_type) is None and not one.is_block:
                # What the reservation costs would count as nothing.
                continue
            extras = extras_of(self.settings)
            found.append(
                Offer(
                    instance_type=one.instance_type,
                    zone=one.zone,
                    market="reserved",
                    usd_per_hour=LEAST_PRICE + sum(usd for _, usd in extras),
                    nodes_left=one.left,
                    extras=extras,
                    pool=one.id,
                )
            )
        return found

    def _offer(self, name: str, zone: str, market: Market, nodes_left: int | None) -> Offer:
        """Return an offer at the price of a node with its extras."""
        price = self.price(name, zone, market)
        extras = extras_of(self.settings)
        return Offer(
            instance_type=name,
            zone=zone,
            market=market,
            usd_per_hour=None if price is None else price + sum(usd for _, usd in extras),
            nodes_left=nodes_left,
            extras=extras,
        )

    def _nodes_left(self, name: str, market: Market, vcpus_in_use: Mapping[str, int]) -> int | None:
        """Return how many more nodes the quota allows; None if it is not known."""
        code = self.quota_code(name, market)
        vcpus = self._catalog.entry(name).vcpus
        quota = self.quota(code)
        if quota is None or not vcpus:
            return None
        left = max(int((quota - vcpus_in_use.get(code, 0)) // vcpus), 0)
        if not left:
            self._quota_of(code).keep_seconds = USED_QUOTA_SECONDS
        return left

    def _ask_zones(self) -> dict[str, tuple[str, ...]]:
        if not self.settings.instance_types:
            return {}
        found: dict[str, list[str]] = {}
        types = {"Name": "instance-type", "Values": list(self.settings.instance_types)}
        for row in self._calls.pages(
            "ec2:DescribeInstanceTypeOfferings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[types],
        ):
            found.setdefault(row["InstanceType"], []).append(row["Location"])
        return {name: tuple(sorted(zones)) for name, zones in found.items()}

    def _ask_spot(self) -> dict[tuple[str, str], list[tuple[float, float]]]:
        """Ask for spot prices of the last hour, or since the launch of our oldest spot node."""
        now = self._clock.now()
        since = min(now - _SPOT_HISTORY_SECONDS, now if self._spot_from is None else self._spot_from)
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for row in self._calls.pages(
            "ec2:DescribeSpotPriceHistory",
            "SpotPriceHistory",
            InstanceTypes=list(self.settings.instance_types),
            ProductDescriptions=["Linux/UNIX"],
            StartTime=datetime.fromtimestamp(since, tz=UTC),
        ):
            with reading("ec2:DescribeSpotPriceHistory"):
                price, at = float(row["SpotPrice"]), row["Timestamp"].timestamp()
            if price > 0:
                found.setdefault((row["InstanceType"], row["AvailabilityZone"]), []).append((at, price))
        return {key: sorted(prices) for key, prices in found.items()}

    def _ask_price(self, name: str) -> tuple[ListPrice, ...]:
        return ask_terms(self._calls, self.settings.region, name)

    def _ask_quota(self, code: str) -> float:
        answer = self._calls.call("servicequotas:GetServiceQuota", ServiceCode="ec2", QuotaCode=code)
        self._quota_of(code).keep_seconds = QUOTA_SECONDS
        with reading("servicequotas:GetServiceQuota"):
            return float(answer["Quota"]["Value"])

    def _ask_reservations(self) -> dict[str, Reservation]:
        """Ask for the reservations that the settings name, by ids or by a tag that several may have."""
        found: dict[str, Reservation] = {}
        self._unknown = set()
        for name, text in self.settings.reservations.items():
            arguments: dict[str, Any] = {"CapacityReservationIds": [one.strip() for one in text.split(",")]}
            if text.startswith("tag:"):
                key, _, value = text[4:].partition("=")
                arguments = {"Filters": [{"Name": f"tag:{key}", "Values": [value]}]}
            for row in self._rows_of_reservations(arguments):
                if row.get("State") == "active" and row["InstanceType"] == name:
                    with reading("ec2:DescribeCapacityReservations"):
                        one = _reservation_of(row)
                    found[one.id] = one
        self._compare(self._reserved.value or {}, found)
        return found

    def _compare(self, before: Mapping[str, Reservation], after: Mapping[str, Reservation]) -> None:
        """Tell of reservations that are gone, new, larger or smaller than when last asked for."""
        now = self._clock.now()
        for one in (*before.values(), *(each for each in after.values() if each.id not in before)):
            was, now_has = (each.get(one.id) for each in (before, after))
            totals = tuple(0 if each is None else each.total for each in (was, now_has))
            if not before or totals[0] == totals[1]:
                continue
            what = "Capacity Block" if one.is_block else "reservation"
            where = f"{what} {one.id} of {one.instance_type} in {one.zone}"
            said = f"{where} has {totals[1]} nodes; it had {totals[0]}"
            if now_has is None:
                usd = self.list_price(one.instance_type)
                rate = (
                    "at the price on demand" if usd is None else f"at {in_dollars(usd)}/hour each, on demand"
                )
                said = f"{where} is not active any more"
                said += "" if one.is_block else f": its nodes go on {rate}, which the caps count"
            self._changes[one.id] = (now, said)
            self.tell(f"{one.id}:{totals[0]}:{totals[1]}:{int(now // 3600)}", said)

    def changes(self) -> list[str]:
        """Return a sentence on each reservation that has changed within the hour."""
        now = self._clock.now()
        return [said for at, said in list(self._changes.values()) if now - at <= CHANGE_SECONDS]

    def _rows_of_reservations(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """Ask for reservations; an id that EC2 does not know, as of one long over, does not hide the others.

        Raises:
            CallFailed: when EC2 cannot be asked.
        """
        operation, items = "ec2:DescribeCapacityReservations", "CapacityReservations"
        try:
            return list(self._calls.pages(operation, items, **arguments))
        except CallFailed as error:
            if error.rule.scope != "reservation":
                raise
            names = arguments.get("CapacityReservationIds", ())
            if len(names) < 2:
                self._unknown.update(names)
                return []
        return [
            row for name in names for row in self._rows_of_reservations({"CapacityReservationIds": [name]})
        ]


def _first_fault(cached: Mapping[str, CachedValue[Any]]) -> str:
    return next((each.failed for each in list(cached.values()) if each.failed), "")


def _reservation_of(row: Mapping[str, Any]) -> Reservation:
    """Return a reservation from EC2's description."""
    is_block = row.get("ReservationType") == "capacity-block"
    end = row.get("EndDate")
    left = int(row["AvailableInstanceCount"])
    return Reservation(
        id=row["CapacityReservationId"],
        instance_type=row["InstanceType"],
        zone=row["AvailabilityZone"],
        left=left,
        total=int(row.get("TotalInstanceCount") or left),
        is_block=is_block,
        ends_at=None if end is None else end.timestamp() - (RECLAIM_SECONDS if is_block else 0.0),
    )
