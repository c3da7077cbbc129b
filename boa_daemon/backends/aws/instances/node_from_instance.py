"""Convert EC2's description of an instance to a node, from its tags and its state alone.

A bill runs from LaunchTime to the instant at which, by EC2, the instance left `running` for good. EC2 bills
from `running` on, an instant that no listing tells exactly; so our bill is too high by the time of `pending`.
What EC2 does not bill, an instance that never ran or that shuts down, costs nothing (`node_states`).
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from boa_daemon.backends.aws.instances.launch_request import (
    EXTRAS_TAG,
    INTENT_TAG,
    LEASE_TAG,
    MARKET_TAG,
    PRICE_TAG,
    RESERVATION_TAG,
)
from boa_daemon.backends.aws.instances.node_states import failed_to_start, is_free_interruption
from boa_daemon.backends.aws.prices.extra_costs import extras_in
from boa_daemon.backends.aws.prices.price_steps import PricePath
from boa_daemon.tick.facts.offers import Market
from boa_daemon.tick.facts.state import NodePhase, NodeState
from policies.model import InstanceType

_PHASES: Mapping[str, NodePhase] = {
    "pending": "requested",
    "running": "ready",
    "shutting-down": "terminating",
    "stopping": "terminating",
    "stopped": "terminating",
    "terminated": "terminated",
}
LEAST_PRICE, MOST_PRICE = 1e-6, 1e6
"""Dollars per hour; a price tag outside this range was not written by BOA."""
_NOT_OURS = ("boa:", "aws:")
"""Beginnings of keys of tags that the house has not chosen."""
_REASON_FORM = "%Y-%m-%d %H:%M:%S"
_REASON_TIME = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def tags_of_instance(instance: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of an instance or of any other resource that EC2 describes."""
    found: Sequence[Mapping[str, str]] = instance.get("Tags") or instance.get("TagSet") or ()
    return {tag["Key"]: tag.get("Value", "") for tag in found if "Key" in tag}


def reservation_of(instance: Mapping[str, Any]) -> str:
    """Return the id of the capacity reservation that an instance is in; empty if it is in none."""
    return str(instance.get("CapacityReservationId") or tags_of_instance(instance).get(RESERVATION_TAG, ""))


def ended_at(instance: Mapping[str, Any]) -> float | None:
    """Return when the instance was ended, to the second; None if EC2's description does not say."""
    found = _REASON_TIME.search(str(instance.get("StateTransitionReason") or ""))
    try:
        return None if found is None else float(calendar.timegm(time.strptime(found[1], _REASON_FORM)))
    except ValueError:
        return None


def lease_of(instance: Mapping[str, Any]) -> float | None:
    """Return the end of a node's lease; None without a readable lease tag."""
    text = tags_of_instance(instance).get(LEASE_TAG, "")
    # Python counts digits of other scripts as digits, and a hundred digits are no instant.
    return float(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def a_type(name: str, kinds: Mapping[str, InstanceType], usd_per_hour: float | None) -> InstanceType:
    """Return the type of an instance; a type that the catalogue lacks gets the price of its tag.

    Without a price tag such a type costs as much as the dearest known type: errors raise our bill.
    """
    if name in kinds:
        return kinds[name]
    price = usd_per_hour or max(kind.usd_per_hour for kind in kinds.values())
    return InstanceType(name=name, gpu_type=f"unknown-{name}", gpus=1, usd_per_hour=price)


def node_of(
    instance: Mapping[str, Any],
    kinds: Mapping[str, InstanceType],
    *,
    spot_prices: Sequence[tuple[float, float]] = (),
    charged: Callable[[str, PricePath], PricePath] = lambda name, path: path,
    is_leaving: bool = False,
    ends_by: float | None = None,
    ready_at: float | None = None,
    stopped_at: float | None = None,
    name: str = "",
    may_have_run: bool = True,
    is_ended_pending: bool = False,
) -> NodeState:
    """Return an instance as a node without jobs.

    `spot_prices` are (instant, USD per hour) of its spot market, in order of time. `charged` returns what a
    node on demand of a type is charged over time, from the path that begins with its price at launch. A node
    that `is_leaving`, or whose end is announced (`ends_by`), counts as terminating, so that its jobs move at
    once. `name` is the node id of its life. Unless it `may_have_run`, it is free if its launch failed, or if
    we ended it because it stayed pending (`is_ended_pending`).
    """
    tags = tags_of_instance(instance)
    launched_at = instance["LaunchTime"].timestamp()
    price = _number(tags.get(PRICE_TAG))
    kind = a_type(instance["InstanceType"], kinds, price)
    phase = _PHASES.get(instance["State"]["Name"], "terminating")
    if phase in ("requested", "ready") and (is_leaving or ends_by is not None):
        phase = "terminating"
    state = instance["State"]["Name"]
    left_at = ended_at(instance) or stopped_at
    end = left_at if phase == "terminated" else None
    prices = market_path(launched_at, price or kind.usd_per_hour, spot_prices)
    if _market_of(instance, tags) == "on-demand":
        prices = charged(instance["InstanceType"], prices)
    extras = extras_in(tags.get(EXTRAS_TAG, "")) or ()
    if state == "shutting-down" and left_at is not None:
        # EC2 bills the compute of a running instance only; it may take many minutes to shut down.
        left_at = max(left_at, launched_at)
        prices = (*(each for each in prices if each[0] <= left_at), (left_at, 0.0))
    if end is not None and not may_have_run and (is_ended_pending or failed_to_start(instance)):
        end, prices, extras = launched_at, ((launched_at, 0.0),), ()
    elif end is not None and is_free_interruption(instance, ended_at=end):
        prices = ((launched_at, 0.0),)
    return NodeState(
        id=name or instance["InstanceId"],
        instance_type=kind,
        phase=phase,
        launched_at=launched_at,
        gpus=(None,) * kind.gpus,
        launched_by=tags.get(INTENT_TAG, ""),
        idle_since=(launched_at if ready_at is None else ready_at) if phase == "ready" else None,
        ended_at=None if end is None else max(end, launched_at),
        zone=instance.get("Placement", {}).get("AvailabilityZone", ""),
        market=_market_of(instance, tags),
        prices=prices,
        ends_by=ends_by,
        extras=extras,
        tags=_house_tags(tags),
    )


def _house_tags(tags: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the tags that neither BOA nor AWS has set, by key."""
    return tuple(
        sorted(each for each in tags.items() if each[0] != "Name" and not each[0].startswith(_NOT_OURS))
    )


def _market_of(instance: Mapping[str, Any], tags: Mapping[str, str]) -> Market:
    """Return the market; EC2's word on spot overrides our tag."""
    if instance.get("InstanceLifecycle") == "spot":
        return "spot"
    return "reserved" if tags.get(MARKET_TAG) == "reserved" else "on-demand"


def market_path(
    launched_at: float, price: float, changes: Sequence[tuple[float, float]]
) -> tuple[tuple[float, float], ...]:
    """Return the price at launch and its market's later prices."""
    before = [usd for at, usd in changes if at <= launched_at]
    later = [(at, usd) for at, usd in changes if at > launched_at]
    return ((launched_at, before[-1] if before else price), *later)


def _number(text: str | None) -> float | None:
    """Return the price in a tag; None if it is not a number in range."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if LEAST_PRICE <= value <= MOST_PRICE else None
