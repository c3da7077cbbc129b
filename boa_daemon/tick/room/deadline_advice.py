"""What the date of a job asks for now: its programme, over the current prices and markets.

Cost: a look-up per size, and a tenth of a second for a new programme (`policies.online.deadlines`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, exp, log2
from typing import TypeAlias

from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.facts.offers import Market, open_offers
from boa_daemon.tick.facts.state import ClusterState, Due, JobState, Rules
from boa_daemon.units import SECONDS_PER_HOUR
from policies.answer import NodePrices
from policies.fast_dataclasses import replace
from policies.model import Width
from policies.online.date_programme import date_plan
from policies.online.deadlines import FAILURE_HOURS, STEPS, TINY, DateAdvice, DateOption, DatePlan, SpotMarket

PLANNED_PROBABILITY = 0.5
"""A date is planned for the largest size that meets it with this probability."""
LEAST_PROBABILITY = 0.1
"""A date with less probability than this asks for nothing: its job runs as if it had no date."""
LEAST_SIZE_PROBABILITY = 0.01
"""Sizes with less probability than this are not planned for."""
NEARLY_ALL = 0.97
"""A size that would take this part of the time left is considered as well."""
SAFE_PROBABILITY = 0.99
"""If the programme promises less without its reserve, the reserve may be used."""
LOOKS = 2
"""A plan ends this many ticks and a start before the date: time to notice an interruption and restart."""
SPOT = SpotMarket()
"""The assumptions about every spot market."""
MOST_RUNGS = 5
"""How many widths are weighed, besides the cheapest and the one that is held."""
BOOT_HOURS = 0.1
"""The boot time assumed if the policy knows none."""
LEAST_HOURS = 0.25
"""The shortest horizon of a programme."""
Hours: TypeAlias = tuple[tuple[Width, float], ...]
_FINE = 4
"""Horizons are rounded up to a quarter of a doubling, so that jobs and ticks share programmes."""


def advice_of(state: ClusterState, rules: Rules, job: JobState, due: Due, *, boot_hours: float) -> DateAdvice:
    """Return what a job's programme advises now, with the probability over all its possible sizes.

    The advice is for the largest size that can still be met, except the rarest sizes; the dollars are the
    mean over the sizes up to that one. The plan ends a reserve before the date. If the reserve itself is
    needed, the advice is the surest way.
    """
    hours_left, boot = (due.at - state.now) / SECONDS_PER_HOUR, boot_hours + due.startup_hours
    held = base_width(job.job.width)
    rungs = _weighed(state, rules, due.hours, held=held)
    plan, fastest = programme(state, rules, due, rungs, hours=hours_left, boot_hours=boot_hours)

    reserve = boot + LOOKS * look_hours_of(rules)
    is_spot = markets_of(state, job) == {"spot"}
    # A job on spot goes on there, whether or not more spot nodes are available.
    is_up = is_spot or _spot_price(state, rules, due.hours[0][0], is_open=True) is not None

    def advice(size: float) -> DateAdvice:
        planned = plan.advise(hours_left - reserve, size * fastest, held=held, is_spot=is_spot, is_up=is_up)
        if planned.kept >= SAFE_PROBABILITY:
            return planned
        surest = _surest(rules, held, rungs, size, hours_left=hours_left, boot=boot, is_spot=is_spot)
        return planned if surest is None or surest.kept <= planned.kept else surest

    by_size = {size: advice(size) for size, _ in due.sizes}
    kept = sum(by_size[size].kept * weight for size, weight in due.sizes)
    reach = (NEARLY_ALL * hours / fastest for hours in (hours_left, hours_left - boot))
    largest = max(
        (size for size, weight in due.sizes if weight >= LEAST_SIZE_PROBABILITY), default=due.sizes[-1][0]
    )
    for size in sorted({*by_size, *reach}, reverse=True):
        found = by_size.get(size) or advice(size)
        if 0.0 < size <= largest and found.kept >= PLANNED_PROBABILITY:
            usd = sum((by_size[one].usd if one < size else found.usd) * weight for one, weight in due.sizes)
            return replace(found, kept=kept, usd=usd)
    return replace(by_size[due.sizes[0][0]], kept=kept)


def _surest(
    rules: Rules,
    held: Width | None,
    rungs: Hours,
    size: float,
    *,
    hours_left: float,
    boot: float,
    is_spot: bool,
) -> DateAdvice | None:
    """Return the surest way for a job of a size to end in time: as now, or fastest on demand, or None.

    Times are exact to the second, unlike on the grid. A single interruption counts as failure.
    """
    fastest = min(rungs, key=lambda one: one[1])
    ways = [(fastest, boot, FAILURE_HOURS)]
    ways += [(one, 0.0, SPOT.up_hours if is_spot else FAILURE_HOURS) for one in rungs if one[0] == held]
    found = []
    for (width, hours), start, safe_hours in ways:
        took = size * hours + start
        if took <= hours_left + TINY:
            price = width.gpus * rules.instance_types[width.gpu_type].usd_per_gpu_hour
            found.append(
                DateAdvice(width=width, is_firm=True, usd=took * price, kept=exp(-took / safe_hours))
            )
    return max(found, key=lambda one: one.kept, default=None)


def markets_of(state: ClusterState, job: JobState) -> set[Market]:
    """Return the markets of the nodes that a job is on."""
    return {state.nodes[slot.node].market for slot in job.slots if slot.node in state.nodes}


def programme(
    state: ClusterState,
    rules: Rules,
    due: Due,
    rungs: Hours | None = None,
    *,
    hours: float,
    boot_hours: float,
) -> tuple[DatePlan, float]:
    """Return a job's programme for at least so many hours, and the job's hours at the fastest width."""
    rungs = rungs or _weighed(state, rules, due.hours)
    fastest = min(took for _, took in rungs)
    # No step is shorter than a tick, because an interruption is noticed no sooner.
    horizon = 2.0 ** (ceil(log2(max(hours, LEAST_HOURS)) * _FINE) / _FINE)
    step = max(horizon / STEPS, look_hours_of(rules))
    steps = ceil(horizon / step - TINY)
    plan = date_plan(
        [_rung(state, rules, width, fastest / took) for width, took in rungs],
        horizon_hours=steps * step,
        boot_hours=boot_hours + due.startup_hours,
        market=SPOT,
        steps=steps,
    )
    return plan, fastest


def _weighed(state: ClusterState, rules: Rules, hours: Hours, *, held: Width | None = None) -> Hours:
    """Return the widths to weigh: widths that cost less the slower they are, and the held width."""

    def usd_per_hour(width: Width) -> float:
        rung = _rung(state, rules, width, 1.0)
        return min(rung.usd_per_hour, rung.spot_usd_per_hour or rung.usd_per_hour)

    prices = {width: usd_per_hour(width) for width, _ in hours}
    return _thinned(hours, prices, held=held)


def _thinned(hours: Hours, usd_per_hour: Mapping[Width, float], *, held: Width | None = None) -> Hours:
    """Return the fastest width, widths that each halve the price, the cheapest, and the held width.

    Among widths with the same cost per hour, or a higher cost than a faster one, only the fastest is weighed.
    The cheapest is the width at which all the work costs the least.
    """
    by_speed = sorted(hours, key=lambda one: (one[1], usd_per_hour[one[0]]))
    kept = by_speed[:1]
    for one in by_speed:
        if 2.0 * usd_per_hour[one[0]] <= usd_per_hour[kept[-1][0]] and len(kept) < MOST_RUNGS:
            kept.append(one)
    cheapest = min(by_speed, key=lambda one: one[1] * usd_per_hour[one[0]])
    return (*kept, *(one for one in hours if one not in kept and (one == cheapest or one[0] == held)))


def _rung(state: ClusterState, rules: Rules, width: Width, speed: float) -> DateOption:
    """Return a width with the cost of its part of whole nodes."""
    machine = rules.instance_types[width.gpu_type]
    spot = _spot_price(state, rules, width, is_open=False)
    return DateOption(
        width=width,
        speed=round(speed, 3) or speed,
        usd_per_hour=width.gpus * machine.usd_per_gpu_hour,
        spot_usd_per_hour=None if spot is None else float(f"{width.gpus * spot / machine.gpus:.3g}"),
    )


def _spot_price(state: ClusterState, rules: Rules, width: Width, *, is_open: bool) -> float | None:
    """Return the spot price of a node of a type; None if it is not rented there, or not open now."""
    machine = rules.instance_types[width.gpu_type]
    prices = (
        offer.usd_per_hour
        for known in (machine.name, str(machine.machine_name.on_spot))
        for offer in (
            open_offers(known, state.offers, state.cooldowns, now=state.now) if is_open else state.offers
        )
        if offer.market == "spot" and offer.instance_type == known
    )
    return min((price for price in prices if price is not None), default=None)


def base_width(width: Width | None) -> Width | None:
    """Return a width without its market: dates choose the market themselves."""
    return None if width is None else Width(str(width.kind.on_demand), width.gpus)


def on_market(rules: Rules, width: Width, *, is_firm: bool) -> Width:
    """Return a width on the market that a date asks for, if markets are planned apart."""
    kind = str(width.kind.on_spot)
    return width if is_firm or kind not in rules.instance_types else Width(kind, width.gpus)


def look_hours_of(rules: Rules) -> float:
    """Return the longest time between two ticks, in hours."""
    return (Caps() if rules.caps is None else rules.caps).tick_seconds / SECONDS_PER_HOUR


def boot_hours_of(node_prices: NodePrices | None) -> float:
    """Return the boot time that the policy knows, in hours, or the default."""
    return BOOT_HOURS if node_prices is None else node_prices.boot_hours
