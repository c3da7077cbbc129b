"""The site's history of the spot market, by instance type and zone: interruptions, stock and prices.

Plans begin with a prior and then use the history, erring on the careful side. Interruptions of a type are a
Poisson process over the hours of its nodes. The planned rate is the 80 % quantile of the posterior; the
planned share of requested nodes that are granted is the 20 % quantile.

    symbol   here                        meaning
    a, b     PRIOR_ENDS, PRIOR_HOURS     prior of interruptions: Gamma(a, b), 1 in 12 hours
    g, r     PRIOR_GIVEN, PRIOR_SHORT    prior of stock: Beta(g, r), 4 nodes of 5 are granted
    u        PRIOR_SUDDEN                interruptions without notice: one in four, as if 4 had been seen

Data of age `HALF_LIFE_HOURS` count half. A node that vanishes, or whose end was announced, counts as
interrupted unless we ended it; so does a node that goes back with unfit hardware. Hours before a restart in
which the daemon did not run are not counted, which is careful too. Figures are rounded to steps, so that one
more hour changes no plan. Cost: O(live nodes) per look.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import ceil, floor, log

import scipy

from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.units import SECONDS_PER_HOUR
from policies.kinds import machine_name_of
from policies.model import NodeId

PRIOR_ENDS, PRIOR_HOURS = 2.0, 24.0
PRIOR_GIVEN, PRIOR_SHORT = 4.0, 1.0
PRIOR_SUDDEN, PRIOR_INTERRUPTIONS = 1.0, 4.0
PRIOR_FRACTION = 0.7
"""The assumed spot price over the on-demand price, if no spot price was ever seen."""
CAREFUL_QUANTILE = 0.8
HALF_LIFE_HOURS = 14 * 24.0
PRICE_HOURS = 24.0
"""Half-life, in hours, of the mean price used for planning."""
_RATE_STEP, _PART_STEP = 1.25, 0.05
_ROUNDING = 1e-9


@dataclass(slots=True, kw_only=True)
class SpotCounts:
    """The counts of a type in a zone; `price_fraction` is the mean price, 0 if no price was seen."""

    hours: float = 0.0
    ends: float = 0.0
    sudden: float = 0.0
    asked: float = 0.0
    given: float = 0.0
    price_fraction: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotTerms:
    """The assumptions of plans about a type: interruptions, the sudden fraction of them, price and stock.

    `price_fraction` is the spot price over the on-demand price. `given_fraction` is the fraction of requested
    nodes that are granted; the others are rented on demand.
    """

    per_node_hour: float
    sudden_fraction: float
    price_fraction: float
    given_fraction: float

    @property
    def planned_fraction(self) -> float:
        """The mean cost of an hour planned on spot, over an hour on demand."""
        return self.given_fraction * self.price_fraction + 1.0 - self.given_fraction


class SpotHistory:
    """Counts of the spot market; every call happens under the lock of the tick."""

    def __init__(self, documents: Mapping[str, str] | None = None) -> None:
        self._rows: dict[tuple[str, str], SpotCounts] = defaultdict(SpotCounts)
        self._live: dict[NodeId, tuple[tuple[str, str], bool]] = {}
        self._ended_by_us: set[NodeId] = set()
        self._looked_at: float | None = None
        known = {field.name for field in fields(SpotCounts)}
        for key, text in (documents or {}).items():
            name, _, zone = key.partition("/")
            self._rows[name, zone] = SpotCounts(**{k: v for k, v in json.loads(text).items() if k in known})

    def documents(self) -> dict[str, str]:
        """Return the counts to store."""
        return {f"{name}/{zone}": json.dumps(asdict(row)) for (name, zone), row in self._rows.items()}

    def look(
        self,
        nodes: Iterable[NodeState],
        offers: Sequence[Offer],
        on_demand: Mapping[str, float],
        *,
        now: float,
    ) -> None:
        """Count the hours and ends of spot nodes since the last look, and note the market's prices.

        `on_demand` is the on-demand price of each type.
        """
        hours = 0.0 if self._looked_at is None else max(now - self._looked_at, 0.0) / SECONDS_PER_HOUR
        self._looked_at = now
        for row in self._rows.values():
            for name in ("hours", "ends", "sudden", "asked", "given"):
                setattr(row, name, getattr(row, name) * 0.5 ** (hours / HALF_LIFE_HOURS))
        before, self._live = self._live, {}
        for node in nodes:
            if node.market != "spot" or node.ended_at is not None:
                continue
            key = (_listed(node.instance_type.name), node.zone)
            row, was_told = self._rows[key], before.get(node.id, (key, False))[1]
            row.hours += hours if node.id in before else 0.0
            is_told = was_told or node.ends_by is not None
            row.ends += is_told and not was_told
            self._live[node.id] = key, is_told
        for name, (key, was_told) in before.items():
            if name not in self._live and not was_told and name not in self._ended_by_us:
                self._rows[key].ends += 1.0
                self._rows[key].sudden += 1.0
        self._ended_by_us &= self._live.keys()
        self._note_prices(offers, on_demand, hours)

    def _note_prices(self, offers: Sequence[Offer], on_demand: Mapping[str, float], hours: float) -> None:
        """Move the mean prices towards the current ones."""
        weight = 1.0 - 0.5 ** (hours / PRICE_HOURS)
        for offer in offers:
            name = _listed(offer.instance_type)
            asked, usual = offer.compute_usd_per_hour, on_demand.get(name)
            if offer.market != "spot" or asked is None or usual is None:
                continue
            row = self._rows[name, offer.zone]
            fraction = min(asked / usual, 1.0)
            row.price_fraction += (fraction - row.price_fraction) * (weight if row.price_fraction else 1.0)

    def note_ended(self, nodes: Collection[NodeId]) -> None:
        """Record nodes that we end, so that they do not count as interrupted."""
        self._ended_by_us |= self._live.keys() & set(nodes)

    def note_launch(self, offer: Offer | None, *, asked: int, given: int) -> None:
        """Count the requested and the granted nodes of a launch."""
        if offer is not None and offer.market == "spot":
            row = self._rows[_listed(offer.instance_type), offer.zone]
            row.asked, row.given = row.asked + asked, row.given + given

    def zones(self, instance_type: str) -> Mapping[str, SpotCounts]:
        """Return the counts of a type, by zone."""
        wanted = _listed(instance_type)
        return {zone: row for (name, zone), row in sorted(self._rows.items()) if name == wanted}

    def terms(self, instance_type: str) -> SpotTerms:
        """Return the assumptions of plans about a type, over its zones, at the price of the cheapest zone."""
        rows = self.zones(instance_type).values()
        ends, hours, sudden = (
            sum(getattr(row, name) for row in rows) for name in ("ends", "hours", "sudden")
        )
        given = sum(row.given for row in rows)
        short = sum(max(row.asked - row.given, 0.0) for row in rows)
        price = min((row.price_fraction for row in rows if row.price_fraction), default=PRIOR_FRACTION)
        rate = float(scipy.special.gammaincinv(PRIOR_ENDS + ends, CAREFUL_QUANTILE)) / (PRIOR_HOURS + hours)
        share = float(
            scipy.special.betaincinv(PRIOR_GIVEN + given, PRIOR_SHORT + short, 1.0 - CAREFUL_QUANTILE)
        )
        return SpotTerms(
            per_node_hour=_RATE_STEP ** ceil(log(rate) / log(_RATE_STEP) - _ROUNDING),
            sudden_fraction=_up((PRIOR_SUDDEN + sudden) / (PRIOR_INTERRUPTIONS + ends)),
            price_fraction=_up(price),
            given_fraction=max(_PART_STEP * floor(share / _PART_STEP + _ROUNDING), _PART_STEP),
        )

    def sentence(self, instance_type: str) -> str:
        """Return the assumptions of plans about a type, and the data behind them, as a sentence."""
        terms, rows = self.terms(instance_type), self.zones(instance_type)
        seen = [
            f"{zone or 'the region'}: {row.ends:.3g} in {row.hours:,.0f} node-hours, "
            f"{row.given:.0f} of {row.asked:.0f} nodes given"
            for zone, row in rows.items()
            if row.hours or row.asked
        ]
        known = "; ".join(seen) or "assumed, because none was rented yet"
        return (
            f"Plans count on a spot {_listed(instance_type)} at {terms.price_fraction:.0%} of the "
            f"price on demand, taken back every {1.0 / terms.per_node_hour:,.0f} hours, and on "
            f"{terms.given_fraction:.0%} of those asked for; the rest is rented on demand ({known})."
        )


def _listed(name: str) -> str:
    """Return a machine's name without its market."""
    return str(machine_name_of(name).on_demand)


def _up(part: float) -> float:
    """Return a fraction rounded up to a step, at most 1."""
    return min(_PART_STEP * ceil(part / _PART_STEP - _ROUNDING), 1.0)
