"""One launch: its image, its subnet, the call with one token, and the outcome.

A lost answer is requested again with the same token, which launches no second instance. After a lost answer
only a success settles the launch: any other answer may be about the second call alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from boa_daemon.backends.aws.client.answers import NO_ANSWER
from boa_daemon.backends.aws.client.cached_value import CachedValue
from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.client.refusal_codes import CREDENTIALS_SECONDS, SUBNET_SECONDS, Fact
from boa_daemon.backends.aws.instances.images import base_of, newest
from boa_daemon.backends.aws.instances.launch_request import LaunchTarget, run_request
from boa_daemon.backends.aws.instances.market import AwsMarket
from boa_daemon.backends.aws.instances.refusals import refusal_of
from boa_daemon.backends.aws.instances.subnet_egress import SubnetEgress, egress_by_subnet
from boa_daemon.backends.settings import BUILT, AwsSettings
from boa_daemon.errors import MissingPrice
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.offers import NO_PRICE_SECONDS, Offer
from boa_daemon.tick.facts.ports import Clock, Launched, Refused, Unknown

MOST_CLOCK_SKEW_SECONDS = 240.0
"""AWS refuses signatures about fifteen minutes off; launches stop well before that, ends do not."""
_TRIES, _PAUSE_SECONDS = 3, 1.0
_ZONE_FAILURES = 3
_IMAGE_SECONDS, _SUBNETS_SECONDS = 24 * 3600.0, 300.0
CUT_OFF_SECONDS = 600.0
_FAILED_SECONDS = 110.0
"""A fact that could not be had is asked for again after this time, whether a launch needs it or not."""
_ROOT_DEVICE = "/dev/xvda"


class Launcher:
    """Launches instances. `ledger_id` names the database whose ticks the action ids count."""

    def __init__(
        self,
        settings: AwsSettings,
        calls: AwsCalls,
        market: AwsMarket,
        catalog: Catalog,
        clock: Clock,
        *,
        ledger_id: str = "",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings, self._calls, self._market, self._catalog = settings, calls, market, catalog
        self._clock, self._ledger_id, self._sleep = clock, ledger_id, sleep
        self._images: dict[str, CachedValue[tuple[str, str]]] = {}
        self._subnets: CachedValue[dict[str, list[str]]] = CachedValue(_SUBNETS_SECONDS)
        self._ways: CachedValue[dict[str, SubnetEgress]] = CachedValue(_SUBNETS_SECONDS, retry_seconds=600.0)
        self._full_until: dict[str, float] = {}
        self._zone_failures: dict[str, int] = {}

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Launch the nodes of an action, in the first subnet of its zone that takes them.

        A refusal that shows a fact to be stale, such as an image that is gone, has the fact asked for anew;
        the launch is repeated once if the fact has changed.
        """
        offer = action.offer or Offer(instance_type=action.instance_type.name)
        refused = self._closed(offer)
        if refused is not None:
            return refused
        outcome, stale = self._try(action, offer)
        if stale and self._has_changed(stale, offer):
            outcome, _ = self._try(action, offer, attempt=1)
        return outcome

    def rehearse(self, offer: Offer) -> CallFailed | None:
        """Ask EC2 whether it would take a launch of an offer now; return its answer, always an error.

        An answer that shows a fact to be stale has it asked for anew, and the launch rehearsed once more.
        None: there is nothing to ask, as without a price of the region or without an open subnet.
        """
        error = self._rehearse(offer)
        if error is not None and error.rule.stale and self._has_changed(error.rule.stale, offer):
            error = self._rehearse(offer)
        return error

    def _rehearse(self, offer: Offer) -> CallFailed | None:
        try:
            kind = self._catalog.instance_type(offer.instance_type)
            action = LaunchNodes(id="rehearsal", instance_type=kind, count=1, offer=offer, reason="rehearsal")
            known = (self._subnets.value or {}).get(offer.zone) or self.open_subnets(offer.zone)
            place = replace(self.site(offer), subnet=next(iter(known), ""))
            lease = self._clock.now() + 60.0 * self._settings.lease_minutes
            request = run_request(
                action, offer, place, self._settings, ledger_id=self._ledger_id, lease=lease
            )
            self._calls.call("ec2:RunInstances", **request, DryRun=True)
        except CallFailed as error:
            return error
        except MissingPrice:
            return None
        return None

    def refresh(self) -> None:
        """Ask again for images, subnets and routes that could not be had: nobody may need them soon."""
        now = self._clock.now()
        for named, cached in list(self._images.items()):
            if cached.begin_retry(now, _FAILED_SECONDS):
                cached.refresh(partial(self._ask_image, named), now=now)
        if self._subnets.begin_retry(now, _FAILED_SECONDS):
            self._subnets.refresh(self._ask_subnets, now=now)
        if self._ways.begin_retry(now, _FAILED_SECONDS):
            self._ways.refresh(self._ask_ways, now=now)

    def _try(
        self, action: LaunchNodes, offer: Offer, *, attempt: int = 0
    ) -> tuple[Launched | Refused | Unknown, Fact]:
        """Launch once in each subnet; return the outcome, and the fact that it shows to be stale."""
        try:
            site = self.site(offer)
        except CallFailed as error:
            return refusal_of(error, offer, self._market), error.rule.stale
        except MissingPrice as error:
            return _no_price(error), ""
        outcome: Launched | Refused | Unknown | None = None
        stale: Fact = ""
        interfaces = site.efa_interfaces if self._settings.efa else 1
        for subnet in self.open_subnets(offer.zone):
            why = self.why_cut_off(subnet, interfaces)
            if why:
                scope = f"{offer.instance_type}/{offer.zone or '*'}"
                outcome = outcome or Refused(
                    reason=why, kind="bad-request", scopes=(scope,), retry_after_seconds=CUT_OFF_SECONDS
                )
                continue
            has_address = self._gives_address(subnet, interfaces)
            place = replace(site, subnet=subnet, has_address=has_address)
            try:
                outcome, failed = self._ask(action, offer, place, attempt=attempt)
            except MissingPrice as error:
                return _no_price(error), ""
            if failed is None:
                # Launched, or perhaps launched: what an earlier subnet has shown is no reason to ask again.
                return outcome, ""
            stale = failed.rule.stale
            if failed.rule.scope != "subnet":
                break
            self._full_until[subnet] = self._clock.now() + (failed.rule.rest_seconds or SUBNET_SECONDS)
        return outcome or Refused(
            reason=f"every subnet of {offer.zone or 'the region'} is full or was refused",
            kind="no-capacity",
            scopes=(f"*/{offer.zone or '*'}",),
            retry_after_seconds=SUBNET_SECONDS,
        ), stale

    def _has_changed(self, stale: Fact, offer: Offer) -> bool:
        """Ask for a stale fact anew; return whether the launch may be repeated with another value."""
        if stale == "image":
            named = self._settings.image_of(offer.instance_type)
            cached = self._images.pop(named, None)
            try:
                return cached is None or self.image(offer.instance_type) != cached.value
            except CallFailed:
                return False
        if stale == "subnets":
            before = self.open_subnets(offer.zone)
            self._subnets.forget()
            self._ways.forget()
            return bool(set(self.open_subnets(offer.zone)) - set(before))
        if stale:
            self._market.forget(stale)
        return False

    def use(self, settings: AwsSettings) -> None:
        """Take over changed settings."""
        self._settings = settings
        self.forget()

    def ages(self) -> dict[str, float | None]:
        """Return the ages in seconds of the images and subnets in use."""
        now = self._clock.now()
        found = {
            f"image {named}": each.age_seconds(now)
            for named, each in list(self._images.items())
            if not named.startswith("ami-")
        }
        if self._subnets.tried_at > float("-inf"):
            found["subnets"] = self._subnets.age_seconds(now)
        return found

    def faults(self) -> dict[str, str]:
        """Return the images, subnets and routes that could not be asked for when last tried, and why."""
        found = {f"image {named}": each.failed for named, each in list(self._images.items())}
        found |= {"subnets": self._subnets.failed, "routes": self._ways.failed}
        return {name: said for name, said in found.items() if said}

    def forget(self) -> None:
        """Ask for images and subnets anew at their next use."""
        self._images.clear()
        self._subnets.forget()
        self._ways.forget()
        self._full_until.clear()

    def site(self, offer: Offer) -> LaunchTarget:
        """Return the region's facts for a launch, except for the subnet.

        Raises:
            CallFailed: when the type has no image.
        """
        image, root_device = self.image(offer.instance_type)
        entry = self._catalog.entries.get(offer.instance_type)
        is_reserved = offer.market == "reserved"
        reserved = self._market.reservation(offer.instance_type, offer.pool) if is_reserved else None
        if is_reserved and reserved is None:
            # Without its id EC2 would launch the node on demand, and bill it so.
            said = f"the reservation {offer.pool or 'of ' + offer.instance_type} is not active any more"
            raise CallFailed("ec2:RunInstances", "ReservationCapacityExceeded", said, http_status=400)
        return LaunchTarget(
            image=image,
            root_device=root_device,
            efa_interfaces=0 if entry is None else entry.efa_interfaces,
            reservation="" if reserved is None else reserved.id,
            is_block=reserved is not None and reserved.is_block,
        )

    def image(self, instance_type: str) -> tuple[str, str]:
        """Return the image of a type and its root device.

        Raises:
            CallFailed: when there is no such image.
        """
        named = self._settings.image_of(instance_type)
        cached = self._images.setdefault(named, CachedValue(_IMAGE_SECONDS, retry_seconds=0.0))
        found = cached.get(lambda: self._ask_image(named), now=self._clock.now())
        return found or self._ask_image(named)

    def _closed(self, offer: Offer) -> Refused | None:
        """Return a refusal if a call is pointless: our clock is wrong, or the zone did not answer lately."""
        skew = self._calls.clock_skew_seconds
        if abs(skew) > MOST_CLOCK_SKEW_SECONDS:
            return Refused(
                reason=f"our clock is {skew:+.0f} s from AWS's: launches resume once it is set",
                kind="denied",
                scopes=("*",),
                retry_after_seconds=CREDENTIALS_SECONDS,
            )
        if self._zone_failures.get(offer.zone, 0) >= _ZONE_FAILURES:
            # Half open: after the cool-down one failure is enough to close the zone again.
            self._zone_failures[offer.zone] = _ZONE_FAILURES - 1
            reason = f"{_ZONE_FAILURES} launches in a row in {offer.zone or 'the region'} had no answer"
            return Refused(reason=reason, kind="no-capacity", scopes=(f"*/{offer.zone or '*'}",))
        return None

    def _ask(
        self, action: LaunchNodes, offer: Offer, site: LaunchTarget, *, attempt: int
    ) -> tuple[Launched | Refused | Unknown, CallFailed | None]:
        """Call RunInstances; repeat it with the same token if the answer was lost.

        Return the outcome, and the error of a refusal.

        Raises:
            MissingPrice: when the region's prices are not known.
        """
        lease = self._clock.now() + 60.0 * self._settings.lease_minutes
        request = run_request(
            action, offer, site, self._settings, ledger_id=self._ledger_id, lease=lease, attempt=attempt
        )
        lost: Unknown | None = None
        for number in range(_TRIES):
            try:
                answer = self._calls.call("ec2:RunInstances", **request)
                ids = [each["InstanceId"] for each in answer["Instances"]]
                if not ids:
                    raise CallFailed("ec2:RunInstances", NO_ANSWER, "the answer names no instance")
            except CallFailed as error:
                outcome = refusal_of(error, offer, self._market)
                if isinstance(outcome, Refused):
                    return (lost, None) if lost else (outcome, error)
                lost = outcome
                self._sleep(_PAUSE_SECONDS * 2.0**number)
                continue
            self._zone_failures.pop(offer.zone, None)
            return self._granted(action, offer, ids), None
        self._zone_failures[offer.zone] = self._zone_failures.get(offer.zone, 0) + 1
        return lost or Unknown(reason="no answer"), None

    def _granted(self, action: LaunchNodes, offer: Offer, ids: list[str]) -> Launched:
        """Return the nodes, and a reason if they are fewer than the action wants."""
        short = None
        if len(ids) < action.count:
            reason = f"{len(ids)} of {action.count} were available of {offer.key}"
            short = Refused(reason=reason, kind="no-capacity", scopes=(offer.key,))
        return Launched(nodes=tuple(ids), short=short)

    def open_subnets(self, zone: str) -> list[str]:
        """Return the subnets of a zone that are not full; an empty name lets EC2 choose."""
        now = self._clock.now()
        by_zone = self._subnets.get(self._ask_subnets, now=now)
        if not zone or by_zone is None:
            return [""]
        return [subnet for subnet in by_zone.get(zone, [""]) if self._full_until.get(subnet, 0.0) <= now]

    def why_cut_off(self, subnet: str, interfaces: int) -> str:
        """Return why a node in a subnet could not be reached; empty if it could, or if that is not known.

        Only nodes with an instance profile must be reachable: nothing is run on a node without one.
        """
        if not (subnet and self._settings.instance_profile):
            return ""
        found = self._ways.get(self._ask_ways, now=self._clock.now())
        way = (found or {}).get(subnet)
        return "" if way is None else way.why(interfaces)

    def _gives_address(self, subnet: str, interfaces: int) -> bool:
        """Return whether a node in a subnet gets a public address, which costs money; True if not known."""
        asks = subnet and self._settings.instance_profile
        found = self._ways.get(self._ask_ways, now=self._clock.now()) if asks else None
        way = (found or {}).get(subnet)
        return interfaces <= 1 and (way is None or way.gives_public_addresses)

    def ways(self) -> Mapping[str, SubnetEgress]:
        """Return the routes to the outside of the subnets to rent in.

        Raises:
            CallFailed: when EC2 cannot be asked.
        """
        return self._ask_ways()

    def _ask_ways(self) -> dict[str, SubnetEgress]:
        return egress_by_subnet(self._calls, self._rows_of_subnets())

    def _ask_subnets(self) -> dict[str, list[str]]:
        """Ask for the subnets by zone; those with the most free addresses come first."""
        rows = self._rows_of_subnets()
        rows.sort(key=lambda row: -int(row.get("AvailableIpAddressCount", 0)))
        found: dict[str, list[str]] = {}
        for row in rows:
            found.setdefault(row["AvailabilityZone"], []).append(row["SubnetId"])
        return found

    def _rows_of_subnets(self) -> list[dict[str, Any]]:
        wanted = list(self._settings.subnets)
        arguments = (
            {"SubnetIds": wanted} if wanted else {"Filters": [{"Name": "default-for-az", "Values": ["true"]}]}
        )
        return list(self._calls.pages("ec2:DescribeSubnets", "Subnets", **arguments))

    def _ask_image(self, named: str) -> tuple[str, str]:
        """Ask AWS for the image behind a name and for its root device."""
        if named == BUILT:
            own = newest(self._calls)
            return own.id, own.root_device or _ROOT_DEVICE
        image = base_of(self._calls, named)
        images = self._calls.call("ec2:DescribeImages", ImageIds=[image])["Images"]
        if not images:
            raise CallFailed(
                "ec2:DescribeImages", "InvalidAMIID.NotFound", f"no image {image}", http_status=400
            )
        return image, images[0].get("RootDeviceName") or _ROOT_DEVICE


def _no_price(error: MissingPrice) -> Refused:
    """Return the refusal of a launch whose cost is not known: nothing is rented without a price."""
    return Refused(reason=str(error), kind="no-price", scopes=("*",), retry_after_seconds=NO_PRICE_SECONDS)
