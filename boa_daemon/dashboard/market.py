"""The page's document on the market: prices with their day and source, and what may still be rented.

Prices of plans come from the catalogue of the daemon, as `boa plan --live` uses them; prices of offers are
what the cloud asks now. `needed_nodes` are those that the plan at the budget needs for 99 % of the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from boa_daemon.daemon.service.service import Service
from boa_daemon.inputs.catalog import CatalogEntry
from boa_daemon.inputs.price_age import STALE_DAYS, days_old
from boa_daemon.planning.budget_plan import QUOTA_SHARE
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.offers import Cooldown, Market, Offer, closing
from boa_daemon.tick.facts.reasons import WAIT_REASON_TEXTS
from policies.errors import PolicyError
from policies.model import InstanceType, Problem
from policies.optimum.frontier import MixedFrontier
from policies.optimum.swing import swings
from policies.site import Site

REFUSALS = {
    **{kind: WAIT_REASON_TEXTS[kind] for kind in ("quota", "denied", "throttled", "bad-request", "no-price")},
    "no-capacity": "the cloud has none of it",
    "busy": "the daemon is busy with it",
}
"""What closes an offer, in words."""


class MarketView:
    """Answers about the market; the plan's nodes are cached until the problem or the budget changes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._planned: tuple[Problem, float, dict[str, int]] | None = None

    def document(self) -> dict[str, Any]:
        """Return prices, room and quotas."""
        daemon = self._service.daemon
        now = daemon.world.clock.now()
        decision, machines = daemon.standing.decision, daemon.planner.machines
        ages = dict(daemon.world.cloud.ages())
        return {
            "as_of": now,
            "provider": daemon.settings.cloud.provider,
            "prices": _prices(machines, daemon.planner.catalog.entries, ages, decision, now),
            "room": _room(machines, decision, self._needed_nodes(), now),
            "limit": _limit(decision, daemon.settings.budget.max_instances),
            "quota_share": QUOTA_SHARE,
        }

    def _needed_nodes(self) -> dict[str, int]:
        """Return the nodes that the plan needs by GPU type; none where no plan is possible."""
        site = _site(self._service)
        if site is None:
            return {}
        asked = site.problem, site.budget.amount
        if self._planned is None or self._planned[:2] != asked:
            self._planned = *asked, _needed(site)
        return self._planned[2]


def _site(service: Service) -> Site | None:
    """Return the planning problem of the present jobs; None where no plan is possible."""
    daemon = service.daemon
    if daemon.storage is None:
        return None
    try:
        return daemon.planner.record(daemon.classes_in_use(daemon.storage)).site
    except PolicyError:
        return None


def _needed(site: Site) -> dict[str, int]:
    """Return by GPU type the nodes that suffice for most of the time under the plan at the budget."""
    frontier = MixedFrontier.of(site.problem)
    try:
        found = swings(site.problem, frontier.solution_at(site.budget.amount))
    except PolicyError:
        return {}
    return {
        swing.gpu_type: -(-swing.quantile(QUOTA_SHARE) // site.instance_types[swing.gpu_type].gpus)
        for swing in found
        if swing.gpu_type in site.instance_types
    }


def _prices(
    machines: Mapping[str, InstanceType],
    entries: Mapping[str, CatalogEntry],
    ages: Mapping[str, float | None],
    decision: Decision | None,
    now: float,
) -> list[dict[str, Any]]:
    """Return a row for each machine of the plan: its price, the day and the source of that price."""
    offers = () if decision is None else decision.state.offers
    today = datetime.fromtimestamp(now, UTC).date()
    rows = []
    for kind, machine in machines.items():
        name = str(machine.machine_name.on_demand)
        entry = entries.get(name)
        market = machine.machine_name.market
        # A price list that the cloud answered is as old as that answer; other prices have their day.
        age = ages.get("spot" if market == "spot" else f"price {name}")
        as_of = "" if entry is None or entry.usd_per_hour != machine.usd_per_hour else entry.as_of
        asked = [
            offer.compute_usd_per_hour
            for offer in offers
            if offer.instance_type == name and offer.market == market
        ]
        known = [usd for usd in asked if usd is not None]
        old = None if age is not None else days_old(as_of, today)
        rows.append(
            {
                "gpu_type": kind,
                "instance_type": name,
                "market": market,
                "gpus": machine.gpus,
                "usd_per_hour": machine.usd_per_hour,
                "as_of": as_of or None,
                "age_seconds": age,
                "is_stale": old is not None and old > STALE_DAYS,
                "source": _source(entry, machine, market),
                "region": "" if entry is None else entry.region,
                "lowest_offer_usd_per_hour": min(known, default=None),
                "highest_offer_usd_per_hour": max(known, default=None),
            }
        )
    return rows


def _source(entry: CatalogEntry | None, machine: InstanceType, market: str) -> str:
    """Return where the price of a machine comes from."""
    if market == "spot":
        return "spot prices of the last hours, as the cloud tells them"
    if entry is None or entry.usd_per_hour != machine.usd_per_hour:
        return "the class file"
    return entry.source or "the catalogue that is shipped"


def _room(
    machines: Mapping[str, InstanceType], decision: Decision | None, needed: Mapping[str, int], now: float
) -> list[dict[str, Any]]:
    """Return a row for each machine and pool: what we have of it, what is left, and what closes it."""
    if decision is None:
        return []
    state = decision.state
    nodes: Counter[tuple[str, Market]] = Counter(
        (node.instance_type.name, node.market) for node in state.nodes.values()
    )
    rows = []
    for kind, machine in machines.items():
        name = str(machine.machine_name.on_demand)
        market: Market = machine.machine_name.market
        offers = [one for one in state.offers if one.instance_type == name and one.market == market]
        left = [one.nodes_left for one in offers if one.nodes_left is not None]
        have = nodes[machine.name, market] or nodes[name, market]
        rows.append(
            {
                "gpu_type": kind,
                "instance_type": name,
                "market": market,
                "nodes": have,
                # Offers of one pool share what is left of it.
                "nodes_left": _left(offers) if left else None,
                "quota_nodes": have + _left(offers) if left else None,
                "needed_nodes": needed.get(kind),
                "zones": len({one.zone for one in offers}),
                "closed": _closed(offers or [Offer(instance_type=name, market=market)], state.cooldowns, now),
            }
        )
    return rows


def _left(offers: Iterable[Offer]) -> int:
    """Return how many more nodes may be had: offers of one pool share their number."""
    pools: dict[str, int] = {}
    for offer in offers:
        if offer.nodes_left is not None:
            pools[offer.pool] = max(offer.nodes_left, pools.get(offer.pool, 0))
    return sum(pools.values())


def _closed(offers: Iterable[Offer], cooldowns: Mapping[str, Cooldown], now: float) -> list[dict[str, Any]]:
    """Return why offers are not asked for now, each reason with the zones and until when."""
    found: dict[tuple[str, float], list[str]] = {}
    for offer in offers:
        rest = closing(cooldowns, offer.key, now=now)
        if rest is not None:
            found.setdefault((rest.kind, rest.until), []).append(offer.zone)
    return [
        {"kind": kind, "said": REFUSALS.get(kind, kind), "until": until, "zones": sorted(set(zones) - {""})}
        for (kind, until), zones in found.items()
    ]


def _limit(decision: Decision | None, most: int | None) -> dict[str, Any]:
    """Return the settings' own limit on nodes, and how many there are."""
    nodes = 0 if decision is None else sum(n.phase != "stopped" for n in decision.state.nodes.values())
    return {"max_instances": most, "nodes": nodes}
